"""Confusion matrix, accuracy and F1 per class, mistakes, largest losses."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Int
import numpy as np

from vit_jax import console
from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.exceptions import UserError

_NUM_MISTAKES = 24  # In the sheet of images.
_NUM_LOSSES, _PRINTED_LOSSES = 100, 5  # Named in the JSON; printed.
_MAX_LETTERS = 36  # Of the name of an image.
# The matrix of this many classes takes 0.8 GB.
MAX_CLASSES = 10_000


@dataclasses.dataclass(frozen=True)
class ConfusionConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'confusion'`."""
  name: Literal['confusion'] = 'confusion'

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (metrics.ACCURACY, *(
        evaluator.Metric(name, is_fraction=True) for name in (
            'accuracy_class_mean', 'accuracy_class_worst', 'f1_class_mean')))

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self)
    context.check_classes(split, single=True)
    dataset = split.dataset
    if dataset.num_classes > MAX_CLASSES:
      raise UserError(
          f'{context.where}: the confusion matrix of {dataset.num_classes:,} '
          f'classes is too large; the limit is {MAX_CLASSES:,}.')

    def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
      logits = context.predict(params, batch)['logits'].astype(jnp.float32)
      log_probabilities = getattr(jax.nn, f'log_{context.activation}')(logits)
      return {'label': batch['label'], 'prediction': logits.argmax(axis=-1),
              'loss': -jnp.take_along_axis(
                  log_probabilities, batch['label'][:, None], axis=-1)[:, 0],
              'confidence': jnp.exp(log_probabilities.max(axis=-1)),
              'is_nan': jnp.isnan(logits).any(axis=-1)}

    def finish(values: passes.Values) -> evaluator.Result:
      if values['is_nan'].any():
        raise UserError(
            f'{context.where}: the logits of {int(values["is_nan"].sum())} '
            f'examples of {dataset.title} are NaN.')
      # Row: class; column: predicted class.
      counts = np.bincount(
          values['label'].astype(np.int64) * dataset.num_classes
          + values['prediction'], minlength=dataset.num_classes**2,
      ).reshape(dataset.num_classes, dataset.num_classes)
      correct, total = np.diag(counts), counts.sum(axis=1)
      with np.errstate(invalid='ignore'):
        accuracy = correct / total  # NaN for classes without examples.
        precision = correct / counts.sum(axis=0)  # NaN if never predicted.
        # NaN for classes with neither examples nor predictions.
        f1 = 2 * correct / (total + counts.sum(axis=0))
      tables = {'confusion': counts, 'class_accuracy': accuracy,
                'class_precision': precision, 'class_f1': f1}
      names = dataset.class_names or [
          f'class {i}' for i in range(dataset.num_classes)]
      # Positions refer to the dataset only if no image was unreadable.
      complete = total.sum() == dataset.num_examples
      details = [('Classes of lowest F1', lowest(tables, names)),
                 ('Most frequent confusions', most_frequent(counts, names))]
      if complete:
        largest = largest_losses(values, dataset.source)
        tables |= largest
        details.append(('Largest losses', _printed(largest, names)))
      else:
        context.note(f'note: {context.where} lists no largest losses and draws '
                     'no mistakes, because images could not be read.')
      return evaluator.Result(
          {'accuracy': float(correct.sum() / total.sum()),
           'accuracy_class_mean': float(np.nanmean(accuracy)),
           'accuracy_class_worst': float(np.nanmin(accuracy)),
           'f1_class_mean': float(np.nanmean(f1)),
           'examples': int(total.sum())},
          tables, dataset.class_names,
          _mistakes(values, split) if complete else (), details=tuple(details))

    return passes.gather(split, batch_values, finish)


def largest_losses(
    values: passes.Values, source: Any, *, most: int = _NUM_LOSSES,
) -> dict[str, np.ndarray]:
  """Returns the images of largest loss: `loss_...` arrays, in this order.

  The loss is minus the logarithm of the probability that the model gives the
  label: images of large loss are often labelled wrongly.
  """
  order = np.argsort(-values['loss'], kind='stable')[:most]
  return {'loss_image': np.array([source.key(int(i)) for i in order]),
          'loss_value': values['loss'][order],
          'loss_label': values['label'][order],
          'loss_prediction': values['prediction'][order]}


def _printed(
    largest: Mapping[str, np.ndarray], names: Sequence[str],
) -> evaluator.Printed:
  """Returns the headings and rows of the images of largest loss."""
  return ['image', 'class', 'predicted as', 'loss'], [
      [console.shorten(str(image), _MAX_LETTERS), names[label],
       names[prediction], float(value)]
      for image, value, label, prediction in list(zip(*(
          largest[f'loss_{key}'] for key in (
              'image', 'value', 'label', 'prediction'))))[:_PRINTED_LOSSES]]


def _mistakes(
    values: passes.Values, split: evaluator.Split,
) -> tuple[evaluator.Mistake, ...]:
  """Returns the wrong predictions of highest confidence."""
  wrong = np.flatnonzero(values['prediction'] != values['label'])
  order = np.argsort(-values['confidence'][wrong], kind='stable')
  return tuple(evaluator.Mistake(
      read=functools.partial(split.original, int(i)),
      label=int(values['label'][i]), prediction=int(values['prediction'][i]),
      confidence=float(values['confidence'][i]))
               for i in wrong[order[:_NUM_MISTAKES]])


def most_frequent(
    counts: Int[np.ndarray, 'classes classes'], names: Sequence[str], *,
    most: int = 5,
) -> evaluator.Printed:
  """Returns the headings and rows of the most frequent wrong predictions."""
  wrong, total = counts - np.diag(np.diag(counts)), counts.sum(axis=1)
  pairs = np.argsort(-wrong, axis=None, kind='stable')[:most]
  rows, columns = (index.tolist() for index in np.unravel_index(
      pairs, wrong.shape))
  return ['class', 'predicted as', 'images', 'of'], [
      [names[i], names[j], int(wrong[i, j]), int(total[i])]
      for i, j in zip(rows, columns) if wrong[i, j]]


def lowest(
    tables: Mapping[str, np.ndarray], names: Sequence[str], *, most: int = 10,
) -> evaluator.Printed:
  """Returns the headings of a table, and a row for each class of lowest F1."""
  total = tables['confusion'].sum(axis=1)
  return ['class', 'images', 'precision', 'recall', 'F1'], [
      [names[i], int(total[i]), *(
          console.format_metric(
              float(tables[f'class_{key}'][i]), is_fraction=True)
          for key in ('precision', 'accuracy', 'f1'))]
      for i in map(int, np.argsort(
          tables['class_f1'], kind='stable')[:most])]
