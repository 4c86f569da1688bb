"""Mean average precision, for examples that have several labels."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import metrics
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

USES_HEAD = True
# Of a score and a label, on the host.
BYTES = 4 + 1


@dataclasses.dataclass(frozen=True)
class MultiLabelConfig:
  """An entry of the section `evals`, for `name: 'multi_label'`.

  `mean_average_precision` is the mean over the classes that have an example,
  each of equal weight, of the area under precision over recall, as
  scikit-learn's `average_precision_score` defines it.

  Attributes:
    name: always 'multi_label'.
    split: see `ClassificationConfig`, as for what follows.
    source: data set.
    every: how often during training.
    batch_size: global.
    max_gb: bound of the host's memory. To be exact, it keeps the score of every
      class of every example: 3.7 GB for 50,000 of 18,000 classes, and a fourth
      of that again for the labels.
  """
  name: Literal['multi_label'] = 'multi_label'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None
  max_gb: float = 16.0


def metrics_of(config: MultiLabelConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics, and whether high or low is good."""
  del config
  return {'mean_average_precision': 'max', 'precision_at_1': 'max'}


def build(
    config: MultiLabelConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  split = context.open_for_head(
      config.split, config.source, batch_size=config.batch_size)
  gigabytes = split.num_examples * split.num_classes * BYTES / 1e9
  if gigabytes > config.max_gb:
    raise ValueError(
        f'{context.where}: the scores of {split.num_examples:,} examples of '
        f'{split.name} for {split.num_classes:,} classes take '
        f'{gigabytes:.1f} GB on the host, more than max_gb {config.max_gb:g}. '
        'Take a part of the split, such as "test[:10%]", or raise max_gb.')

  def values(
      params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
    logits, labels = context.predict(params, batch)['logits'], batch['label']
    if not split.multi_label:
      labels = jax.nn.one_hot(labels, split.num_classes)
    return {'score': logits.astype(jnp.float32), 'label': labels > 0,
            'precision_at_1': metrics.precision_at_1(logits, labels)}

  over = split_means.collect(split, values)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    found = over(params, between)
    per_class = np.array([
        metrics.average_precision(scores, labels)
        for scores, labels in zip(found['score'].T, found['label'].T)])
    measured = ~np.isnan(per_class)
    # A class without examples has none; scores that are NaN must show.
    usable = measured | found['label'].any(axis=0)
    return evaluator_lib.Measured(
        {'mean_average_precision':
         float(per_class[usable].mean()) if usable.any() else float('nan'),
         'precision_at_1': float(
             found['precision_at_1'].astype(np.float64).mean()),
         'examples': len(found['score'])},
        {'average_precision': per_class}, split.class_names)

  return run
