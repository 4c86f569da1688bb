"""Mean average precision for images with several labels."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes


@dataclasses.dataclass(frozen=True)
class MultiLabelConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'multi_label'`.

  `mean_average_precision` is the unweighted mean, over classes with examples,
  of scikit-learn's `average_precision_score`. The scores of all classes of all
  examples are in host memory: 4.5 GB for 50,000 examples of 18,000 classes.
  """
  name: Literal['multi_label'] = 'multi_label'

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (
        metrics.MEAN_AVERAGE_PRECISION, metrics.PRECISION_AT_1, metrics.LOSS)

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self)
    context.check_classes(split)
    return evaluate(context, split)


def evaluate(
    context: evaluator.Context, split: evaluator.Split,
) -> evaluator.Evaluate:
  """Returns the multi-label evaluation of a split."""
  def batch_values(params: types.Params, batch: types.Batch) -> types.Outputs:
    logits, labels = context.predict(params, batch)['logits'], batch['label']
    khot = split.k_hot(labels)
    return {'score': logits.astype(jnp.float32), 'label': khot > 0,
            'precision_at_1': metrics.precision_at_1(logits, khot),
            'loss': context.loss(logits, labels)}

  def finish(values: passes.Values) -> evaluator.Result:
    from sklearn import metrics as sklearn_metrics
    per_class = np.array([
        sklearn_metrics.average_precision_score(labels, scores)
        if labels.any() and np.isfinite(scores).all() else np.nan
        for scores, labels in zip(values['score'].T, values['label'].T)])
    # A class without examples is skipped, but NaN scores must show.
    counted = ~np.isnan(per_class) | values['label'].any(axis=0)
    mean = per_class[counted].mean() if counted.any() else np.nan
    return evaluator.Result(
        {'mean_average_precision': float(mean),
         **{name: float(values[name].mean(dtype=np.float64))
            for name in ('precision_at_1', 'loss')},
         'examples': len(values['score'])},
        {'average_precision': per_class}, split.dataset.class_names)

  return passes.gather(split, batch_values, finish)
