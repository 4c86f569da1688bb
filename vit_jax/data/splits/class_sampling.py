"""Class-balanced sampling of training examples, and k examples per class.

  natural    every example once per epoch
  sqrt       each class in proportion to the square root of its examples
  balanced   every class equally often

An epoch always has as many draws as there are examples; each class has a fixed
quota of them. Within a class, the draws follow random permutations of its
examples that continue across epochs. Draw i is a pure function of (seed, i).
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Literal

import grain
from jaxtyping import Float64, Int64
import numpy as np

from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

Sampling = Literal['natural', 'balanced', 'sqrt']

# Up to this size NumPy's permutation is faster than Grain's index shuffle
# (measured 2026-11-21 on a 2-core Xeon).
_SMALL = 2048
# Draws of a class are proportional to this power of its number of examples.
_POWERS = {'natural': 1.0, 'balanced': 0.0, 'sqrt': 0.5}


def class_labels(
    source: protocol.Source, *, num_classes: int, name: str, setting: str,
) -> Int64[np.ndarray, 'examples']:
  """Returns the class of every example; reads every label, but no image.

  `setting` is the config key that needs classes, for messages.

  Raises:
    ValueError: if an example does not have exactly one valid class.
  """
  labels = np.empty(len(source), np.int64)
  for index in range(len(source)):
    label = source.label(index)
    if np.ndim(label):
      raise ValueError(
          f'{setting} needs one class per image, but {name} has several labels '
          'or regression targets. Leave it out.')
    labels[index] = label
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

  A smaller draw is part of a larger one. Reads every label once. With
  `allow_fewer`, smaller classes are kept whole.

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
  for row, seed in zip(ranks, seeds):
    salt = f'{seed} ' if seed else ''
    hashes = np.fromiter(
        (split_strings.stable_hash(salt + source.key(i))
         for i in range(len(source))), np.uint64, len(source))
    order = np.lexsort((hashes, labels))
    rank = np.arange(len(labels)) - np.searchsorted(
        labels[order], labels[order])
    row[order] = np.where(rank < count, rank, -1)
  chosen = np.any(ranks >= 0, axis=0)
  return split_strings.Subset.where(source, chosen), ranks[:, chosen]


def quotas(
    counts: Int64[np.ndarray, 'classes'], sampling: Sampling,
) -> Int64[np.ndarray, 'classes']:
  """Returns the draws of each class per epoch; they sum to `counts.sum()`.

  Quotas are rounded by the largest remainder method.
  """
  weights: Float64[np.ndarray, 'classes'] = np.where(
      counts > 0, np.maximum(counts, 1).astype(np.float64)**_POWERS[sampling],
      0)
  shares = weights / weights.sum() * counts.sum()
  rounded = np.floor(shares).astype(np.int64)
  missing = int(counts.sum() - rounded.sum())
  order = np.argsort(-(shares - rounded), kind='stable')
  rounded[order[:missing]] += 1
  return rounded


@dataclasses.dataclass(frozen=True, eq=False)
class ClassSampler:
  """Maps draw i of the endless stream to the index of an example.

  Attributes:
    by_class: indices of the examples, sorted by class.
    starts: start of each class in `by_class`, and the total.
    ends: cumulative quotas.
    seed: seed of the permutations within classes.
  """
  by_class: Int64[np.ndarray, 'examples']
  starts: Int64[np.ndarray, 'classes_and_one']
  ends: Int64[np.ndarray, 'classes']
  seed: int

  def __call__(self, draw: int, place: int) -> int:
    """Returns the index of an example; draws are numbered from 0.

    `place`, its shuffled position in the epoch, selects the class.
    """
    epoch = draw // len(self.by_class)
    label = int(np.searchsorted(self.ends, place, side='right'))
    first = int(self.ends[label - 1]) if label else 0
    quota = int(self.ends[label]) - first
    start = int(self.starts[label])
    count = int(self.starts[label + 1]) - start
    repeat, rank = divmod(epoch * quota + place - first, count)
    seed = np.random.SeedSequence([self.seed, label, repeat])
    return int(self.by_class[start + _permuted(rank, count, seed)])


def _permuted(rank: int, count: int, seed: np.random.SeedSequence) -> int:
  """Returns element `rank` of a random permutation of `count` numbers."""
  if count <= _SMALL:
    return int(np.random.default_rng(seed).permutation(count)[rank])
  return grain.experimental.index_shuffle(
      rank, max_index=count - 1, seed=int(seed.generate_state(1)[0]), rounds=4)


def build(
    labels: Int64[np.ndarray, 'examples'], *, num_classes: int,
    sampling: Sampling, seed: int,
) -> ClassSampler:
  """Returns the sampler for examples with these labels."""
  counts = np.bincount(labels, minlength=num_classes)
  return ClassSampler(
      by_class=np.argsort(labels, kind='stable'),
      starts=np.concatenate([[0], np.cumsum(counts)]),
      ends=np.cumsum(quotas(counts, sampling)), seed=seed)
