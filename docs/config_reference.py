"""Writes what the pages copy from the code: keys and configs.

The keys of the trunk, with type and default, are config.md; those of a leaf are
at the end of its page. configs/README.md is the list of configs.

    python -m docs.config_reference
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import itertools
import pathlib
import typing
from typing import Any

from vit_jax import evals
from vit_jax import objectives
from vit_jax import registry
from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.extras.keys import reference
from vit_jax.extras.sweep import config as sweep_config
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.objectives import objective
from vit_jax.optim import config as optim_config

PATH = pathlib.Path(__file__).with_name('config.md')
CONFIGS = PATH.parents[1] / 'configs' / 'README.md'
# Leaves whose records have keys, by page.
LEAVES = {PATH.with_name(f'{page}.md'): leaves for page, leaves in {
    'distillation': ['distill'], 'evaluation': ['diagnostics', 'probe'],
    'models': ['zoo', 'cards'], 'segmentation': ['segmentation'],
    'self_supervised': ['lejepa'], 'sweeps': ['sweep'],
    'training': ['optimizers'],
}.items()}
MARK = '<!-- Keys, by python -m docs.config_reference -->'
# Records that all others of their section extend.
_COMMON = (optim_config.CommonConfig, objective.ObjectiveConfig,
           evals.EvaluatorConfig, model_config.ModelConfig)
_INTRODUCTION = """# Config keys

```bash
python main.py train --config=configs/cifar10.py --help   # keys of a config
```

A config file needs only the values that differ from these defaults. A flag such
as `--config.optimizer.learning_rate=3e-4` changes any of them. Quote lists:
`--config.data.mean='[0.5,0.5,0.5]'`. A flag's `none` means `null`, unless
`none` is one of the values of the key, as of `model.remat`. A *duration* has
one unit: `{'steps': N}`, `{'examples': N}`, `{'epochs': N}` or
`{'percent': N}` of the run; as a flag, `--config.total.epochs=90`. NAME in
`evals.NAME` is any name that you choose.

