"""Entries of `data.mixture`; `registry.MIXTURE` mixes them."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from vit_jax import fields
from vit_jax import registry
from vit_jax.data.sources import protocol


@dataclasses.dataclass(frozen=True)
class MixtureEntry:
  """An entry of `data.mixture`.

  Attributes:
    source: a dataset, as `data.source`.
    split: a split string of it, as `data.split`.
    weight: share of the images that a run trains on, relative to the other
      entries; by default, if no entry has one, the number of images.
  """
  source: str
  split: str = 'train'
  weight: float | None = None

  def __post_init__(self):
    fields.check_range(self, 'weight', above=0)

  def __str__(self) -> str:
    return f'{self.source} {self.split}'


Entries = Sequence[MixtureEntry]


def mixer() -> Any:
  """Returns the module that mixes datasets."""
  return registry.load(registry.MIXTURE)


def images_seen(
    entries: Entries, source: protocol.Source, images: int) -> dict[str, int]:
  """Returns how many of the first images of a run are of each entry."""
  return mixer().images_seen(entries, source, images) if entries else {}


def describe(
    entries: Entries, source: protocol.Source, images: int) -> list[str]:
  """Returns a line for each entry, for a run on so many images."""
  return mixer().describe(entries, source, images) if entries else []
