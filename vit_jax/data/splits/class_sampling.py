"""Class-balanced sampling of training examples, and k examples per class.

  natural    every example once per epoch
  sqrt       each class in proportion to the square root of its examples
  balanced   every class equally often

Draws of 'sqrt' and 'balanced' are independent, with replacement, as in other
libraries. Draw i is a pure function of (seed, i).
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Literal

from jaxtyping import Float64, Int64, UInt
import numpy as np

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets

Sampling = Literal['natural', 'balanced', 'sqrt']

# A class is drawn in proportion to this power of its number of examples.
_POWERS = {'natural': 1.0, 'sqrt': 0.5, 'balanced': 0.0}


def class_labels(
    source: protocol.Source, *, num_classes: int, name: str, setting: str,
) -> Int64[np.ndarray, 'examples']:
  """Returns the class of every example; reads every label, but no image.

  `setting` is the config key that needs classes, for messages.

  Raises:
    ValueError: if an example does not have exactly one valid class.
  """
  def single(label: Any) -> int:
    if np.ndim(label):
      raise ValueError(
          f'{setting} needs one class per image, but {name} has several labels '
          'or regression targets. Leave it out.')
    return int(label)

  labels = np.fromiter(
      map(single, split_strings.labels(source)), np.int64, len(source))
  invalid = (labels < 0) | (labels >= num_classes)
  if invalid.any():
    index = int(np.flatnonzero(invalid)[0])
    raise ValueError(
        f'Example {index} of {name} ({source.key(index)}) has class '
        f'{labels[index]}, but there are {num_classes:,}, numbered from 0.')
  return labels


class TooFewExamples(ValueError):
  """Some classes have fewer examples than requested.

  Attributes:
    classes: number of examples of each such class.
  """

  def __init__(self, message: str, classes: Mapping[int, int]):
    super().__init__(message)
    self.classes = dict(classes)


def draw_per_class(
    source: protocol.Source, count: int, *, num_classes: int, name: str,
    seeds: Sequence[int] = (0,), allow_fewer: bool = False,
) -> tuple[split_strings.Subset, Int64[np.ndarray, 'seeds examples']]:
  """Draws `count` examples of each class by a hash of seed and key.

  With groups, by a hash of seed and group, then of seed and key. A smaller draw
  is part of a larger one. Reads every label once. With `allow_fewer`, smaller
  classes are kept whole.

  Returns:
    The union of the draws of all seeds; and for each seed the rank of each
    example within its class, from 0, or -1 for examples of other draws.

  Raises:
    ValueError: if a class has fewer (TooFewExamples), or an example several
      labels.
  """
  labels = class_labels(
      source, num_classes=num_classes, name=name, setting='examples_per_class')
  few = {label: number for label, number in enumerate(
      np.bincount(labels).tolist()) if 0 < number < count}
  if few and not allow_fewer:
    raise TooFewExamples(
        f'examples_per_class is {count}, but {name} has fewer of {len(few):,} '
        'classes (class: examples): '
        f'{files.shorten((f"{k}: {v}" for k, v in few.items()), 10)}.', few)
  ranks = np.full((len(seeds), len(source)), -1)
  groups = split_strings.groups(source)
  for row, seed in zip(ranks, seeds):
    salt = f'{seed} ' if seed else ''
    hashes = split_strings.stable_hashes(
        (salt + source.key(i) for i in range(len(source))), len(source))
    of_group = () if groups is None else (
        subsets.hash_numbers(str(seed), groups),)
    order = np.lexsort((hashes, *of_group, labels))
    rank = np.arange(len(labels)) - np.searchsorted(
        labels[order], labels[order])
    row[order] = np.where(rank < count, rank, -1)
  chosen = np.any(ranks >= 0, axis=0)
  return split_strings.Subset.where(source, chosen), ranks[:, chosen]


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
    labels: Int64[np.ndarray, 'examples'], *, sampling: Sampling, seed: int,
) -> ClassSampler:
  """Returns the sampler for examples with these labels."""
  counts = np.bincount(labels)
  weights = np.where(counts, counts.astype(np.float64)**_POWERS[sampling], 0)
  return ClassSampler(
      columns_lib.compact(np.argsort(labels, kind='stable')),
      np.append(0, np.cumsum(counts)), np.cumsum(weights), seed)
