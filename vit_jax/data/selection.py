"""A selection of a data set as plain text: another process opens the same.

    'cifar10:test', './mine:train[:90%]'    as a person writes it
"""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import json
import re
from typing import Any

from vit_jax.data import config as config_lib
from vit_jax.data import opening


@dataclasses.dataclass(frozen=True)
class Selection:
  """Some examples of a data set.

  Attributes:
    section: the section `data` of a config, as JSON.
    name: what to call it.
  """
  section: str
  name: str

  def open(self) -> opening.Dataset:
    """Opens it, once in a process.

    Raises:
      ValueError: if there is no such data set.
    """
    return _open(self.section)


@functools.lru_cache(maxsize=64)
def _open(section: str) -> opening.Dataset:
  return opening.open_dataset(config_lib.parse(json.loads(section)))


def select(text: str, settings: Mapping[str, Any]) -> Selection:
  """Returns what 'source:split' means; without a split, the published one.

  Args:
    text: a colon and a letter begin the split: 'cifar10:3.0.2:test' has one,
      'cifar10:3.0.2' and 'gs://bucket/folder' have none.
    settings: other keys of the section.
  """
  source, *split = re.split(r':(?=[A-Za-z])', text, maxsplit=1)
  if not split:
    config = config_lib.parse({**settings, 'source': source})
    split = [opening.open_dataset(config, split='').split]
  return of(source, split[0], settings)


def of(source: str, split: str, settings: Mapping[str, Any]) -> Selection:
  """Returns a split of a source; see `select`."""
  return Selection(
      json.dumps({**settings, 'source': source, 'split': split},
                 sort_keys=True),
      f'{source}:{split}')


def ranges(length: int, size: int) -> Iterator[tuple[int, int]]:
  """Yields (first, last + 1) of parts of so many examples each."""
  for first in range(0, length, size):
    yield first, min(first + size, length)
