"""An experiment's config: from a file and flags to typed sections.

    configs/x.py:arguments ─▶ plain data ─▶ stages ─▶ flags ─▶ Config

A config file is Python whose `get_config` returns an `ml_collections`
ConfigDict of plain data; its parameters are the file's arguments. Only what
differs from the defaults need be written. Everything is checked here, once,
before anything is computed.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import importlib.util
import inspect
import json
import pathlib
import sys
import typing
from typing import Any, Literal

import ml_collections

from vit_jax import data
from vit_jax import evals
from vit_jax import models
from vit_jax import objectives
from vit_jax import optim
from vit_jax import schema
from vit_jax.checkpoints import manager
from vit_jax.inference import load as load_lib
from vit_jax.parallel import mesh
from vit_jax.weights import hf_card
from vit_jax.weights import initialize


@dataclasses.dataclass(frozen=True)
class LogConfig:
  """Section `log`.

  Attributes:
    every: how often training metrics are averaged and written.
    stalled_secs: if no step ends for so long, each process says where it
      stands; 0 for never.
    hung_secs: if no step ends for so long, the run ends with status 76, to be
      started again; 0 for never.
    start_secs: the same for each thing of a run's start: the data is opened, a
      checkpoint restored, the step compiled.
  """
  every: schema.Duration = schema.Duration(steps=50)
  stalled_secs: float = 300.0
  hung_secs: float = 1800.0
  start_secs: float = 7200.0

  def __post_init__(self):
    for name in ('stalled_secs', 'hung_secs', 'start_secs'):
      if getattr(self, name) < 0:
        raise ValueError(f'{name} must be at least 0 (never), but is '
                         f'{getattr(self, name)}.')


@dataclasses.dataclass(frozen=True)
class Config:
  """A whole experiment. No part sees more than its own section.

  Attributes:
    total: length of training.
    batch_size: images an update sees, over all devices and parts.
    accumulation: parts a batch is computed in, to save memory; 'auto' is as
      few as fit the devices (`fit_batch`), which is 1 until that is known.
    averaging: factor of the parameters' Polyak average, such as 0.9999, which
      is then what is evaluated: those of k steps ago have its k-th power as
      their weight, and the initial ones none. None keeps no average.
    seed: of initial parameters, data order, augmentation and dropout.
  """
  total: schema.Duration
  batch_size: int
  model: models.ModelConfig
  data: data.DataConfig
  objective: objectives.ObjectiveConfig
  optimizer: optim.Config
  evals: dict[str, evals.EvalConfig]
  init: initialize.InitConfig
  checkpoint: manager.CheckpointConfig
  mesh: mesh.MeshConfig
  log: LogConfig
  card: hf_card.CardConfig
  accumulation: int | Literal['auto'] = 'auto'
  averaging: float | None = None
  seed: int = 0

  @property
  def parts(self) -> int:
    """Parts that a batch is computed in."""
    return 1 if self.accumulation == 'auto' else self.accumulation


_SECTIONS = {
    'model': models.parse,
    'data': data.parse,
    'objective': objectives.parse,
    'optimizer': optim.parse,
    'evals': evals.parse,
    'init': initialize.parse,
    'checkpoint': manager.parse,
    'mesh': mesh.parse,
    'log': lambda section: schema.parse(LogConfig, section, where='log'),
    'card': lambda section: schema.parse(
        hf_card.CardConfig, section, where='card'),
}


def resolve(raw: Mapping[str, Any]) -> Config:
  """Returns plain data as a typed config, defaults filled in.

  Raises:
    ValueError: for whatever is misspelt, missing, of a wrong type, or does not
      go together.
  """
  _check_sections(raw)
  sections = {name: parse(raw.get(name, {}))
              for name, parse in _SECTIONS.items()}
  config = schema.parse(Config, {**raw, **sections}, where='config')
  if config.batch_size < 1 or config.parts < 1:
    raise ValueError(
        'batch_size and accumulation must be at least 1, but are '
        f'{config.batch_size} and {config.accumulation}.')
  if config.batch_size % config.parts:
    raise ValueError(
        f'batch_size {config.batch_size} does not divide into '
        f'{config.accumulation} parts (accumulation).')
  if config.averaging is not None and not 0 < config.averaging < 1:
    raise ValueError(
        f'averaging is a factor between 0 and 1, but is {config.averaging}.')
  _check_best(config)
  return config


def best_mode(config: Config) -> Literal['max', 'min']:
  """Returns whether the metric of the best checkpoint is to rise or to fall."""
  name, _, metric = config.checkpoint.best.partition('/')
  asked = config.checkpoint.best_mode
  return evals.metrics_of(config.evals[name])[metric] if asked == 'auto' else (
      asked)


def _check_sections(raw: Mapping[str, Any]) -> None:
  sections = {name: raw.get(name, {}) for name in _SECTIONS}
  if isinstance(sections['evals'], Mapping):
    sections |= {f'evals.{k}': v for k, v in sections['evals'].items()}
  for name, section in sections.items():
    if not isinstance(section, Mapping):
      raise ValueError(
          f'{name} must be a section with keys, but is {section!r}.')


def _check_best(config: Config) -> None:
  section = config.checkpoint
  name, _, metric = section.best.partition('/')
  if not name:
    return
  if name not in config.evals:
    raise ValueError(
        f'checkpoint.best is {section.best!r}, but no evaluator is called '
        f'{name!r}. Evaluators: {", ".join(config.evals) or "none"}.')
  evaluator = config.evals[name]
  schema.check_name(metric, list(evals.metrics_of(evaluator)),
                     what='metric in checkpoint.best')
  if section.patience is not None and evaluator.every is None:
    raise ValueError(
        f'checkpoint.patience waits for {section.best} to improve, but '
        f'evals.{name} runs at the end alone. Set '
        f'--config.evals.{name}.every.epochs=1 or the like.')


def to_plain(config: Config) -> dict[str, Any]:
  """Returns the config as JSON holds it; `resolve` reads it back."""
  return schema.to_plain(config)


def load(
    specification: str, overrides: Sequence[str] = (),
) -> dict[str, Config]:
  """Returns the stages of a config file, by name.

  Args:
    specification: 'configs/x.py' or 'configs/x.py:name=value,name=value'.
    overrides: 'optimizer.learning_rate=3e-4' for every stage, or
      'stages.pretrain.batch_size=64' for one.

  Returns:
    The config under the name '' where the file has no stages.

  Raises:
    ValueError, FileNotFoundError: as `read_file` and `resolve`.
  """
  raw = read_file(specification)
  raw.pop('sweep', None)  # Says how to run many; `sweep.plan` reads it.
  stages = raw.pop('stages', None) or {'': {}}
  general: list[str] = []
  special: list[str] = []
  for override in overrides:
    (special if override.startswith('stages.') else general).append(override)
  merged = {name: merge(raw, stage) for name, stage in stages.items()}
  for override in general:
    for stage in merged.values():
      _override(stage, override)
  for override in special:
    _, name, rest = (override.split('.', 2) + ['', ''])[:3]
    schema.check_name(name, list(merged), what='stage')
    _override(merged[name], rest)
  resolved: dict[str, Config] = {}
  for name, stage in _in_order(merged).items():
    try:
      resolved[name] = resolve(_inherit_model(stage, resolved))
    except ValueError as error:
      where = f'{specification}, stage {name}' if name else specification
      raise ValueError(f'{where}: {error}') from error
  return resolved


def resolve_with(raw: Mapping[str, Any], overrides: Sequence[str]) -> Config:
  """Returns plain data, such as a saved config, changed by flags and typed."""
  changed = dict(raw)
  for override in overrides:
    _override(changed, override)
  return resolve(changed)


def read_file(specification: str) -> dict[str, Any]:
  """Runs the `get_config` of a config file and returns its plain data.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: for an argument that the file does not take, or of a wrong type.
  """
  path, _, text = specification.partition(':')
  if not pathlib.Path(path).is_file():
    folder = pathlib.Path(path).parent
    known = [str(p) for p in sorted(folder.glob('*.py'))
             if not p.name.startswith('_')] if folder.is_dir() else []
    raise FileNotFoundError(
        f'There is no config file {path}.{schema.nearest(path, known)}')
  spec = importlib.util.spec_from_file_location('config_file', path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  # So that configs can import each other, from wherever they are run.
  sys.path.insert(0, str(pathlib.Path(path).resolve().parent.parent))
  try:
    spec.loader.exec_module(module)
  finally:
    sys.path.pop(0)
  arguments = _arguments(module.get_config, text, path)
  try:
    config = module.get_config(**arguments)
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from error
  if not isinstance(config, ml_collections.ConfigDict):
    raise ValueError(
        f'get_config() of {path} must return an ml_collections.ConfigDict, '
        f'but returned {type(config).__name__}.')
  return _plain(config.to_dict())


def merge(
    base: Mapping[str, Any], change: Mapping[str, Any], *,
    section: Any = Config,
) -> dict[str, Any]:
  """Returns `base` with `change` laid over it, section by section.

  A duration is replaced whole, and so is a section whose `name` changes: the
  keys of an Adam mean nothing to an SGD. Where nothing but the name is said, as
  by a flag, the keys that both have are kept. A model's variant takes the place
  of the dimensions said before it.

  Args:
    base: plain data.
    change: the same.
    section: the types of what the two are.
  """
  merged, hints = dict(base), _hints(section)
  for key, value in change.items():
    old = base.get(key)
    hint = (typing.get_args(section)[1]  # `evals`: any key, one type.
            if typing.get_origin(section) is dict else hints.get(key))
    if (isinstance(value, Mapping) and isinstance(old, Mapping)
        and not set(value) & set(schema.UNITS)):
      name = value.get('name', old.get('name'))
      if name == old.get('name'):
        if key == 'model' and value.get('variant'):
          old = models.without_dimensions(old)
        value = merge(old, value, section=hint)
      elif set(value) == {'name'}:
        known = _hints(hint, name=str(name))
        value = {**{k: v for k, v in old.items() if k in known}, 'name': name}
    merged[key] = value
  return merged


def _hints(section: Any, name: str = '') -> Mapping[str, Any]:
  """Returns the types of a section's keys, of all its records or of one."""
  found: dict[str, Any] = {}
  for record in typing.get_args(section) or (section,):
    # A name of which there is but one record, as a schedule's, is of that.
    if dataclasses.is_dataclass(record) and name in (
        '', getattr(record, 'name', name)):
      found |= typing.get_type_hints(record)
  return found


