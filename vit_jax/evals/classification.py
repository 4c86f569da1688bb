"""Loss and accuracy over a split; average precision of several labels."""

import dataclasses
from typing import Literal

from vit_jax import data
from vit_jax import metrics
from vit_jax import registry
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import multi_label as multi_label_lib
from vit_jax.evals import passes

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
      return multi_label_lib.evaluate(context, split)

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
