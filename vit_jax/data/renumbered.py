"""Sources whose classes are numbered as in other data; see `classes.match`."""

from collections.abc import Iterable
import dataclasses
from typing import Any

from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True, eq=False)
class Renumbered(protocol.Source):
  """A source whose classes are numbered as in other data.

  Attributes:
    source: a source that is no selection of others.
    numbers: new index of each class; empty to keep the labels.
    name: added to keys, unless they contain the name of the dataset.
  """
  source: protocol.Source
  numbers: tuple[int, ...]
  name: str = ''

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.source[index]
    return {**example, 'label': self._renumber(example['label'])}

  def label(self, index: int) -> Any:
    return self._renumber(self.source.label(index))

  def labels_of(self, indices: Integer[np.ndarray, '_']) -> Iterable[Any]:
    return map(self._renumber, self.source.labels_of(indices))

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    return self.source.groups_of(indices)

  def key(self, index: int) -> str:
    key = self.source.key(index)
    return f'{self.name}/{key}' if self.name and not self.numbering else key

  @property
  def numbering(self) -> tuple[str, int] | None:
    return self.source.numbering

  def _renumber(self, label: Any) -> Any:
    if not self.numbers:
      return label
    if np.ndim(label):
      return [self.numbers[one] for one in label]
    return self.numbers[label] if label >= 0 else label


def renumber(
    source: protocol.Source, numbers: tuple[int, ...], name: str = '',
) -> protocol.Source:
  """Returns a source with these numbers of its classes, in the same parts."""
  if isinstance(source, split_strings.Subset):
    return split_strings.Subset(tuple(
        (renumber(part, numbers, name), chosen)
        for part, chosen in source.parts))
  return Renumbered(source, numbers, name)
