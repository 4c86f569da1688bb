"""Accuracy of k nearest neighbours (arXiv 1805.01978, section 3.4).

Each test image is compared with all training images by the cosine of their
features. The k nearest ones vote with weights exp(cosine / temperature). The
spread of the features shows whether self-supervised training collapses.
"""

from collections.abc import Callable
import dataclasses
from typing import ClassVar, Literal

from jaxtyping import Float, Int
import numpy as np

from vit_jax import fields
from vit_jax import metrics
from vit_jax import nearest_neighbours
from vit_jax import types
from vit_jax.evals import evaluator
from vit_jax.evals import features as features_lib
from vit_jax.exceptions import UserError

_VOTE_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class KnnConfig(features_lib.FeatureEvaluatorConfig):
  """An entry of the section `evals` with `name: 'knn'`.

  Attributes:
    train_split: the neighbours; must not overlap with `split`. 'auto' is
      `train` if it has fewer than 50,000 images, else 'train[:10%]'. Each host
      keeps their features: 3.9 GB for ImageNet at width 768.
    k: neighbours that vote.
    temperature: divides cosines; lower values favour the nearest neighbours.
  """
  name: Literal['knn'] = 'knn'
  train_split: str = 'train'
  k: int = 20
  temperature: float = 0.07

  fit_field: ClassVar[str] = 'train_split'

  def __post_init__(self):
    fields.check_range(self, 'k', low=1)
    fields.check_range(self, 'temperature', above=0)

  def metrics(self) -> tuple[evaluator.Metric, ...]:
    return (metrics.ACCURACY, *features_lib.SPREAD)

  def build(self, context: evaluator.Context) -> evaluator.Evaluate:
    test = context.open(self)
    train = context.open(dataclasses.replace(self, split=self.train_split))
    extract_test = features_lib.extract(context, test, self.feature)
    extract_train = features_lib.extract(
        context, train, self.feature, test=test)
    if self.k > train.dataset.num_examples:
      raise UserError(
          f'{context.where}.k is {self.k}, but {train.dataset.title} has only '
          f'{train.dataset.num_examples} examples.')

    def run(
        params: types.Params, on_batch: evaluator.OnBatch) -> evaluator.Result:
      bank = extract_train(params, on_batch)
      queries = extract_test(params, on_batch)
      predictions = predict(
          queries.values, bank.values, bank.labels, k=self.k,
          temperature=self.temperature, after_block=on_batch)
      return evaluator.Result({
          'accuracy': float((predictions == queries.labels).mean()),
          **features_lib.checked_spread(context, bank.values),
          'examples': len(predictions)})

    return run


def predict(
    queries: Float[np.ndarray, 'queries width'],
    bank: Float[np.ndarray, 'bank width'], labels: Int[np.ndarray, 'bank'], *,
    k: int, temperature: float,
    after_block: Callable[[], None] = lambda: None,
) -> Int[np.ndarray, 'queries']:
  """Returns the classes with the largest votes; ties go to the lowest class.

  `after_block` is called after each block of the bank.
  """
  cosines, rows = nearest_neighbours.nearest(
      queries, bank, k=k, after_block=after_block)
  # Relative to the largest cosine: exp(1 / 0.01) would overflow float32.
  weights = np.exp((cosines.astype(np.float64) - cosines[:, :1]) / temperature)
  # In blocks: votes of all queries for many classes would fill memory.
  return np.concatenate([
      nearest_neighbours.vote(
          labels[rows[start:start + _VOTE_ROWS]],
          weights[start:start + _VOTE_ROWS],
          num_classes=int(labels.max()) + 1).argmax(axis=-1)
      for start in range(0, len(rows), _VOTE_ROWS)])
