"""What a source of examples is: random access to one split of one data set.

A source knows its length, gives example i as {'image': bytes of a file or
uint8 pixels, 'label': class index, list of them, or numbers to predict}, the
label alone (without decoding anything), and a key that names the example in
messages and is the same on every machine. Sources hold paths and small tables
only: they travel to worker processes, and opening one reads no image.
"""

from collections.abc import Mapping
import dataclasses
import typing
from typing import Any, Protocol


@typing.runtime_checkable
class Source(Protocol):
  """One split, by index."""

  def __len__(self) -> int:
    ...

  def __getitem__(self, index: int) -> dict[str, Any]:
    ...

  def label(self, index: int) -> Any:
    ...

  def key(self, index: int) -> str:
    ...


@typing.runtime_checkable
class Numbered(Protocol):
  """A source whose keys are a name and a number that counts up.

  Keys of 300 million examples can then be hashed in seconds.
  """

  @property
  def numbering(self) -> tuple[str, int]:
    """The name, and the number of example 0."""
    ...


@dataclasses.dataclass(frozen=True)
class Opened:
  """A data set with all its splits.

  Attributes:
    splits: sources by name.
    num_classes: one more than the largest index that there may be; of a
      regression, the number of targets.
    class_names: of the classes in order, where known.
    multi_label: labels are lists of class indices, in any order, of any length.
    eval_split: the split that published results are on.
    targets: names of what a regression predicts. Where there are any, labels
      are float32 [targets], NaN where one is missing.
    description: how files were understood, in words to show; '' for what
      leaves no doubt.
  """
  splits: Mapping[str, Source]
  num_classes: int
  class_names: tuple[str, ...] | None = None
  multi_label: bool = False
  eval_split: str = 'test'
  targets: tuple[str, ...] = ()
  description: str = ''
