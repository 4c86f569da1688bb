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
from vit_jax.data import dataset
from vit_jax.data.sources import registry

# Keys of the section that choose examples, or say what is in a person's files.
CHOICE = frozenset(
    {'exclude', 'examples_per_class', 'num_examples', 'fraction'})
_OF_PATHS = frozenset({'target', 'table'})


@dataclasses.dataclass(frozen=True)
class Selection:
  """Some examples of a data set.

  Attributes:
    section: the section `data` of a config, as JSON.
    name: what to call it.
  """
  section: str
  name: str

  def open(self) -> dataset.Dataset:
    """Opens it, once in a process.

    Raises:
      ValueError: if there is no such data set.
    """
    return _open(self.section)


@functools.lru_cache(maxsize=64)
def _open(section: str) -> dataset.Dataset:
  return dataset.open_dataset(config_lib.parse(json.loads(section)))


def select(text: str, settings: Mapping[str, Any]) -> Selection:
  """Returns what 'source:split' means; without a split, the published one.

  Args:
    text: a colon and a letter begin the split: 'cifar10:3.0.2:test' has one,
      'cifar10:3.0.2' and 'gs://bucket/folder' have none.
    settings: other keys of the section.
  """
  source, *split = _source_of(text)
  if not split:
    config = config_lib.parse({**settings, 'source': source})
    split = [dataset.open_dataset(config, split='').split]
  return of(source, split[0], settings)


def select_others(
    texts: str, settings: Mapping[str, Any],
) -> list[Selection]:
  """Returns what 'a:test,b' means, with settings that were given for another.

  Each is taken whole: what thins the other out is left out. What says how the
  tables of a path are meant holds for paths alone; other data sets say it
  themselves.

  Args:
    texts: see `select`; a comma in braces, '/x/{a,b}.tar', separates files.
    settings: keys of the section.
  """
  found = []
  for text in re.split(r',(?![^{}]*\})', texts):
    left_out = CHOICE if registry.is_path(_source_of(text)[0]) else (
        CHOICE | _OF_PATHS)
    found.append(select(text, {
        key: value for key, value in settings.items() if key not in left_out}))
  return found


def _source_of(text: str) -> list[str]:
  """Returns the source, and the split if there is one."""
  return re.split(r':(?=[A-Za-z])', text, maxsplit=1)


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