def differences(old: Any, new: Any, where: str = '') -> list[str]:
  """Returns a line for each value in which two plain configs differ."""
  if isinstance(old, Mapping) and isinstance(new, Mapping):
    keys = dict.fromkeys([*old, *new])
    return [line for key in keys for line in differences(
        old.get(key), new.get(key), f'{where}.{key}' if where else key)]
  return [] if old == new else [f'{where}: {old!r} -> {new!r}']


def _inherit_model(
    raw: Mapping[str, Any], stages: Mapping[str, Config],
) -> Mapping[str, Any]:
  """Fills what a section `model` leaves open from where its run starts."""
  init = initialize.parse(raw.get('init', {}))
  if init.stage:
    source = to_plain(stages[init.stage])
  elif init.checkpoint:
    # Weights of another codebase do not always tell the number of heads.
    heads = {name: int(value) for name, value in raw.get('model', {}).items()
             if name == 'num_heads' and value}
    source = load_lib.find(init.checkpoint, which=init.which, **heads).config
  else:
    return raw
  keeps_best = source.get('checkpoint', {}).get('best')
  if init.which == manager.BEST and not keeps_best:
    raise ValueError(
        f'init.which is best, but {init.stage or init.checkpoint} keeps none: '
        'its checkpoint.best names no metric.')
  return {**raw, 'model': models.inherit(
      raw.get('model', {}), source['model'])}


