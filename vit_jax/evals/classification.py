"""Loss and accuracy over a split; average precision of several labels."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
import numpy as np

from vit_jax import data
from vit_jax import metrics
from vit_jax import registry
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import passes
from vit_jax.evals import regression

TOP_K = 5
TOP_K_ACCURACY = evaluator.Metric(f'accuracy_top_{TOP_K}', is_fraction=True)
MAX_RANKED = 1_000  # Classes up to which multi-label data have a mean AP.


@dataclasses.dataclass(frozen=True)
class ClassificationConfig(evaluator.EvaluatorConfig):
  """An entry of the section `evals` with `name: 'classification'`.

  Attributes:
    real_labels: file real.json of ImageNet's ReaL labels for the 50,000
      validation images (arXiv 2006.07159; google-research/reassessed-imagenet
      on GitHub). `accuracy` is then the share of images whose prediction is
      among their labels; images without labels are skipped, as in the paper.
      In other data with several labels per image, these count as wrong.
  """
  name: Literal['classification'] = 'classification'
  real_labels: str = ''

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (metrics.ACCURACY, metrics.PRECISION_AT_1,
            metrics.MEAN_AVERAGE_PRECISION, TOP_K_ACCURACY, metrics.LOSS)

  def metrics_on(self, dataset: data.Metadata) -> tuple[str, ...]:
    if self.real_labels:
      return ('accuracy',)
    if dataset.multi_label:
      return ('precision_at_1', *('mean_average_precision',) * (
          dataset.num_classes <= MAX_RANKED), 'loss')
    top_k = (f'accuracy_top_{TOP_K}',) * (dataset.num_classes > TOP_K)
    return ('accuracy', *top_k, 'loss')

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    if self.real_labels:
      return registry.load(registry.REAL_LABELS)(context, self)
    split = context.open(self)
    context.check_classes(split)
    dataset = split.dataset
    # The scores of all classes of all examples must fit into host memory.
    if dataset.multi_label and dataset.num_classes <= MAX_RANKED:
      return _evaluate_multi_label(context, split)

    def batch_means(
        params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
      logits, labels = context.predict(params, batch)['logits'], batch['label']
      values = {'loss': context.loss(logits, labels)}
      if dataset.multi_label:
        values['precision_at_1'] = metrics.precision_at_1(logits, labels)
      else:
        values['accuracy'] = metrics.top_k_correct(logits, labels, k=1)
        if logits.shape[-1] > TOP_K:
          values[f'accuracy_top_{TOP_K}'] = metrics.top_k_correct(
              logits, labels, k=TOP_K)
      return {name: metrics.Mean.from_model_output(value, batch['mask'])
              for name, value in values.items()}

    return passes.mean(split, batch_means)


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
    return _evaluate_multi_label(context, split)


def _evaluate_multi_label(
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


@dataclasses.dataclass(frozen=True)
class AutoConfig(ClassificationConfig):
  """An entry of the section `evals` without a `name`, or with `name: 'auto'`.

  A run replaces it by `regression` if the labels are numbers, and else by
  `classification`, which measures one or several labels per image.
  """
  name: Literal['auto'] = 'auto'  # type: ignore[assignment]

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return tuple(dict.fromkeys((
        *super().metrics(), *regression.RegressionConfig().metrics())))

  def resolve(self, dataset: data.Metadata) -> evaluator.EvaluatorConfig:
    kind = (regression.RegressionConfig if dataset.targets
            else ClassificationConfig)
    return kind(**{
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(kind) if field.name != 'name'})
