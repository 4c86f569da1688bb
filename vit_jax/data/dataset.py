"""An open dataset: one split, and how its classes and masks are read."""

import contextlib
import dataclasses
from typing import Any

import numpy as np

from vit_jax import classes as classes_lib
from vit_jax import exceptions
from vit_jax.data import renumbered
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets
from vit_jax.exceptions import UserError


class Cache(dict[int, dict[str, Any]]):
  """Decoded examples by index, before augmentation; never evicts.

  A copy in another process starts empty.
  """
  num_bytes = 0  # Size of the pixels. Threads may count an example twice.

  def __reduce__(self):
    return Cache, ()


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(protocol.Metadata):
  """An open split: metadata, and random access to undecoded examples.

  Attributes:
    name: of the dataset, for messages: a source, or several.
    split: the split string.
    source: `source[i]` is {'image': bytes | uint8 array, 'label': int | list}.
    excluded: summary of `data.exclude`; '' if it is not set.
    masks: whether batches contain the segmentation masks; see `registry.MASKS`.
    ignored: value of mask pixels without a class if the classes are those of
      the masks, which are then checked; it is read as 255.
    splits: names of all splits.
    cache: decoded images, so that small datasets are decoded once.
  """
  name: str
  split: str
  source: protocol.Source
  excluded: str = ''
  masks: bool = False
  ignored: int | None = None
  splits: tuple[str, ...] = ()
  # Not copied by `dataclasses.replace`, which may change the indices.
  cache: Cache = dataclasses.field(init=False, default_factory=Cache)

  @property
  def num_examples(self) -> int:
    return len(self.source)

  @property
  def title(self) -> str:
    """Dataset and split, for messages."""
    return f'{self.name} {self.split}'

  @property
  def classes(self) -> classes_lib.Classes:
    """Names of the classes or regression targets, with their order."""
    return self.as_classes('the data', self.name)

  @property
  def is_unlabelled(self) -> bool:
    """Whether its images have no labels."""
    return bool(self.no_labels) or bool(
        {*split_strings.names(self.split)} & {*self.unlabelled})

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[index]

  def naming(
      self, index: int, *, kind: type[UserError] = UserError,
  ) -> contextlib.AbstractContextManager[None]:
    """Adds the example to errors, because Grain does not.

    Errors of memory or of the file system, other than a missing file, become a
    plain UserError, all others a `kind`.
    """
    def rewrite(error: Exception) -> UserError:
      raised = (UserError if isinstance(error, (OSError, MemoryError))
                and not isinstance(error, FileNotFoundError) else kind)
      text = str(error) if isinstance(error, (OSError, ValueError)) else (
          f'{type(error).__name__}: {error}')
      return raised(
          f'Example {index} of {self.name}, split {self.split!r} '
          f'({self.source.key(index)}): {text}')

    return exceptions.replaced_by(rewrite)

  def overlaps(self, other: 'Dataset') -> bool:
    """Whether two selections of a dataset share an example, by its key.

    Keys of numbered sources include the dataset's name; keys of a folder are
    relative to its path. Data published under two names counts as different.
    """
    # Most pairs differ in these names: no key of 300 million is hashed.
    names = [{(leaf.numbering or '?')[0] for leaf, _ in split_strings.leaves(
        one.source, np.zeros(0, np.int64))} for one in (self, other)]
    if self.planned or names[0].isdisjoint(names[1]):
      return False
    ours, theirs = (
        subsets.hash_keys(
            one.source, prefix=files.identity(one.name) + '/')
        for one in (self, other))
    return bool(np.isin(ours, theirs).any())


def match_classes(
    dataset: Dataset, classes: classes_lib.Classes, *, subset: bool = False,
) -> tuple[Dataset, str]:
  """Returns a dataset numbered as `classes`, and a line to print.

  Raises:
    UserError: if they do not fit; see `classes.match`.
  """
  if dataset.no_labels and not classes.names:
    return dataset, ''
  numbers, line = classes_lib.match(dataset.classes, classes, subset=subset)
  if numbers:
    dataset = dataclasses.replace(
        dataset, num_classes=classes.count, class_names=tuple(classes.names),
        source=renumbered.renumber(dataset.source, numbers))
  return dataset, line


def with_classes(
    dataset: Dataset, classes: classes_lib.Classes, *, subset: bool = False,
) -> Dataset:
  """Returns a dataset numbered as `classes` or, unless they fit, as it is.

  Evaluators that use the head raise the error; others need not.
  """
  with contextlib.suppress(UserError):
    return match_classes(dataset, classes, subset=subset)[0]
  return dataset
