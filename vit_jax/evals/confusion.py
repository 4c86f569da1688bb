"""Confusion matrix and per-class accuracy."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
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
    split = context.open(self)
    context.check_classes(split, single=True)
    if split.num_classes > MAX_CLASSES:
      raise ValueError(
          f'{context.where}: the confusion matrix of {split.num_classes:,} '
          f'classes is too large; the limit is {MAX_CLASSES:,}.')

    def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
      logits = context.predict(params, batch)['logits']
      return {'label': batch['label'], 'prediction': logits.argmax(axis=-1),
              'is_nan': jnp.isnan(logits).any(axis=-1)}

    def finish(values: passes.Values) -> evaluator.Result:
      if values['is_nan'].any():
        raise ValueError(
            f'{context.where}: the logits of {int(values["is_nan"].sum())} '
            f'examples of {split.name} are NaN.')
      # Row: class; column: predicted class.
      counts = np.bincount(
          values['label'].astype(np.int64) * split.num_classes
          + values['prediction'], minlength=split.num_classes**2,
      ).reshape(split.num_classes, split.num_classes)
      correct, total = np.diag(counts), counts.sum(axis=1)
      with np.errstate(invalid='ignore'):
        accuracy = correct / total  # NaN for classes without examples.
      return evaluator.Result(
          {'accuracy': float(correct.sum() / total.sum()),
           'accuracy_class_mean': float(np.nanmean(accuracy)),
           'accuracy_class_worst': float(np.nanmin(accuracy)),
           'examples': int(total.sum())},
          {'confusion': counts, 'class_accuracy': accuracy}, split.class_names)

    return passes.gather(split, batch_values, finish)
