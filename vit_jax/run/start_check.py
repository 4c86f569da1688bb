"""Decodes images for a limited time before a run begins.

All of a small dataset are decoded, a part of a large one. The whole image is
decoded, because most damaged files are truncated and have valid headers.
"""

from collections.abc import Sequence
import dataclasses
import sys
import time

import numpy as np
import rich.progress

from vit_jax import data
from vit_jax.data import examples
from vit_jax.data.images import decode
from vit_jax.data.images import multichannel
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol

_CHUNK = 64  # Images between two checks of the time limit.
_MAX_EXAMPLES = 2**20
_SHOWN = 5  # Unreadable images in messages.
_NUM_SAMPLED = 16  # Images whose bit depth is checked.
_LARGEST_12, _LARGEST_16 = 4095, 65535


@dataclasses.dataclass(frozen=True)
class Result:
  """Images decoded, out of `total`, and the unreadable ones."""
  name: str
  checked: int
  total: int
  unreadable: tuple[unreadable_lib.Unreadable, ...]

  def __str__(self) -> str:
    shown = [f'\n- {one.error}' for one in self.unreadable[:_SHOWN]]
    count = len(self.unreadable)
    return (
        f'{self.name}: {count:,} of {self.checked:,} images cannot be read'
        + (f' ({self.total:,} in total)' if self.checked < self.total else '')
        + ''.join([*shown, f'\n- ... and {count - _SHOWN:,} more'
                   if count > _SHOWN else '']))


def check(
    config: data.DataConfig, datasets: Sequence[data.Dataset],
) -> list[Result]:
  """Decodes images of splits, the training split first.

  Published datasets are left out.

  Raises:
    ValueError: for unreadable images that would end the run, and for errors of
      the file system.
  """
  scans, problems, keys = [], [], set()
  for number, dataset in enumerate(datasets):
    if not config.check_secs or not open_source.is_user_data(dataset.name):
      continue
    scan = _scan(config, dataset)
    scans.append(scan)
    is_train = number == 0
    skip = config.policy(train=is_train) == 'skip'
    if len(scan.unreadable) > unreadable_lib.allowed(
        config.max_unreadable if skip else 0, scan.checked):
      problems.append(str(scan))
      keys.add('unreadable' if is_train or config.eval_unreadable == 'auto'
               else 'eval_unreadable')
  if problems:
    flags = ' '.join(f'--config.data.{key}=skip' for key in sorted(keys))
    raise ValueError(
        '\n'.join(problems) + '\nRepair or remove these images (`data check` '
        f'lists all problems), or skip them with {flags}. '
        f'At most {100 * config.max_unreadable:g} % (data.max_unreadable) or '
        'ten images, whichever is more, are skipped.')
  return scans


def depth_note(config: data.DataConfig, source: protocol.Source) -> str:
  """Returns a note if files of 16 bits hold 12-bit values.

  Reads images until one has a larger value, which is usually the first.
  """
  is_8_bit = config.dtype == 'uint8'
  end = 0 if config.value_range is None else config.value_range[1]
  if not is_8_bit and end < _LARGEST_16:
    return ''
  largest, count = -1, min(_NUM_SAMPLED, len(source))
  for number in range(count):
    try:
      stored = source[number * len(source) // count]['image']
      picture = config.decode(stored)
      if is_8_bit and not multichannel.is_deep_file(stored):
        return ''
    except (OSError, ValueError):  # Other checks report it.
      continue
    pixels = np.asarray(getattr(picture, 'pixels', picture))
    # An 8-bit image has the upper half of 16 bits.
    largest = max(largest, int(pixels.max()) << 8 | 255 if is_8_bit
                  else int(pixels.max()))
    if largest > _LARGEST_12:
      return ''
  if largest < 0:
    return ''
  used, remedy = (
      'only the upper 8 of 16 bits are used',
      '--config.data.channels=1 --config.data.dtype=uint16 ') if is_8_bit else (
      f'data.value_range ends at {end:g}', '')
  return (
      f'note: the values of {count} sampled images are at most {largest:,}, as '
      f'of 12 bits, but {used}. Use {remedy}--config.data.value_range='
      f"'[0,{_LARGEST_12}]'" + (
          ', or convert colour images to 8 bits.' if is_8_bit else '.'))


def _scan(config: data.DataConfig, dataset: data.Dataset) -> Result:
  """Decodes images in random order, for up to `data.check_secs`."""
  load = examples.LoadExample(dataset, config, train=False)
  count, rng = dataset.num_examples, np.random.default_rng(0)
  order = (rng.permutation(count) if count <= _MAX_EXAMPLES
           else rng.integers(count, size=_MAX_EXAMPLES))
  found: list[unreadable_lib.Unreadable] = []
  checked, end = 0, time.monotonic() + config.check_secs
  chunks = decode.read_chunks(
      order.tolist(), load.find_unreadable, size=_CHUNK, errors=())
  for chunk, _ in rich.progress.track(
      chunks, f'checking {dataset.split}', total=-(-len(order) // _CHUNK),
      transient=True, disable=not sys.stdout.isatty()):
    for _, bad in chunk:
      found += bad
    checked += len(chunk)
    if time.monotonic() > end:
      break
  return Result(
      dataset.title, checked, count, tuple(found))
