"""Starting one model from another's parameters, with nothing silent about it.

    load -> resize positions -> keep the new head -> report each parameter
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import re
from typing import Any, Literal

from jaxtyping import Shaped
import numpy as np

from vit_jax import schema
from vit_jax import tree

FILTERS = 'patches/kernel'  # Of the patch embedding: [p, p, channels, width].
Positions = Literal['linear', 'cubic']  # How they are resized.
Status = Literal['loaded', 'resized', 'new', 'ignored']


@dataclasses.dataclass(frozen=True)
class InitConfig:
  """Section `init`: where the parameters come from.

  Attributes:
    checkpoint: a workdir, or one checkpoint; '' starts from random values.
    stage: an earlier stage of the same config, instead of `checkpoint`.
    which: 'latest' or 'best' of a workdir's.
    positions: how position embeddings are resized to another grid: 'linear'
      with aligned corners, as the paper's code, or 'cubic'.
    channels: what becomes of the patch embedding's filters where images have
      another number of channels than the checkpoint's: 'same' is an error;
      'mean' gives every channel the mean of the old filters, times the old
      number of channels over the new: an image that is the same in every
      channel gets the embedding that it had.
    new: regular expressions of parameters that keep their initial values even
      where the checkpoint has them: by default the head, which starts at zero.
    ignored: parameters of the checkpoint that the model may lack: by default
      the head, and of pre-training the representation layer and what predicts
      masked patches.
  """
  checkpoint: str = ''
  stage: str = ''
  which: Literal['latest', 'best'] = 'latest'
  positions: Positions = 'linear'
  channels: Literal['same', 'mean'] = 'same'
  new: tuple[str, ...] = ('head/.*',)
  ignored: tuple[str, ...] = (
      'head/.*', 'representation/.*', 'masked_patch/.*')

  def __post_init__(self):
    if self.checkpoint and self.stage:
      raise ValueError(
          'Parameters start from a checkpoint or from a stage, not from both: '
          f'got checkpoint={self.checkpoint!r} and stage={self.stage!r}.')


def parse(section: Mapping[str, Any]) -> InitConfig:
  """Returns the typed record of the section `init`."""
  return schema.parse(InitConfig, section, where='init')


@dataclasses.dataclass(frozen=True)
class Row:
  """What became of a parameter."""
  name: str
  status: Status
  source: tuple[int, ...] | None
  target: tuple[int, ...] | None


def adapt(
    source: Any,
    initial: Any,
    *,
    config: InitConfig,
    resize: Callable[[str, np.ndarray], np.ndarray],
) -> tuple[dict[str, Any], list[Row]]:
  """Fits a checkpoint's parameters to a model.

  Args:
    source: parameters of the checkpoint.
    initial: the model's own initial parameters; shapes do for those that are
      not new.
    config: what may be new and what may be ignored.
    resize: turns a parameter of this name into that of the model's grid.
      What is no position embedding, and all where the grid is the same, it
      gives back untouched; the shape alone does not tell: 4x9 patches are as
      many as 6x6.

  Returns:
    Parameters shaped as `initial`, and a row for each name on either side.

  Raises:
    ValueError: if a parameter is missing, unexpected, or of another shape.
  """
  have, want = tree.flatten(source), tree.flatten(initial)
  for pattern in config.new:
    if not any(re.fullmatch(pattern, name) for name in want):
      raise ValueError(
          f'init.new: the rule {pattern!r} matches no parameter. Parameters: '
          f'{", ".join(want)}.')
  params, rows, problems = {}, [], []
  status: Status
  for name, start in want.items():
    target = tuple(start.shape)
    found = have.get(name)
    shape = None if found is None else tuple(found.shape)
    if _matches(config.new, name):
      params[name], status = start, 'new'
    elif found is None:
      problems.append(f'{name}: expected {target}, found nothing')
      continue
    else:
      found = np.asarray(found)
      # Where more than the grid differs, it is shown as it was found.
      alike = (found.ndim == len(target)
               and found.shape[-1:] == target[-1:])
      try:
        if name == FILTERS and config.channels == 'mean':
          found = spread_channels(found, target[2])
        values = resize(name, found) if alike else found
      except ValueError as error:
        problems.append(str(error))
        continue
      if values.shape != target:
        of_channels = name == FILTERS and values.ndim == len(target) == 4 and (
            values.shape[:2] + values.shape[3:] == target[:2] + target[3:])
        problems.append(
            f'{name}: expected {target}, found {shape}'
            + (f', of images of {values.shape[2]} channels: to spread them, '
               '--config.init.channels=mean' if of_channels else ''))
        continue
      params[name] = values.astype(start.dtype)
      status = 'loaded' if values is found and shape == target else 'resized'
    rows.append(Row(name, status, shape, target))
  for name, found in have.items():
    if name in want:
      continue
    if _matches(config.ignored, name):
      rows.append(Row(name, 'ignored', tuple(found.shape), None))
    else:
      problems.append(f'{name}: expected nothing, found {tuple(found.shape)}')
  if problems:
    raise ValueError(
        'The checkpoint does not fit the model:\n  ' + '\n  '.join(problems)
        + '\nMake the model section agree, or list what shall keep its initial '
        'value in init.new and what shall be left out in init.ignored.')
  return tree.unflatten(params), rows


def spread_channels(
    filters: Shaped[np.ndarray, 'height width channels embedding'],
    channels: int,
) -> Shaped[np.ndarray, 'height width new_channels embedding']:
  """Returns filters for another number of channels; see `InitConfig`."""
  if filters.ndim != 4 or filters.shape[2] == channels:
    return filters
  each = filters.sum(axis=2, keepdims=True) / channels
  return np.repeat(each, channels, axis=2).astype(filters.dtype)


def report(rows: Sequence[Row]) -> str:
  """Returns a line for each parameter, and the counts."""
  width = max(len(row.name) for row in rows)
  lines = []
  for row in rows:
    shapes = (f'{row.source}' if row.status == 'loaded'
              else f'{row.source} -> {row.target}')
    lines.append(f'  {row.status:8} {row.name:{width}} {shapes}')
  counts = {status: sum(row.status == status for row in rows)
            for status in ('loaded', 'resized', 'new', 'ignored')}
  lines.append('  ' + ', '.join(f'{n} {status}'
                                for status, n in counts.items()))
  return '\n'.join(lines)


def _matches(patterns: Sequence[str], name: str) -> bool:
  return any(re.fullmatch(pattern, name) for pattern in patterns)
