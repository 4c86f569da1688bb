"""The classes of all examples, and k examples per class."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Literal

from jaxtyping import Int64
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import files
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets
from vit_jax.exceptions import UserError

Sampling = Literal['natural', 'balanced', 'sqrt']  # `data.sampling`.


def class_labels(
    dataset: dataset_lib.Dataset, *, setting: str,
) -> Int64[np.ndarray, 'examples']:
  """Returns the class of every example; reads every label, but no image.

  `setting` is the config key that needs classes, for messages.

  Raises:
    UserError: if an example does not have exactly one valid class.
  """
  def single(label: Any) -> int:
    if np.ndim(label):
      raise UserError(
          f'{setting} needs one class per image, but {dataset.title} has '
          'several labels or regression targets. Leave it out.')
    return int(label)

  labels = np.fromiter(map(
      single, split_strings.labels(dataset.source)), np.int64, len(dataset))
  invalid = (labels < 0) | (labels >= dataset.num_classes)
  if invalid.any():
    index = int(np.flatnonzero(invalid)[0])
    with dataset.naming(index):
      raise UserError(
          f'it has the class {labels[index]}, but there are '
          f'{dataset.num_classes:,}, numbered from 0.')
  return labels


class TooFewExamples(UserError):
  """Some classes have fewer examples than requested.

  Attributes:
    classes: number of examples of each such class.
  """

  def __init__(self, message: str, classes: Mapping[int, int]):
    super().__init__(message)
    self.classes = dict(classes)


def draw_per_class(
    dataset: dataset_lib.Dataset, count: int, *, seeds: Sequence[int] = (0,),
    allow_fewer: bool = False,
) -> tuple[dataset_lib.Dataset, Int64[np.ndarray, 'seeds examples']]:
  """Draws `count` examples of each class by a hash of seed and key.

  With groups, by a hash of seed and group, then of seed and key. A smaller draw
  is part of a larger one. Reads every label once. With `allow_fewer`, smaller
  classes are kept whole.

  Returns:
    The union of the draws of all seeds; and for each seed the rank of each
    example within its class, from 0, or -1 for examples of other draws.

  Raises:
    UserError: if a class has fewer (TooFewExamples), or an example several
      labels.
  """
  source = dataset.source
  labels = class_labels(dataset, setting='examples_per_class')
  few = {label: number for label, number in enumerate(
      np.bincount(labels).tolist()) if 0 < number < count}
  if few and not allow_fewer:
    raise TooFewExamples(
        f'examples_per_class is {count}, but {dataset.title} has fewer of '
        f'{len(few):,} classes (class: examples): '
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
  return dataclasses.replace(dataset, source=split_strings.Subset.where(
      source, chosen)), ranks[:, chosen]
