"""Writes config.md: every key of a config, with its type and default.

    python -m docs.config_reference
"""

from collections.abc import Iterable, Iterator
import dataclasses
import pathlib
import typing
from typing import Any

from vit_jax import evals
from vit_jax import objectives
from vit_jax import registry
from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import reference
from vit_jax.models import factory
from vit_jax.models import model_config

PATH = pathlib.Path(__file__).with_name('config.md')
_INTRODUCTION = """# Config keys

A config file needs only the values that differ from these defaults. A flag such
as `--config.optimizer.learning_rate=3e-4` changes any of them. To list the keys
of a config: `python main.py train --config=configs/cifar10.py --help`.
Quote lists: `--config.data.mean='[0.5,0.5,0.5]'`; a flag's `none` means
`null`. A *duration* has one unit: `{'steps': N}`, `{'examples': N}`,
`{'epochs': N}` or `{'percent': N}` of the run; as a flag,
`--config.total.epochs=90`. NAME in `evals.NAME` is any name that you choose.
This page is written by `python -m docs.config_reference`.
"""


def markdown() -> str:
  """Returns the page docs/config.md."""
  sections: dict[str, tuple[Any, ...]] = {
      name: _records(hint)
      for name, hint in typing.get_type_hints(config_lib.Config).items()}
  sections['evals'] = tuple(
      evals.config_type(name, where='evals') for name in registry.EVALUATORS)
  sections['objective'] = tuple(
      map(objectives.config_type, registry.OBJECTIVES))
  sections['model'] = (model_config.ModelConfig, *map(
      factory.record, registry.MODELS))
  tables = [_table('Top level', [
      key for key in reference.fields(config_lib.Config, '')
      if not sections[key.name]])]
  for name, records in sections.items():
    for record in records:
      kind = ''
      if len(records) > 1:
        # The name of any optimizer of Optax has no default.
        kind = ' with name ' + (
            f'`{record.name}`' if hasattr(record, 'name') else
            reference.descriptions(record)['name'].rstrip('.'))
      prefix = 'evals.NAME.' if name == 'evals' else f'{name}.'
      keys = list(_expanded(record, prefix))
      if name == 'model':  # Without the keys of the record that it extends.
        base = record.__base__
        kind, keys = _model(record), [
            key for key in keys if not dataclasses.is_dataclass(base)
            or key not in _expanded(base, prefix)]
      tables.append(_table(f'`{name}`{kind}', keys))
  return '\n'.join([_INTRODUCTION, *tables])


def _model(record: Any) -> str:
  """Returns the end of the title of a model's table."""
  if record is model_config.ModelConfig:
    return ' of all names'
  base = record.__base__
  return f' with name `{record.name}`' + (
      f': also those of `{base.name}`, and' * bool(base.name))


def _table(title: str, keys: Iterable[reference.Key]) -> str:
  rows = [[f'`{key.name}`', key.type, f'`{key.value}`' if key.value else '–',
           key.description] for key in keys]
  lines = ['| ' + ' | '.join(cell.replace('|', r'\|') for cell in row) + ' |'
           for row in rows]
  return '\n'.join([f'## {title}', '', '| key | type | default | |',
                    '|---|---|---|---|', *lines, ''])


def _expanded(record: Any, prefix: str) -> Iterator[reference.Key]:
  """Yields the keys of a record and of records in its fields."""
  hints = typing.get_type_hints(record)
  for key in reference.fields(record, prefix):
    yield key
    for inner in _records(hints[key.name.removeprefix(prefix)]):
      yield from _expanded(inner, f'{key.name}.')


def _records(hint: Any) -> tuple[Any, ...]:
  """Returns the records among the members of a type."""
  return tuple(
      member for member in reference.members(hint)
      if dataclasses.is_dataclass(member) and member is not schema.Duration)


if __name__ == '__main__':
  PATH.write_text(markdown())
