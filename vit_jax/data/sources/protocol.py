"""Interfaces of data sources: random access to the examples of one split.

Sources hold paths and small tables only: Grain sends them to worker processes
with cloudpickle, and opening one reads no image.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import typing
from typing import Any, Literal, Protocol

from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax import classes as classes_lib
from vit_jax import registry
from vit_jax.exceptions import UserError

SEGMENTATION = 'segmentation'  # Key of masks; `mask` already marks padding.
TEACHER = 'teacher_outputs'  # Start of the names of fields that hold them.
_SHOWN = 20  # Folders without images in messages.
NO_IMAGE_LABELS = 'Pixels have labels, images have none.'


class Unconventional(UserError):
  """Data that do not follow the conventions of docs/data.md."""


class NoLabels(Unconventional):
  """Images have no labels, or none that a classifier could learn."""


@typing.runtime_checkable
class Source(Protocol):
  """One split, by index."""

  def __len__(self) -> int:
    ...

  def __getitem__(self, index: int) -> dict[str, Any]:
    """Returns {'image': file content or uint8 pixels, 'label': ...}.

    If there are masks, also `segmentation`: file content or [height, width].
    """

  def label(self, index: int) -> Any:
    """Returns a class index, a list of them, or float32 [targets]."""
    return self[index]['label']

  def labels_of(self, indices: Integer[np.ndarray, '_']) -> Iterable[Any]:
    """Returns the labels of several examples, in increasing order."""
    return map(self.label, indices.tolist())

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    """Returns the hashes of the groups of examples; None without groups.

    A split with groups (`data.group`) has the examples of each one together.
    """
    del indices
    return None

  def key(self, index: int) -> str:
    """Returns a name of the example that is the same on every machine."""

  @property
  def numbering(self) -> tuple[str, int] | None:
    """The name and first number of keys that are a name and a number.

    Keys of 300 million examples can then be hashed in seconds.
    """
    return None

  @property
  def fingerprint(self) -> str:
    """Hash of the names and sizes of files whose examples have only numbers."""
    return ''


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Metadata:
  """Facts that all splits of a dataset share.

  Attributes:
    num_classes: number of classes or, in regression, of targets.
    class_names: in the order of class indices, where known.
    multi_label: labels are lists of class indices of any length.
    eval_split: the split that '' selects: that of published results or, for
      your own files, that of `split_strings.choose_eval_split`.
    targets: names of regression targets. If not empty, labels are float32
      [targets], NaN where missing.
    description: interpretation of the files; '' if there is no ambiguity.
    held_out: whether the split besides `train` is a part of data without
      splits (`data.holdout`).
    unlabelled: splits without labels; in tables, they are not in `splits`.
    no_labels: why no split has labels, which are then all 0; '' if some have.
    without_images: class folders without an image that can be read, each with
      its other files: 'train/cat (12 .heic)'.
    planned: whether only sizes are known (`registry.PLANNED`).
    fields: further arrays of each example, by name; each has `shape`,
      `np_dtype` and `doc`, as a TFDS feature.
  """
  num_classes: int
  class_names: tuple[str, ...] | None = None
  multi_label: bool = False
  eval_split: str = 'test'
  targets: tuple[str, ...] = ()
  description: str = ''
  held_out: bool = False
  unlabelled: tuple[str, ...] = ()
  no_labels: str = ''
  without_images: tuple[str, ...] = ()
  planned: bool = False
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def kind(self) -> Literal['none', 'regression', 'multi', 'single']:
    """Kind of the labels."""
    if self.no_labels:
      return 'none'
    if self.targets:
      return 'regression'
    return 'multi' if self.multi_label else 'single'

  def has_field(self, name: str, field: Any) -> bool:
    """Whether it has a field with the same description."""
    return name in self.fields and self.fields[name].doc.desc == field.doc.desc

  @property
  def names_or_indices(self) -> tuple[str, ...]:
    """Names of the classes; their indices as text where names are unknown."""
    return self.class_names or tuple(map(str, range(self.num_classes)))

  @property
  def without_images_note(self) -> str:
    """The part of a description that names `without_images`, or ''."""
    return describe_without_images(self.without_images)

  def as_classes(self, owner: str, source: str) -> classes_lib.Classes:
    """Returns the names of the classes or regression targets, in their order.

    Messages call them those of `owner`, and name the dataset `source`.
    """
    return classes_lib.Classes(
        owner, self.num_classes, self.targets or self.class_names or (), source,
        ordered=self.kind in ('regression', 'none'))


@dataclasses.dataclass(frozen=True)
class DatasetSplits(Metadata):
  """A dataset with all its splits: sources by name."""
  splits: Mapping[str, Source]


def suggest(function: str, *arguments: Any, **settings: Any) -> str:
  """Returns a text of the leaf of suggestions, or '' if it was deleted."""
  suggestions = registry.optional(registry.SUGGESTIONS)
  return getattr(suggestions, function)(
      *arguments, **settings) if suggestions else ''


def describe_unlabelled(split: str) -> str:
  """Returns the part of a description that names a split without labels."""
  return f'{split} has no labels and is ignored'


def describe_without_images(folders: Sequence[str]) -> str:
  """Returns the part of a description that names `without_images`, or ''."""
  return f'no image that can be read in {", ".join(folders[:_SHOWN])}' * bool(
      folders) + ', ...' * (len(folders) > _SHOWN)
