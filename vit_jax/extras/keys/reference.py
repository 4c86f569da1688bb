"""Every key of a config, with its type, value and description.

The descriptions come from the "Attributes" sections of the records' docstrings.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import difflib
import inspect
import json
import re
import textwrap
import types
import typing
from typing import Any, ClassVar, Literal

from etils import epy

from vit_jax import registry
from vit_jax import schema
from vit_jax.commands import arguments
from vit_jax.exceptions import UserError

with epy.lazy_imports():
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import load_config

# Flags for training in other programs, and the keys that are meant.
_ELSEWHERE: Mapping[str, str] = {
    'data': 'data.source', 'dataset': 'data.source',
    'image-size': 'data.resolution', 'mask-ratio': 'objective.masked',
    'model': 'model.variant', 'optimizer': 'optimizer.name',
    'patch-size': 'model.patch', 'patch-sizes': 'objective.patch_sizes',
    'pretrained': 'init.checkpoint'}


@dataclasses.dataclass(frozen=True)
class Key:
  """A key of a config; `value` is text, and empty if it is required."""
  name: str
  type: str
  value: str
  description: str


def keys_of(config: Any, prefix: str = '') -> Iterator[Key]:
  """Yields the keys of a config with their current values."""
  for key in fields(type(config), prefix):
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


def names(record: Any, prefix: str = '') -> Iterator[str]:
  """Yields the names of the keys of a record, and of the records in it."""
  for name, hint in typing.get_type_hints(record).items():
    inner = [one for one in members(hint) if dataclasses.is_dataclass(one)
             and one is not schema.Duration]
    for one in inner:
      yield from names(one, f'{prefix}{name}.')
    if not inner and typing.get_origin(hint) is not ClassVar:
      yield prefix + name


def names_of_configs() -> Iterator[str]:
  """Yields the names of the keys of configs, by record: some more than once."""
  yield from names(config_lib.Config)
  for section, targets in {
      'model': registry.MODELS, 'objective': registry.OBJECTIVES,
      'optimizer': registry.OPTIMIZERS, 'evals.NAME': registry.EVALUATORS,
      **{name: {name: one} for name, one in registry.SECTIONS.items()},
  }.items():
    for target in targets.values():
      if record := registry.optional(target):
        yield from names(record, f'{section}.')


def nearest_flag(flag: str, known: Sequence[str]) -> str:
  """Returns ' Did you mean --lr or --config.optimizer.learning_rate?' or ''.

  Keys of the config are compared where no known flag is almost the same: they
  take seconds to import. Commands with --data-dir take those of `data`.
  """
  # Without dashes, which would make short flags similar to any other.
  given = flag.lstrip('-').replace('_', '-')
  short = {key: name for name, (key, _) in arguments.SHORT_FLAGS.items()
           if name in known}
  meant = {name.lstrip('-'): [name] for name in (*known, '--version')}

  def add(name: str, key: str) -> None:
    meant.setdefault(name, []).extend([
        *([short[key]] if key in short else []), f'--config.{key}'])

  for name, key in _ELSEWHERE.items() if '--lr' in known else ():
    add(name, key)
  sections = ('',) if '--config' in known else (
      ('data.',) if '--data-dir' in known else ())
  if sections and not difflib.get_close_matches(given, meant, cutoff=0.8):
    for key in names_of_configs():
      if key.startswith(sections):
        add(key.rpartition('.')[2].replace('_', '-'), key)
  close = difflib.get_close_matches(given, meant, n=1, cutoff=0.75)
  hint = ' or '.join(dict.fromkeys(meant[close[0]])) if close else ''
  return f' Did you mean {hint}?' * bool(hint)


def print_config(specification: str, overrides: Sequence[str]) -> None:
  """Prints each key of a config with its value, type and description."""
  try:
    stages = load_config.load(specification, overrides)
  except UserError:
    # Configs for fine-tuning take the model from a checkpoint.
    stages = load_config.load(specification, ['model.variant=B/16', *overrides])
  for stage, config in stages.items():
    print(f'\nkeys of {specification}' + f', stage {stage}' * bool(stage))
    for key in keys_of(config):
      print(f'  --config.{key.name}={key.value}  ({key.type})')
      print(textwrap.fill(
          key.description, 79, initial_indent=' ' * 6,
          subsequent_indent=' ' * 6))


def fields(record: Any, prefix: str) -> Iterator[Key]:
  """Yields the key of each field with its default."""
  hints, texts = typing.get_type_hints(record), descriptions(record)
  for field in dataclasses.fields(record):
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
      default = field.default_factory()
    if field.init:
      yield Key(
          prefix + field.name, _type_name(hints[field.name]),
          '' if default is dataclasses.MISSING else _text(default),
          texts.get(field.name, ''))


def descriptions(record: Any) -> dict[str, str]:
  """Returns the texts of "Attributes", including base classes."""
  found: dict[str, str] = {}
  for base in reversed(record.__mro__):
    _, _, text = inspect.cleandoc(base.__doc__ or '').partition('Attributes:\n')
    for names, words in re.findall(
        r'^  (\w+(?:, \w+)*): (.*(?:\n {4,}.*)*)', text, re.MULTILINE):
      words = re.sub(r'\bNone\b', 'null', ' '.join(words.split()))
      found |= dict.fromkeys(names.split(', '), words)
  return found


def members(hint: Any) -> tuple[Any, ...]:
  """Returns the members of a union, or the type itself."""
  is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
  return typing.get_args(hint) if is_union else (hint,)


def _type_name(hint: Any) -> str:
  """Returns a short name of a type."""
  if len(found := members(hint)) > 1:
    return ' or '.join(dict.fromkeys(map(_type_name, found)))
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
