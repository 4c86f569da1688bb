"""Loss and accuracy over a split; average precision of several labels."""

import dataclasses
from typing import Literal

from vit_jax import data
from vit_jax import metrics
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
    if self.real_labels:
      return (metrics.ACCURACY,)
    return (metrics.ACCURACY, metrics.PRECISION_AT_1,
            metrics.MEAN_AVERAGE_PRECISION, TOP_K_ACCURACY, metrics.LOSS)

  def metrics_on(self, dataset: data.Metadata) -> tuple[str, ...]:
    if self.real_labels:
      return ('accuracy',)
    if dataset.multi_label:
      return ('precision_at_1', *('mean_average_precision',) * (
          self._ranks_classes(dataset.num_classes)), 'loss')
    top_k = (f'accuracy_top_{TOP_K}',) * (dataset.num_classes > TOP_K)
    return ('accuracy', *top_k, 'loss')

  def _ranks_classes(self, num_classes: int) -> bool:
    # The scores of all classes of all examples must fit into host memory.
    return num_classes <= MAX_RANKED and not self.real_labels

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    split = context.open(self, real_labels=self.real_labels)
    context.check_classes(split)
    dataset = split.dataset
    if dataset.multi_label and self._ranks_classes(dataset.num_classes):
      return multi_label_lib.evaluate(context, split)

    def batch_means(
        params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
      logits, labels = context.predict(params, batch)['logits'], batch['label']
      mask, values = batch['mask'], {}
      if not self.real_labels:
        values['loss'] = context.loss(logits, labels)
      if dataset.multi_label:
        name = 'accuracy' if self.real_labels else 'precision_at_1'
        values[name] = metrics.precision_at_1(logits, labels)
        if self.real_labels:
          mask = mask * (labels > 0).any(axis=-1)
      else:
        values['accuracy'] = metrics.top_k_correct(logits, labels, k=1)
        if logits.shape[-1] > TOP_K:
          values[f'accuracy_top_{TOP_K}'] = metrics.top_k_correct(
              logits, labels, k=TOP_K)
      return {name: metrics.Mean.from_model_output(value, mask)
              for name, value in values.items()}

    return passes.mean(split, batch_means)
