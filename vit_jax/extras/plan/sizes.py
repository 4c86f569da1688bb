"""Datasets of known sizes, to plan and compile a run without their files."""

import dataclasses
from typing import Any

from vit_jax import registry
from vit_jax.data import known_datasets
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class PlannedSplit(protocol.Source):
  """A split of known length whose files are not available."""
  name: str
  num_examples: int

  def __len__(self) -> int:
    return self.num_examples

  def __getitem__(self, index: int) -> dict[str, Any]:
    raise UserError(f'{self.name} was opened for planning only.')

  def key(self, index: int) -> str:
    return str(index)


def open_planned(name: str) -> protocol.DatasetSplits | None:
  """Returns a dataset with the sizes of the table of known datasets.

  Returns None if the table lacks them. Reading an example is an error.
  """
  facts = registry.SIZES.get(name[:name.find('/') + 1])
  row = registry.load(facts)(name) if facts else known_datasets.facts(name)
  if not row.num_examples or row.num_classes is None:
    return None
  return protocol.DatasetSplits(
      {split: PlannedSplit(name, count)
       for split, count in row.num_examples.items()},
      num_classes=row.num_classes, multi_label=bool(row.multi_label),
      eval_split=row.eval_split, planned=True)
