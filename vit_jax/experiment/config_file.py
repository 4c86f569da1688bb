"""Config files as nested dicts of plain data.

A config file is Python whose `get_config` returns an `ml_collections`
ConfigDict of plain data. The parameters of `get_config` are the arguments of
the file: 'configs/x.py:name=value'.
"""

from collections.abc import Mapping
import dataclasses
import graphlib
import inspect
import json
import pathlib
import runpy
import sys
import typing
from typing import Any, NamedTuple

import ml_collections

from vit_jax import evals
from vit_jax import objectives
from vit_jax import optim
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import untrusted
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError
from vit_jax.models import vit

_PACKAGE = pathlib.Path(__file__).parents[1]  # Holds `configs`.


def read(specification: str) -> dict[str, Any]:
  """Runs the `get_config` of a config file and returns its plain data.

  Args:
    specification: 'configs/x.py', 'configs/x.py:name=value,name=value', or the
      config.json of a run.

  Raises:
    FileNotFoundError: if the file does not exist.
    UserError: for an unknown argument of the file or one of a wrong type.
  """
  path, _, text = specification.partition(':')
  packaged = _PACKAGE / path
  if not pathlib.Path(path).is_file() and packaged.is_file():
    path = str(packaged)  # Such as configs/x.py, outside a clone.
  if not pathlib.Path(path).is_file():
    raise NotFoundError(f'Config file {path} does not exist.' + schema.nearest(
        path, [str(one) for one in pathlib.Path(path).parent.glob('*.py')]))
  if path.endswith('.json'):  # Saved by a run; what it names is not imported.
    return untrusted.read_json(specification)
  # Lets configs import each other from any current directory, and a config in
  # any folder import ours as `configs` and modules beside itself.
  folders = pathlib.Path(path).resolve().parents
  configs = next((f for f in folders if f.name == 'configs'), folders[0])
  saved = list(sys.path)
  # As for scripts, the config's own folder is first. Ours is last, so that its
  # configs hide no installed module.
  sys.path[:] = [str(folders[0]), str(configs.parent), *saved, str(_PACKAGE)]
  try:
    get_config = runpy.run_path(path, run_name='config_file').get(
        'get_config', lambda: None)
    arguments = _arguments(get_config, text, path)
    try:
      config = get_config(**arguments)
    except ValueError as error:
      raise UserError(f'{path}: {error}') from error
  finally:
    sys.path[:] = saved
  if not isinstance(config, ml_collections.ConfigDict):
    raise UserError(
        f'{path} must define get_config(), which returns an ml_collections.'
        f'ConfigDict, but returned {type(config).__name__}.')
  found = plain(config)
  registry.allow_named(found, folder=str(folders[0]))
  return found


def plain(config: Any) -> dict[str, Any]:
  """Returns the content of a config as plain data."""
  if isinstance(config, ml_collections.ConfigDict):
    return json.loads(config.to_json())
  if not isinstance(config, Mapping):
    raise UserError('A config is a file, a mapping or a ConfigDict, but got '
                    f'{type(config).__name__}.')
  return dict(config)


def _arguments(function: Any, text: str, path: str) -> dict[str, Any]:
  """Converts 'name=value,name=value' to the types of a signature."""
  parameters = inspect.signature(function).parameters
  values = {}
  for argument in filter(None, text.split(',')):
    name, value = schema.parse_assignment(
        argument, usage=f'A config file with arguments has the form '
        f'{path}:name=value,name=value (known: '
        f'{", ".join(parameters) or "none"})')
    try:
      schema.check_name(name, list(parameters), what=f'argument of {path}')
    except UserError as error:
      raise UserError(
          f'{error} Values of the config are set by flags, such as --steps, '
          '--epochs, --lr or --config.SECTION.KEY.') from error
    default = parameters[name].default
    values[name] = schema.convert(
        value, Any if default is inspect.Parameter.empty else type(default),
        where=f'argument {name} of {path}')
  for name, parameter in parameters.items():
    if parameter.default is inspect.Parameter.empty and name not in values:
      raise UserError(f'{path} needs the argument {name}: {path}:{name}=VALUE.')
  return values


def merge(
    base: Mapping[str, Any], change: Mapping[str, Any], *, section: Any,
) -> dict[str, Any]:
  """Returns `base` updated recursively with `change`.

  A duration is replaced as a whole, and so is a section whose `name` changes,
  because SGD lacks the fields of Adam. If `change` has only the name, as with
  a flag, the fields that both records have are kept. A model variant replaces
  the dimensions in `base`.

  Both will be parsed as `section`, a type or a union of types.
  """
  merged, hints = dict(base), _hints(section)
  for key, value in change.items():
    old = base.get(key)
    hint = (typing.get_args(section)[1]  # `evals`: dict[str, EvaluatorConfig].
            if typing.get_origin(section) is dict else hints.get(key))
    if (isinstance(value, Mapping) and isinstance(old, Mapping)
        and not set(value) & set(schema.UNITS)):
      name = value.get('name', old.get('name'))
      if name == old.get('name'):
        if key == 'model' and value.get('variant'):
          # The variant sets them.
          old = tree.without(old, *vit.ViTConfig.dimensions)
        value = merge(old, value, section=hint)
      elif set(value) == {'name'}:
        known = _hints(hint, name=str(name))
        value = {**{k: v for k, v in old.items() if k in known}, 'name': name}
    merged[key] = value
  return merged


def _hints(section: Any, name: str = '') -> Mapping[str, Any]:
  """Returns the field types of a record, by its type or name, or of a union."""
  kinds = {evals.EvaluatorConfig: evals, optim.CommonConfig: optim,
           objectives.ObjectiveConfig: objectives}
  if name and section in kinds:
    section = kinds[section].config_type(name)
  return {key: hint for record in typing.get_args(section) or (section,)
          if dataclasses.is_dataclass(record)
          for key, hint in typing.get_type_hints(record).items()}


def order_stages(stages: Mapping[str, Any]) -> dict[str, Any]:
  """Sorts stages so that each follows the one it starts from.

  A ConfigDict sorts its keys, so the order in the file is lost.
  """
  origins = {name: str(stage.get('init', {}).get('stage', ''))
             for name, stage in stages.items()}
  for name, origin in origins.items():
    if origin:
      schema.check_name(
          origin, list(stages), what=f'stage in init.stage of stage {name!r}')
  sorter = graphlib.TopologicalSorter(
      {name: {origin} - {''} for name, origin in origins.items()})
  try:
    return {name: stages[name] for name in sorter.static_order()}
  except graphlib.CycleError as error:
    raise UserError('Stages start from each other (init.stage): '
                    + ' -> '.join(error.args[1]) + '.') from error


class Difference(NamedTuple):
  """A value in which two plain configs differ.

  Attributes:
    path: its keys, from the outermost section.
    old: its value in the first config; None if it is missing.
    new: its value in the second config.
  """
  path: tuple[str, ...]
  old: Any
  new: Any

  def __str__(self) -> str:
    return f'{".".join(self.path)}: {self.old!r} -> {self.new!r}'


def differences(
    old: Any, new: Any, path: tuple[str, ...] = (),
) -> list[Difference]:
  """Returns the values in which two plain configs, found at `path`, differ."""
  if isinstance(old, Mapping) and isinstance(new, Mapping):
    return [found for key in dict.fromkeys([*old, *new])
            for found in differences(
                old.get(key), new.get(key), (*path, key))]
  return [] if old == new else [Difference(path, old, new)]
