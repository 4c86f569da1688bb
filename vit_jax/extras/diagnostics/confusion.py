"""Confusion matrix, accuracy and F1 per class, and confident mistakes."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Literal

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
      logits = context.predict(params, batch)['logits']
      return {'label': batch['label'], 'prediction': logits.argmax(axis=-1),
              'confidence': jax.nn.softmax(logits.astype(jnp.float32)).max(-1),
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
      return evaluator.Result(
          {'accuracy': float(correct.sum() / total.sum()),
           'accuracy_class_mean': float(np.nanmean(accuracy)),
           'accuracy_class_worst': float(np.nanmin(accuracy)),
           'f1_class_mean': float(np.nanmean(f1)),
           'examples': int(total.sum())},
          tables, dataset.class_names,
          # Positions refer to the dataset only if no image was unreadable.
          _mistakes(values, split)
          if total.sum() == dataset.num_examples else (), details=(
              ('Classes of lowest F1', lowest(tables, names)),
              ('Most frequent confusions', most_frequent(counts, names))))

    return passes.gather(split, batch_values, finish)


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