The `name` of an optimizer, evaluator, objective or model selects its keys. The
table "`optimizer` of all names" lists those that every optimizer has; a table
with several names lists those that they share. More keys are at the end of the
pages on [training](training.md) (optimizers),
[distillation](distillation.md), [self-supervision](self_supervised.md),
[segmentation](segmentation.md), [evaluation](evaluation.md),
[sweeps](sweeps.md), and [today's backbones and model cards](models.md).
`python -m docs.config_reference` writes all of these lists.
"""
_CONFIGS = """# Configs

```bash
python main.py --config=configs/quickstart.py --workdir=runs/quickstart
```

One file per experiment. Its docstring has the command, the hardware, and the
expected result, measured here or cited. [training.md](../docs/training.md) says
how to change a config and how to write your own.

| config | experiment |
|---|---|
"""


def configs() -> str:
  """Returns the page configs/README.md, the first lines of the docstrings."""
  folder = CONFIGS.parent
  files = [*sorted(folder.glob('*.py')), *sorted(folder.glob('*/*.py'))]
  return _CONFIGS + ''.join(
      f'| [{name}]({name}) | {_summary(path)} |\n' for path in files
      for name in [path.relative_to(folder).as_posix()])


def _summary(path: pathlib.Path) -> str:
  """Returns the first line of a docstring, without its full stop."""
  docstring = ast.get_docstring(ast.parse(path.read_text())) or ''
  return docstring.split('\n')[0].removesuffix('.')


def markdown() -> str:
  """Returns the page docs/config.md."""
  tables = [_table('Top level', [
      key for key in reference.fields(config_lib.Config, '')
      if not _sections()[key.name]])]
  return '\n'.join([_INTRODUCTION, *tables, *_tables()])


def with_keys(page: str, leaves: Iterable[str]) -> str:
  """Returns the page of leaves, which ends with their keys."""
  text = page.partition(MARK)[0].rstrip()
  return '\n'.join([
      text, '', MARK, '', '## Config keys', '',
      'Other keys are in [config.md](config.md).', '', *(
          f'#{table}' for leaf in leaves for table in _tables(leaf))])


def _sections() -> dict[str, tuple[Any, ...]]:
  """Returns the records of each section; those that others extend are first."""
  return {
      **{name: _records(hint)
         for name, hint in typing.get_type_hints(config_lib.Config).items()},
      'optimizer': (
          optim_config.CommonConfig, *map(
              optim_config.config_type, registry.OPTIMIZERS)),
      'evals': (evals.EvaluatorConfig, *(
          evals.config_type(name, where='evals')
          for name in registry.EVALUATORS)),
      'objective': (objective.ObjectiveConfig, *map(
          objectives.config_type, registry.OBJECTIVES)),
      'model': (model_config.ModelConfig, *map(
          factory.record, registry.MODELS)),
      **{name: (registry.load(target),)
         for name, target in registry.SECTIONS.items()},
      'sweep': (sweep_config.SweepConfig,)}


def _tables(leaf: str = '') -> Iterator[str]:
  """Yields the tables of the records of a leaf, or of the trunk.

  Each key is in one table: that of the record that the others extend, or of all
  records that share it, which is in the trunk if one of them is.
  """
  for section, records in _sections().items():
    tables = _owners(section, records)
    for owners, keys in tables.items():
      if leaf == min(map(_leaf, owners)):
        kind = _kind(owners, records) if len(records) > 1 else ''
        yield _table(f'`{section}`{kind}', keys)


def _owners(
    section: str, records: Sequence[Any],
) -> dict[tuple[Any, ...], list[reference.Key]]:
  """Returns keys by the records that have them; [] for none of their own."""
  prefix = 'evals.NAME.' if section == 'evals' else f'{section}.'
  sharing: dict[reference.Key, tuple[Any, ...]] = {}
  for record in records:
    known = {key for base in _bases([record], records)
             for key in _expanded(base, prefix)}
    for key in _expanded(record, prefix):
      # Titles have the names.
      if key not in known and (
          record in _COMMON or key.name != f'{prefix}name'):
        sharing[key] = (*sharing.get(key, ()), record)
  tables: dict[tuple[Any, ...], list[reference.Key]] = {}
  for key, owners in sharing.items():
    tables.setdefault(owners, []).append(key)
  bare: dict[tuple[Any, ...], list[Any]] = {}
  for record in records:
    if record not in itertools.chain(*tables):
      bare.setdefault(
          (_leaf(record), *_bases([record], records)), []).append(record)
  return {**tables, **{tuple(owners): [] for owners in bare.values()}}


def _bases(owners: Sequence[Any], records: Sequence[Any]) -> list[Any]:
  """Returns the records that all of `owners` extend."""
  return [one for one in records
          if all(one in owner.__mro__[1:] for owner in owners)]


def _leaf(record: Any) -> str:
  """Returns the name of the leaf of a record; '' in the trunk."""
  _, package, name, *_ = [*record.__module__.split('.'), '', '']
  return name if package == 'extras' else ''


def _kind(owners: Sequence[Any], records: Sequence[Any]) -> str:
  """Returns the end of the title of the table of records."""
  if owners[0] in _COMMON:
    return ' of all names'
  also = [base for base in _bases(owners, records) if base not in _COMMON]
  return f' with name {_names(owners, "or")}' + (
      f' (besides all keys of {_names(also, "and")})' if also else '')


def _names(records: Sequence[Any], conjunction: str) -> str:
  """Returns '`adam`, `sgd` or `muon`'."""
  # The name of any optimizer of Optax has no default.
  *first, last = [f'`{getattr(one, "name", "optax.NAME")}`' for one in records]
  return f'{", ".join(first)} {conjunction} {last}' if first else last


def _table(title: str, keys: Iterable[reference.Key]) -> str:
  rows = [[f'`{key.name}`', key.type, f'`{key.value}`' if key.value else '–',
           key.description] for key in keys]
  lines = ['| ' + ' | '.join(cell.replace('|', r'\|') for cell in row) + ' |'
           for row in rows]
  return '\n'.join([f'## {title}', '', *(
      ['| key | type | default | |', '|---|---|---|---|', *lines] if lines
      else ['No further keys.']), ''])


def _expanded(record: Any, prefix: str) -> Iterator[reference.Key]:
  """Yields the keys of a record and of records in its fields."""
  hints = typing.get_type_hints(record)
  for key in reference.fields(record, prefix):
    hint = hints[key.name.removeprefix(prefix)]
    if not set(reference.members(hint)) <= {*_records(hint)}:
      yield key  # Not only a section.
    for inner in _records(hint):
      yield from _expanded(inner, f'{key.name}.')


def _records(hint: Any) -> tuple[Any, ...]:
  """Returns the records among the members of a type."""
  return tuple(
      member for member in reference.members(hint)
      if dataclasses.is_dataclass(member) and member is not schema.Duration)


if __name__ == '__main__':
  PATH.write_text(markdown())
  CONFIGS.write_text(configs())
  for path, names in LEAVES.items():
    path.write_text(with_keys(path.read_text(), names))
