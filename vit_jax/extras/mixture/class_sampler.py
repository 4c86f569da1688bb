"""Class-balanced sampling of training examples (`data.sampling`).

  natural    every example once per epoch
  sqrt       each class in proportion to the square root of its examples
  balanced   every class equally often

Draws of 'sqrt' and 'balanced' are independent, with replacement, as in other
libraries. Draw i is a pure function of (seed, i).
"""

import dataclasses
from typing import Literal

from jaxtyping import Float64, Int64, UInt
import numpy as np

from vit_jax.data.sources import columns as columns_lib

# A class is drawn in proportion to this power of its number of examples.
_POWERS = {'sqrt': 0.5, 'balanced': 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class ClassSampler:
  """Maps draw i of the endless stream to the index of an example.

  Attributes:
    examples: indices of the examples, ordered by class.
    bounds: where each class begins and ends in `examples`.
    cumulative: sums of the probabilities of the classes.
    seed: seed of the draws.
  """
  examples: UInt[np.ndarray, 'examples']
  bounds: Int64[np.ndarray, 'bounds']
  cumulative: Float64[np.ndarray, 'classes']
  seed: int

  def __call__(self, draw: int, shuffled: int) -> int:
    """Returns the index of an example, instead of that of a shuffled epoch."""
    del shuffled
    rng = np.random.default_rng([self.seed, draw])
    label = np.searchsorted(
        self.cumulative, rng.random() * self.cumulative[-1], side='right')
    return int(self.examples[rng.integers(*self.bounds[label:label + 2])])


def build(
    labels: Int64[np.ndarray, 'examples'], *,
    sampling: Literal['sqrt', 'balanced'], seed: int,
) -> ClassSampler:
  """Returns the sampler for examples with these labels."""
  counts = np.bincount(labels)
  weights = np.where(counts, counts.astype(np.float64)**_POWERS[sampling], 0)
  return ClassSampler(
      columns_lib.compact(np.argsort(labels, kind='stable')),
      np.append(0, np.cumsum(counts)), np.cumsum(weights), seed)
