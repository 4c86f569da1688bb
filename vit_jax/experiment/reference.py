"""Every key of a config, with its type, value and description.

The descriptions come from the "Attributes" sections of the records' docstrings.
`python -m vit_jax.experiment.reference` writes docs/config.md.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import inspect
import json
import pathlib
import re
import types
import typing
from typing import Any, Literal

from vit_jax import evals
from vit_jax import objectives
from vit_jax import schema
from vit_jax.experiment import config as config_lib

PATH = pathlib.Path(__file__).parents[2] / 'docs' / 'config.md'
_INTRODUCTION = """# Config keys

A config file needs only the values that differ from these defaults. A flag such
as `--config.optimizer.learning_rate=3e-4` changes any of them. To list the keys
of a config: `python main.py train --config=configs/cifar10.py --help`.
Quote lists: `--config.data.mean='[0.5,0.5,0.5]'`; a flag's `none` means
`null`. A *duration* has one unit: `{'steps': N}`, `{'examples': N}`,
`{'epochs': N}` or `{'percent': N}` of the run; as a flag,
`--config.total.epochs=90`. NAME in `evals.NAME` is any name that you choose.
This page is written by `python -m vit_jax.experiment.reference`.
"""


@dataclasses.dataclass(frozen=True)
class Key:
  """A key of a config; `value` is text, and empty if it is required."""
  name: str
  type: str
  value: str
  description: str


def keys_of(config: Any, prefix: str = '') -> Iterator[Key]:
  """Yields the keys of a config with their current values."""
  for key in _keys(type(config), prefix):
    value = getattr(config, key.name.removeprefix(prefix))
    if dataclasses.is_dataclass(value) and not isinstance(
        value, schema.Duration):
      yield from keys_of(value, f'{key.name}.')
    elif isinstance(value, Mapping) and value and all(
        map(dataclasses.is_dataclass, value.values())):
      for name, section in value.items():
        yield from keys_of(section, f'{key.name}.{name}.')
    else:
      yield dataclasses.replace(key, value=_text(value))


def markdown() -> str:
  """Returns the page docs/config.md."""
  sections: dict[str, tuple[Any, ...]] = {
      name: _records(hint)
      for name, hint in typing.get_type_hints(config_lib.Config).items()}
  sections['evals'] = tuple(
      evals.config_type(name, where='evals') for name in evals.KINDS)
  sections['objective'] = tuple(
      map(objectives.config_type, objectives.KINDS))
  tables = [_table('Top level', [
      key for key in _keys(config_lib.Config, '') if not sections[key.name]])]
  for name, records in sections.items():
    for record in records:
      kind = ''
      if len(records) > 1:
        # The name of any optimizer of Optax has no default.
        kind = ' with name ' + (
            f'`{record.name}`' if hasattr(record, 'name') else
            _descriptions(record)['name'].rstrip('.'))
      prefix = 'evals.NAME.' if name == 'evals' else f'{name}.'
      tables.append(_table(f'`{name}`{kind}', _expanded(record, prefix)))
  return '\n'.join([_INTRODUCTION, *tables])


def _table(title: str, keys: Iterable[Key]) -> str:
  rows = [[f'`{key.name}`', key.type, f'`{key.value}`' if key.value else '–',
           key.description] for key in keys]
  lines = ['| ' + ' | '.join(cell.replace('|', r'\|') for cell in row) + ' |'
           for row in rows]
  return '\n'.join([f'## {title}', '', '| key | type | default | |',
                    '|---|---|---|---|', *lines, ''])


def _expanded(record: Any, prefix: str) -> Iterator[Key]:
  """Yields the keys of a record and of records in its fields."""
  hints = typing.get_type_hints(record)
  for key in _keys(record, prefix):
    yield key
    for inner in _records(hints[key.name.removeprefix(prefix)]):
      yield from _expanded(inner, f'{key.name}.')


def _keys(record: Any, prefix: str) -> Iterator[Key]:
  """Yields the key of each field with its default."""
  hints, texts = typing.get_type_hints(record), _descriptions(record)
  for field in dataclasses.fields(record):
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
      default = field.default_factory()
    if field.init:
      yield Key(
          prefix + field.name, _type_name(hints[field.name]),
          '' if default is dataclasses.MISSING else _text(default),
          texts.get(field.name, ''))


def _descriptions(record: Any) -> dict[str, str]:
  """Returns the texts of "Attributes", including base classes."""
  found: dict[str, str] = {}
  for base in reversed(record.__mro__):
    _, _, text = inspect.cleandoc(base.__doc__ or '').partition('Attributes:\n')
    for names, words in re.findall(
        r'^  (\w+(?:, \w+)*): (.*(?:\n {4,}.*)*)', text, re.MULTILINE):
      words = re.sub(r'\bNone\b', 'null', ' '.join(words.split()))
      found |= dict.fromkeys(names.split(', '), words)
  return found


def _members(hint: Any) -> tuple[Any, ...]:
  """Returns the members of a union, or the type itself."""
  is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
  return typing.get_args(hint) if is_union else (hint,)


def _records(hint: Any) -> tuple[Any, ...]:
  """Returns the records among the members of a type."""
  return tuple(member for member in _members(hint) if dataclasses.is_dataclass(
      member) and member is not schema.Duration)


def _type_name(hint: Any) -> str:
  """Returns a short name of a type."""
  if len(members := _members(hint)) > 1:
    return ' or '.join(dict.fromkeys(map(_type_name, members)))
  origin = typing.get_origin(hint)
  if origin is Literal:
    return ' or '.join(json.dumps(value) for value in typing.get_args(hint))
  if hint is schema.Duration:
    return 'duration'
  if dataclasses.is_dataclass(hint) or origin in (dict, Mapping):
    return 'section'
  if origin is not None:
    return 'list' if origin in (tuple, list) else str(hint)
  return {type(None): 'null', str: 'string', float: 'number', int: 'integer',
          bool: 'true or false'}.get(hint, getattr(hint, '__name__', str(hint)))


def _text(value: Any) -> str:
  if isinstance(value, str):
    return value or "''"
  return json.dumps(schema.to_plain(value), ensure_ascii=False)


if __name__ == '__main__':
  PATH.write_text(markdown())
