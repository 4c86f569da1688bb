"""Loss and accuracy over a split, each example counted exactly once."""

import dataclasses
from typing import Literal

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

TOP_K = 5
USES_HEAD = True


@dataclasses.dataclass(frozen=True)
class ClassificationConfig:
  """An entry of the section `evals`, for `name: 'classification'`.

  Attributes:
    name: always 'classification'.
    split: TFDS split string, for example 'train[98%:]'; '' is the split that
      the data set's results are published on, such as 'test'.
    source: data set; '' is the one that is trained on.
    every: how often during training; None is at its end alone.
    batch_size: global; None is the training's, or a part of it where that is
      computed in parts.
    real_labels: the file real.json of ImageNet's re-assessed labels, for its
      50,000 images of validation (arXiv 2006.07159; https://github.com/
      google-research/reassessed-imagenet). `accuracy` is then the share of
      images whose answer is among their labels; images without any are left
      out, as its authors do.
    leave_out_unlabelled: of data with several labels an image, leaves out those
      that have none; else these count as wrong.
  """
  name: Literal['classification'] = 'classification'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None
  real_labels: str = ''
  leave_out_unlabelled: bool = False


def metrics_of(config: ClassificationConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics that there may be, and whether high or low is good."""
  if config.real_labels:
    return {'accuracy': 'max'}
  return {'loss': 'min', 'accuracy': 'max', f'accuracy_top_{TOP_K}': 'max',
          'precision_at_1': 'max'}


def measured(*, multi_label: bool, num_classes: int) -> tuple[str, ...]:
  """Returns the metrics of data of this kind; the usual one comes last."""
  if multi_label:
    return 'loss', 'precision_at_1'
  top_k = (f'accuracy_top_{TOP_K}',) * (num_classes > TOP_K)
  return 'loss', *top_k, 'accuracy'


def build(
    config: ClassificationConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  split = context.open_for_head(
      config.split, config.source, batch_size=config.batch_size,
      real_labels=config.real_labels)
  leave_out = config.leave_out_unlabelled or bool(config.real_labels)

  def measure(
      params: types.Params, batch: types.Batch) -> dict[str, metrics.Mean]:
    logits, labels = context.predict(params, batch)['logits'], batch['label']
    mask, values = batch['mask'], {}
    if not config.real_labels:
      values['loss'] = context.loss(logits, labels)
    if split.multi_label:
      name = 'accuracy' if config.real_labels else 'precision_at_1'
      values[name] = metrics.precision_at_1(logits, labels)
      if leave_out:
        mask = mask * (labels > 0).any(axis=-1)
    else:
      values['accuracy'] = metrics.top_k_correct(logits, labels, k=1)
      if logits.shape[-1] > TOP_K:
        values[f'accuracy_top_{TOP_K}'] = metrics.top_k_correct(
            logits, labels, k=TOP_K)
    return {name: metrics.Mean.from_model_output(value, mask)
            for name, value in values.items()}

  over = split_means.mean(split, measure)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    total = over(params, between)
    return evaluator_lib.Measured({
        **{name: float(value.compute()) for name, value in total.items()},
        'examples': int(next(iter(total.values())).count)})

  return run
