"""Which class is taken for which, and the accuracy of each."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Int
import numpy as np

from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import split_means

USES_HEAD = True
# A count for each pair of classes is 0.8 GB for these.
MAX_CLASSES = 10_000


@dataclasses.dataclass(frozen=True)
class ConfusionConfig:
  """An entry of the section `evals`, for `name: 'confusion'`.

  Attributes:
    name: always 'confusion'.
    split: see `ClassificationConfig`, as for what follows.
    source: data set.
    every: how often during training.
    batch_size: global.
  """
  name: Literal['confusion'] = 'confusion'
  split: str = ''
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None


def metrics_of(config: ConfusionConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics, and whether high or low is good."""
  del config
  return {'accuracy': 'max', 'accuracy_class_mean': 'max',
          'accuracy_class_worst': 'max'}


def build(
    config: ConfusionConfig, context: evaluator_lib.Context,
) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  split = context.open_for_head(
      config.split, config.source, batch_size=config.batch_size)
  if split.multi_label:
    raise ValueError(
        f'{context.where} needs one label per image, but {split.name} has '
        'several.')
  if split.num_classes > MAX_CLASSES:
    raise ValueError(
        f'{context.where}: a confusion matrix of {split.num_classes:,} classes '
        f'is too large; the most are {MAX_CLASSES:,}.')

  def values(
      params: types.Params, batch: types.Batch) -> dict[str, jax.Array]:
    logits = context.predict(params, batch)['logits']
    return {'label': batch['label'], 'answer': logits.argmax(axis=-1),
            'is_nan': jnp.isnan(logits).any(axis=-1)}

  over = split_means.collect(split, values)

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    found = over(params, between)
    if found['is_nan'].any():
      raise ValueError(
          f'{context.where}: {int(found["is_nan"].sum())} of the examples of '
          f'{split.name} have logits that are NaN: they are of no class.')
    counts = confusion_matrix(
        found['label'], found['answer'], num_classes=split.num_classes)
    right, total = np.diag(counts), counts.sum(axis=1)
    with np.errstate(invalid='ignore'):
      accuracy = right / total  # NaN where a class has no example.
    seen = accuracy[total > 0]
    return evaluator_lib.Measured(
        {'accuracy': float(right.sum() / total.sum()),
         'accuracy_class_mean': float(seen.mean()),
         'accuracy_class_worst': float(seen.min()),
         'examples': int(total.sum())},
        {'confusion': counts, 'class_accuracy': accuracy}, split.class_names)

  return run


def confusion_matrix(
    labels: Int[np.ndarray, 'examples'], answers: Int[np.ndarray, 'examples'],
    *, num_classes: int,
) -> Int[np.ndarray, 'classes classes']:
  """Returns how often an image of class [row] was taken for [column]."""
  pairs = labels.astype(np.int64) * num_classes + answers
  return np.bincount(pairs, minlength=num_classes**2).reshape(
      num_classes, num_classes)
