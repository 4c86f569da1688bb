"""Adds the images of `data.val_source` to a dataset, as its split `val`."""

import dataclasses
from typing import Any

import numpy as np

from vit_jax import classes
from vit_jax.data import config as data_config
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

_REMEDY = 'Use validation data with labels of the same kind and names.'


@dataclasses.dataclass(frozen=True, eq=False)
class _Renumbered(protocol.Source):
  """A source whose classes are numbered as in the training data."""
  source: protocol.Source
  numbers: tuple[int, ...]

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.source[index]
    return {**example, 'label': self._renumber(example['label'])}

  def label(self, index: int) -> Any:
    return self._renumber(self.source.label(index))

  def key(self, index: int) -> str:
    return self.source.key(index)

  def _renumber(self, label: Any) -> Any:
    if np.ndim(label):
      return [self.numbers[one] for one in label]
    return self.numbers[label] if label >= 0 else label


def add(
    trained: protocol.DatasetSplits, added: protocol.DatasetSplits,
    config: data_config.DataConfig,
) -> protocol.DatasetSplits:
  """Returns the training data with `added` as `val`, its evaluation split.

  Classes are matched by name; `added` may lack some.

  Raises:
    ValueError: if labels are of another kind, or a class is not in `trained`.
  """
  ours = trained.as_classes('data.source', config.source)
  theirs = added.as_classes('data.val_source', config.val_source)
  source = added.splits[added.eval_split]
  if trained.kind != added.kind:
    raise ValueError(
        f'data.val_source ({config.val_source}) has labels of another kind '
        f'than data.source ({config.source}). {_REMEDY}')
  if trained.targets or not (ours.names and theirs.names):
    classes.match(theirs, ours, remedy=_REMEDY)
  elif ours.names != theirs.names:
    index = classes.indices(theirs, ours, remedy=_REMEDY)
    source = _Renumbered(source, tuple(index[name] for name in theirs.names))
  return dataclasses.replace(
      trained, eval_split=split_strings.VAL,
      splits={**trained.splits, split_strings.VAL: source},
      unlabelled=tuple({*trained.unlabelled} - {split_strings.VAL}),
      description='; '.join(filter(None, [
          trained.description,
          f'val: {len(source):,} images of {config.val_source}'])))
