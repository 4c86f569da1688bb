"""Which examples an epoch draws where classes are to be seen more evenly.

  natural    every example once: a class as often as it occurs
  sqrt       a class in proportion to the square root of its examples
  balanced   every class equally often

An epoch is as many draws as there are examples, whatever the sampling; each
class has a fixed number of them, its quota. Within a class the draws go through
all of its examples in a random order before one comes again, and on into the
next epoch where they stopped: of two examples of a class, neither is ever drawn
twice more than the other.

Draw i is computed from the seed and i alone, as everything in `pipeline`. What
is kept is an index of the examples by class, 8 bytes each, and no image: labels
are read once, when a run begins.
"""

from collections.abc import Sequence
import dataclasses
from typing import Literal

import grain
from jaxtyping import Float64, Int64
import numpy as np

from vit_jax.data.sources import protocol

Sampling = Literal['natural', 'balanced', 'sqrt']

# Up to so many, Grain's order without a table takes longer than the table does:
# 1.2 ms of 25 (measured 2026-11-21, 2-core Xeon), 13 microseconds of 2,500.
_SMALL = 2048
# A class's share of the draws goes with this power of its examples.
_POWERS = {'balanced': 0.0, 'sqrt': 0.5}


def class_labels(
    source: protocol.Source, *, num_classes: int, name: str, asked: str,
) -> Int64[np.ndarray, 'examples']:
  """Returns the class of every example; reads each label once.

  Args:
    source: the examples.
    num_classes: of the data set.
    name: of the split, for messages.
    asked: the setting that needs it, for messages.

  Raises:
    ValueError: if labels are not one class each.
  """
  labels = np.empty(len(source), np.int64)
  for index in range(len(source)):
    label = source.label(index)
    if np.ndim(label):
      raise ValueError(
          f'{asked} needs one class for each image, but {name} has several, or '
          'numbers to predict. Leave it out.')
    labels[index] = label
  wrong = (labels < 0) | (labels >= num_classes)
  if wrong.any():
    index = int(np.flatnonzero(wrong)[0])
    raise ValueError(
        f'Example {index} of {name} ({source.key(index)}) is of class '
        f'{labels[index]}, but there are {num_classes:,}, numbered from 0.')
  return labels


def quotas(
    counts: Int64[np.ndarray, 'classes'], sampling: Sampling,
) -> Int64[np.ndarray, 'classes']:
  """Returns how often an epoch draws each class; they sum to all examples.

  Shares are rounded so that the sum is exact: down, and up for those that lose
  most by it. A class without examples has none.
  """
  present = counts > 0
  power = 1.0 if sampling == 'natural' else _POWERS[sampling]
  weights: Float64[np.ndarray, 'classes'] = np.where(
      present, np.maximum(counts, 1).astype(np.float64)**power, 0)
  shares = weights / weights.sum() * counts.sum()
  whole = np.floor(shares).astype(np.int64)
  missing = int(counts.sum() - whole.sum())
  # Of equal ones the first class: the same on every machine.
  order = np.argsort(-(shares - whole), kind='stable')
  whole[order[:missing]] += 1
  return whole


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
  """Draw i of the endless stream, as the number of an example.

  Attributes:
    by_class: numbers of the examples, class after class.
    starts: where each class begins in it, and where the last ends.
    ends: of the places of an epoch, that after the last of each class.
    seed: of the order within a class.
  """
  by_class: Int64[np.ndarray, 'examples']
  starts: Int64[np.ndarray, 'classes_and_one']
  ends: Int64[np.ndarray, 'classes']
  seed: int

  def __call__(self, draw: int, place: int) -> int:
    """Returns the example of a draw.

    Args:
      draw: its number, from 0 on without end.
      place: of the epoch, shuffled: which class, and which of its draws.
    """
    epoch = draw // len(self.by_class)
    label = int(np.searchsorted(self.ends, place, side='right'))
    first = int(self.ends[label - 1]) if label else 0
    quota = int(self.ends[label]) - first
    start = int(self.starts[label])
    count = int(self.starts[label + 1]) - start
    again, rank = divmod(epoch * quota + place - first, count)
    # An order of its own for each pass of each class.
    return int(self.by_class[start + _shuffled(
        rank, count, np.random.SeedSequence([self.seed, label, again]))])


def _shuffled(rank: int, count: int, seed: np.random.SeedSequence) -> int:
  """Returns what stands at `rank` in a random order of `count` numbers."""
  if count <= _SMALL:
    return int(np.random.default_rng(seed).permutation(count)[rank])
  return grain.experimental.index_shuffle(
      rank, max_index=count - 1, seed=int(seed.generate_state(1)[0]), rounds=4)


def build(
    labels: Int64[np.ndarray, 'examples'], *, num_classes: int,
    sampling: Sampling, seed: int,
) -> Draws:
  """Returns the draws of examples with these labels."""
  counts = np.bincount(labels, minlength=num_classes)
  return Draws(
      by_class=np.argsort(labels, kind='stable'),
      starts=np.concatenate([[0], np.cumsum(counts)]),
      ends=np.cumsum(quotas(counts, sampling)), seed=seed)


def check(sampling: Sampling, *, multi_label: bool, targets: Sequence[str],
          name: str) -> None:
  """Raises where there is no one class for each image to sample by."""
  if sampling != 'natural' and (multi_label or targets):
    what = 'are numbers to predict' if targets else 'are several for an image'
    raise ValueError(
        f'data.sampling is {sampling!r}, but the labels of {name} {what}: '
        'there is no class to draw evenly. Use --config.data.sampling=natural.')
