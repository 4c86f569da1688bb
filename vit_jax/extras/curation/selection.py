"""Serialisable selections of examples, such as 'cifar10:test'.

Worker processes open the same examples from the plain text of a selection.
"""

from collections.abc import Mapping
import dataclasses
import functools
import json
import re
from typing import Any

from PIL import Image

from vit_jax import data
from vit_jax.data import config as data_config
from vit_jax.data.images import decode
from vit_jax.data.sources import files
from vit_jax.exceptions import UserError

# Config keys that choose examples, and keys that describe a user's files.
SELECTION_KEYS = frozenset(
    {'exclude', 'examples_per_class', 'num_examples', 'fraction'})
_PATH_SETTINGS = frozenset(
    {'target', 'table', 'holdout', 'group', 'divided_groups'})


def all_examples(settings: Mapping[str, Any]) -> data_config.DataConfig:
  """Returns the section `data` of a command that reads all splits in full.

  Raises:
    UserError: if a key selects examples, because it would be ignored.
  """
  for key in sorted(settings.keys() & {'split', *SELECTION_KEYS}):
    raise UserError('This command reads all examples of all splits. Remove '
                    f'--config.data.{key}.')
  return data.parse(settings)


@dataclasses.dataclass(frozen=True)
class Selection:
  """Examples of a dataset.

  Attributes:
    section: the config section `data`, as JSON.
    name: for messages and reports.
  """
  section: str
  name: str

  @functools.cached_property
  def config(self) -> data_config.DataConfig:
    """The section with default values."""
    return data_config.parse(json.loads(self.section))

  @functools.lru_cache(maxsize=64)  # noqa: B019 (keeps 64 selections.)
  def open(self) -> data.Dataset:
    """Opens the dataset; cached per process."""
    return data.open_dataset(self.config)

  def image(self, index: int) -> Image.Image:
    """Returns an image as 8-bit RGB; raises a `UserError` if unreadable."""
    return decode.decode(self.open()[index]['image'], channels=3,
                         max_pixels=self.config.max_pixels)

  def check_disjoint(self, other: 'Selection') -> None:
    """Raises a UserError if both have examples in common."""
    if self.open().overlaps(other.open()):
      raise UserError(
          f'{self.name} and {other.name} have examples in common: the '
          'same files or record numbers. Choose disjoint splits.')


def build(source: str, split: str, settings: Mapping[str, Any]) -> Selection:
  """Returns a split of a source; `settings` has further keys of the section."""
  return Selection(
      json.dumps({**settings, 'source': source, 'split': split},
                 sort_keys=True),
      f'{source}:{split}')


def parse(text: str, settings: Mapping[str, Any]) -> Selection:
  """Parses 'source:split'; see `data.open_dataset` for the default split.

  A colon before a letter begins the split: 'cifar10:3.0.2:test' has one,
  'cifar10:3.0.2', 'gs://bucket/folder' and 'a::b/folder' have none. A dataset
  of the Hugging Face Hub has two: 'hf://datasets/USER/NAME:CONFIG:test', where
  CONFIG may be empty.
  """
  source, *split = _parse_source(text)
  if not split:
    config = data_config.parse(settings)
    split = [data.open_dataset(
        config, split='', source=config.own_source(source)).split]
  return build(source, split[0], settings)


def parse_others(texts: str, settings: Mapping[str, Any]) -> list[Selection]:
  """Parses 'a:test,b' with the settings of another selection.

  Keys that choose examples are ignored, and keys that describe a user's files
  apply to paths only. Commas within braces, as in '/x/{a,b}.tar', are kept.
  """
  found = []
  for text in re.split(r',(?![^{}]*\})', texts):
    ignored = SELECTION_KEYS if files.is_path(_parse_source(text)[0]) else (
        SELECTION_KEYS | _PATH_SETTINGS)
    found.append(parse(text, {
        key: value for key, value in settings.items() if key not in ignored}))
  return found


def _parse_source(text: str) -> list[str]:
  """Returns the source and, if given, the split."""
  if text.startswith('hf://'):
    *source, split = text.rsplit(':', 1)
    # Of 'hf://datasets/USER/NAME:CONFIG', the second part is no split.
    return [source[0].removesuffix(':'), split] if text.count(':') > 2 else [
        text]
  return re.split(r':(?=[A-Za-z][^/]*$)', text, maxsplit=1)
