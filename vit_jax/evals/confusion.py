"""Confusion matrix and per-class accuracy."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Int
import numpy as np

from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes

# The matrix of this many classes takes 0.8 GB.
MAX_CLASSES = 10_000


@dataclasses.dataclass(frozen=True)
class ConfusionConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'confusion'`."""
  name: Literal['confusion'] = 'confusion'

  def metrics(self) -> dict[str, evaluator.Mode]:
    """See `EvaluatorConfig`."""
    return {'accuracy': 'max', 'accuracy_class_mean': 'max',
            'accuracy_class_worst': 'max'}

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    """See `EvaluatorConfig`."""
    split = context.open_for_head(
        self.split, self.source, batch_size=self.batch_size)
    context.check_classes(split, single=True)
    if split.num_classes > MAX_CLASSES:
      raise ValueError(
          f'{context.where}: the confusion matrix of {split.num_classes:,} '
          f'classes is too large; the limit is {MAX_CLASSES:,}.')

    def batch_values(
        params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
      logits = context.predict(params, batch)['logits']
      return {'label': batch['label'], 'prediction': logits.argmax(axis=-1),
              'is_nan': jnp.isnan(logits).any(axis=-1)}

    gather = passes.gather(split, batch_values)

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      values = gather(params, on_batch)
      if values['is_nan'].any():
        raise ValueError(
            f'{context.where}: the logits of {int(values["is_nan"].sum())} '
            f'examples of {split.name} are NaN.')
      counts = confusion_matrix(
          values['label'], values['prediction'], num_classes=split.num_classes)
      correct, total = np.diag(counts), counts.sum(axis=1)
      with np.errstate(invalid='ignore'):
        accuracy = correct / total  # NaN for classes without examples.
      present = accuracy[total > 0]
      return evaluator.Result(
          {'accuracy': float(correct.sum() / total.sum()),
           'accuracy_class_mean': float(present.mean()),
           'accuracy_class_worst': float(present.min()),
           'examples': int(total.sum())},
          {'confusion': counts, 'class_accuracy': accuracy}, split.class_names)

    return run


def confusion_matrix(
    labels: Int[np.ndarray, 'examples'],
    predictions: Int[np.ndarray, 'examples'], *, num_classes: int,
) -> Int[np.ndarray, 'classes classes']:
  """Counts the images of class [row] that are predicted as class [column]."""
  pairs = labels.astype(np.int64) * num_classes + predictions
  return np.bincount(pairs, minlength=num_classes**2).reshape(
      num_classes, num_classes)