def _in_order(stages: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the stages so that each comes after the one it starts from.

  The order of the file alone would not do: a ConfigDict sorts its keys.
  """
  done: dict[str, Any] = {}
  origins = {name: str(stage.get('init', {}).get('stage', ''))
             for name, stage in stages.items()}
  while len(done) < len(stages):
    ready = next((name for name in stages
                  if name not in done and origins[name] in ('', *done)), None)
    if ready is None:
      name = next(name for name in stages if name not in done)
      earlier = origins[name]
      raise ValueError(
          f'Stage {name!r} starts from stage {earlier!r}, which '
          + ('starts from it in turn.' if earlier in stages else
             f'does not exist.{schema.nearest(earlier, list(stages))} '
             f'Stages: {", ".join(stages)}.'))
    done[ready] = stages[ready]
  return done


def _override(config: dict[str, Any], text: str) -> None:
  """Applies 'section.key=value' in place."""
  path, equals, value = text.partition('=')
  keys = path.split('.')
  if not equals or not all(keys):
    raise ValueError(
        f'A flag for the config is written --config.section.key=value, but '
        f'is --config.{text}.')
  if keys[0] == 'sweep':
    raise ValueError(
        f'The section sweep has flags of its own, of `main.py sweep`: --grid, '
        f'--seeds, --held-out, --metric; got --config.{text}.')
  schema.check_name(
      keys[0], [*(f.name for f in dataclasses.fields(Config)), 'stages'],
      what='section of the config')
  # `evals` is the one section whose keys are free: a flag may only change
  # what is there, or a misspelt name would add an evaluator.
  if keys[0] == 'evals' and len(keys) > 1:
    schema.check_name(
        keys[1], list(config.get('evals', {})), what='evaluator')
  change: Any = schema.FlagText(value)
  if path in _SECTIONS or keys[0] == 'evals':
    if len(keys) < 3:
      change = _read_section(path, value)
  elif path == 'stages':
    raise ValueError(
        f'Stages are written in the config file, but a flag gives '
        f'--config.{text}. It may change one: '
        '--config.stages.NAME.section.key=value.')
  if path in _SECTIONS:
    config[path] = change  # Whole: a part is changed by its key.
    return
  for key in reversed(keys):
    change = {key: change}
  config.update(merge(config, change))


def _read_section(path: str, text: str) -> dict[str, Any]:
  """Reads a section that a flag gives whole, as Python or JSON writes it."""
  section = schema.convert(schema.FlagText(text), Any, where=path)
  if not isinstance(section, Mapping):
    with contextlib.suppress(ValueError):
      section = json.loads(text)
  if not isinstance(section, Mapping):
    raise ValueError(
        f'{path} is a section with keys, but --config.{path}={text} gives it a '
        f'value. Change a key by --config.{path}.KEY=VALUE, or give the whole '
        f"section as {{'key': value}}.")
  return dict(section)


def _arguments(
    function: Any, text: str, path: str,
) -> dict[str, Any]:
  """Converts 'name=value,name=value' to the types of a signature."""
  parameters = inspect.signature(function).parameters
  values = {}
  for part in filter(None, text.split(',')):
    name, equals, value = part.partition('=')
    if not equals:
      raise ValueError(
          f'Arguments of a config are written {path}:name=value,name=value, '
          f'but one is {part!r}. It takes: {", ".join(parameters) or "none"}.')
    schema.check_name(name, list(parameters), what=f'argument of {path}')
    default = parameters[name].default
    values[name] = schema.convert(
        schema.FlagText(value), type(default),
        where=f'argument {name} of {path}')
  return values


def _plain(value: Any) -> Any:
  """Turns ConfigDicts inside lists into dicts, too."""
  if isinstance(value, ml_collections.ConfigDict):
    return _plain(value.to_dict())
  if isinstance(value, Mapping):
    return {key: _plain(v) for key, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [_plain(v) for v in value]
  return value
