"""Accuracy of the nearest neighbours (arXiv 1805.01978, section 3.4).

Each test image is compared with every training image by the cosine of their
features; the k nearest vote for their classes, each with a weight of
exp(cosine / temperature).
"""

import dataclasses
from typing import Literal

from jaxtyping import Float, Int
import numpy as np

from vit_jax import nearest_neighbours
from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import features as features_lib

USES_HEAD = False
_VOTE_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class KnnConfig:
  """An entry of the section `evals`, for `name: 'knn'`.

  Attributes:
    name: always 'knn'.
    split: to measure on; see `ClassificationConfig`.
    train_split: the neighbours, none of them in `split`; all of it is kept on
      each host, 4 bytes a number: 3.9 GB for ImageNet and a width of 768.
    source: data set of both; '' is the one that is trained on.
    every: how often during training.
    batch_size: global.
    k: neighbours that vote.
    temperature: of their weights; the smaller, the more the nearest decide.
    feature: see `FewshotConfig`.
  """
  name: Literal['knn'] = 'knn'
  split: str = ''
  train_split: str = 'train'
  source: str = ''
  every: schema.Duration | None = None
  batch_size: int | None = None
  k: int = 20
  temperature: float = 0.07
  feature: features_lib.Feature = 'representation'

  def __post_init__(self):
    if self.k < 1 or self.temperature <= 0:
      raise ValueError(
          'k must be at least 1 and temperature positive, but are '
          f'{self.k} and {self.temperature}.')


def metrics_of(config: KnnConfig) -> dict[str, evaluator_lib.Mode]:
  """Returns the metrics, and whether high or low is good."""
  del config
  return {'accuracy': 'max'}


def build(
    config: KnnConfig, context: evaluator_lib.Context) -> evaluator_lib.Measure:
  """Wires the evaluator."""
  test, train = (
      context.open(split, config.source, batch_size=config.batch_size)
      for split in (config.split, config.train_split))
  of_train = features_lib.extract(context, train, config.feature)
  of_test = features_lib.extract(context, test, config.feature)
  features_lib.check_same_classes(context, train, test)
  if config.k > train.num_examples:
    raise ValueError(
        f'{context.where}.k is {config.k}, but {train.name} has only '
        f'{train.num_examples} examples.')

  def run(
      params: types.Params, between: evaluator_lib.Between,
  ) -> evaluator_lib.Measured:
    bank, queries = of_train(params, between), of_test(params, between)
    cosines, rows = nearest_neighbours.nearest(
        queries.values, bank.values, k=config.k, after_block=between)
    answers = predict(cosines, bank.labels[rows],
                      temperature=config.temperature,
                      num_classes=train.num_classes)
    return evaluator_lib.Measured({
        'accuracy': float((answers == queries.labels).mean()),
        'examples': len(answers)})

  return run


def predict(
    cosines: Float[np.ndarray, 'queries k'],
    labels: Int[np.ndarray, 'queries k'], *,
    temperature: float, num_classes: int,
) -> Int[np.ndarray, 'queries']:
  """Returns the class with the largest vote; ties go to the lowest class."""
  # Relative to the largest cosine: exp(1 / 0.01) would overflow float32.
  weights = np.exp(
      (cosines.astype(np.float64) - cosines[:, :1]) / temperature)
  # In blocks: votes of all queries for many classes would fill memory.
  return np.concatenate([
      nearest_neighbours.vote(
          labels[start:start + _VOTE_ROWS], weights[start:start + _VOTE_ROWS],
          num_classes=num_classes).argmax(axis=-1)
      for start in range(0, len(labels), _VOTE_ROWS)])
