"""Accuracy of the nearest neighbours (arXiv 1805.01978, section 3.4).

Each test image is compared with every training image by the cosine of their
features; the k nearest vote for their classes, each with a weight of
exp(cosine / temperature).
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from vit_jax import schema
from vit_jax import types
from vit_jax.evals import evaluator as evaluator_lib
from vit_jax.evals import features as features_lib

USES_HEAD = False
# Rows of a product of matrices: 32 MiB of cosines at once.
QUERIES, BANK = 1024, 8192


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
    cosines, labels = nearest(
        queries.values, bank.values, bank.labels, k=config.k, between=between)
    answers = vote(cosines, labels, temperature=config.temperature,
                   num_classes=train.num_classes)
    return evaluator_lib.Measured({
        'accuracy': float((answers == queries.labels).mean()),
        'examples': len(answers)})

  return run


def nearest(
    queries: Float[np.ndarray, 'queries width'],
    bank: Float[np.ndarray, 'bank width'],
    labels: Int[np.ndarray, 'bank'], *, k: int,
    between: evaluator_lib.Between = lambda: None,
) -> tuple[Float[np.ndarray, 'queries k'], Int[np.ndarray, 'queries k']]:
  """Returns cosines and labels of the k nearest, the nearest first.

  Of equally near ones the first in the bank comes first. Block by block: the
  whole matrix of cosines is never there.
  """
  blocks = [jnp.asarray(_unit(queries[i:i + QUERIES]))
            for i in range(0, len(queries), QUERIES)]
  best = [(jnp.full((len(q), k), -jnp.inf), jnp.full((len(q), k), -1))
          for q in blocks]
  for start in range(0, len(bank), BANK):
    part = slice(start, start + BANK)
    rows, names = jnp.asarray(_unit(bank[part])), jnp.asarray(labels[part])
    best = [_merge(q, rows, names, *b, k=k) for q, b in zip(blocks, best)]
    # Or the host would run ahead, and put the whole bank on the device.
    jax.block_until_ready(best)
    between()
  cosines, found = zip(*jax.device_get(best))
  return np.concatenate(cosines), np.concatenate(found)


def vote(
    cosines: Float[np.ndarray, 'queries k'],
    labels: Int[np.ndarray, 'queries k'], *,
    temperature: float, num_classes: int,
) -> Int[np.ndarray, 'queries']:
  """Returns the class with the most weight; of equal ones the lowest."""
  # The largest weight is 1: exp(1 / 0.01) would be beyond float32.
  weights = np.exp(
      (cosines.astype(np.float64) - cosines[:, :1]) / temperature)
  answers = []
  for start in range(0, len(labels), QUERIES):
    part = slice(start, start + QUERIES)
    votes = np.zeros((len(labels[part]), num_classes))
    np.add.at(
        votes, (np.arange(len(votes))[:, None], labels[part]), weights[part])
    answers.append(votes.argmax(axis=-1))
  return np.concatenate(answers)


def _unit(rows: Float[np.ndarray, 'rows width']):
  norms = np.linalg.norm(rows, axis=-1, keepdims=True)
  return rows / np.maximum(norms, 1e-12)


@functools.partial(jax.jit, static_argnames='k')
def _merge(
    queries: Float[Array, 'queries width'], bank: Float[Array, 'bank width'],
    labels: Int[Array, 'bank'], best: Float[Array, 'queries k'],
    best_labels: Int[Array, 'queries k'], *, k: int,
) -> tuple[Float[Array, 'queries k'], Int[Array, 'queries k']]:
  # In full float32: a TPU's default of bfloat16 would reorder neighbours.
  cosines = jnp.matmul(queries, bank.T, precision='highest')
  cosines = jnp.concatenate([best, cosines], axis=1)
  names = jnp.concatenate(
      [best_labels, jnp.broadcast_to(labels, (len(queries), len(labels)))],
      axis=1)
  top, places = jax.lax.top_k(cosines, k)
  return top, jnp.take_along_axis(names, places, axis=1)
