"""Typed config of an experiment.

Only values that differ from the defaults need to be in a config file.
Everything is checked here, once, before anything is computed. Parsing reads
no weights and opens no data.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
import typing
from typing import Any, Literal

from vit_jax import data
from vit_jax import evals
from vit_jax import fields
from vit_jax import metrics as metrics_lib
from vit_jax import objectives
from vit_jax import optim
from vit_jax import registry
from vit_jax import schema
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.experiment import config_file
from vit_jax.models import factory
from vit_jax.models import lora_config
from vit_jax.models import model_config
from vit_jax.parallel import mesh
from vit_jax.weights import adapt as adapt_lib

# Settings by key: 'section.key=value', as in flags, or Python values.
Overrides = Sequence[str | tuple[str, Any]] | Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class LogConfig:
  """Section `log`.

  Attributes:
    every: interval at which training metrics are averaged and written; 'auto'
      is 50 steps, or a tenth of a shorter run.
    stalled_secs: if no step ends for this long, each process reports its stack;
      0 for never.
    hung_secs: if no step ends for this long, the run exits with status 76, to
      be restarted; 0 for never.
    start_secs: the same limit for each phase of the start: opening the data,
      restoring a checkpoint, compiling the step.
    wandb: whether to also write metrics to Weights & Biases (`pip install
      wandb`), under an id that depends on the workdir.
  """
  every: schema.Duration | Literal['auto'] = 'auto'
  stalled_secs: float = 300.0
  hung_secs: float = 1800.0
  start_secs: float = 7200.0
  wandb: bool = False

  def __post_init__(self):
    fields.check_range(self, 'stalled_secs', 'hung_secs', 'start_secs')


@dataclasses.dataclass(frozen=True)
class Config:
  """Config of an experiment. Each component sees its own section only.

  Attributes:
    total: length of training.
    batch_size: images per update, over all devices and microbatches.
    accumulation: number of microbatches per batch; 'auto' is the smallest
      number that fits into memory, found when the step is compiled.
    averaging: decay of the Polyak average of the parameters, such as 0.9999;
      the average is then evaluated. None keeps no average.
    seed: seed of initial parameters, data order, augmentation and dropout.
  """
  total: schema.Duration
  batch_size: int
  model: model_config.ModelConfig
  data: data.DataConfig
  objective: objectives.ObjectiveConfig
  optimizer: optim.CommonConfig
  evals: fields.Measured[dict[str, evals.EvaluatorConfig]]
  init: fields.Free[adapt_lib.InitConfig]
  lora: lora_config.LoraConfig
  checkpoint: fields.Free[checkpoint_config.CheckpointConfig]
  mesh: fields.Free[mesh.MeshConfig]
  log: fields.Free[LogConfig]
  card: fields.Free[Any]  # A record of the leaf `cards`.
  accumulation: fields.Free[int | Literal['auto']] = 'auto'
  averaging: float | None = None
  seed: int = 0

  @property
  def num_microbatches(self) -> int:
    """Microbatches per batch."""
    return 1 if self.accumulation == 'auto' else self.accumulation

  @property
  def eval_batch_size(self) -> int:
    """Default batch size of evaluators: a microbatch of training.

    It fits into memory, since gradients take far more than an evaluation.
    """
    return self.batch_size // self.num_microbatches


def _parse_of_leaf(name: str, section: Mapping[str, Any]) -> Any:
  """Returns the record of a section, or without its leaf the section itself."""
  record = registry.optional(registry.SECTIONS[name])
  return schema.parse(record, section, where=name) if record else section


_SECTIONS: Mapping[str, Callable[[Any], Any]] = {
    # Their `name` selects the record.
    'model': factory.parse, 'objective': objectives.parse,
    'optimizer': optim.parse, 'evals': evals.parse, 'data': data.parse,
    **{name: functools.partial(
        schema.parse, typing.get_type_hints(Config)[name], where=name)
       for name in ('init', 'lora', 'checkpoint', 'mesh', 'log')},
    **{name: functools.partial(_parse_of_leaf, name)
       for name in registry.SECTIONS}}


def resolve(raw: Mapping[str, Any]) -> Config:
  """Parses plain data; fills in the defaults.

  Raises:
    UserError: for a misspelt, missing, ill-typed or inconsistent value.
  """
  sections = {
      name: parse(schema.check_section(raw.get(name, {}), where=name))
      for name, parse in _SECTIONS.items()}
  config = schema.parse(Config, {**raw, **sections}, where='config')
  fields.check_range(config, 'batch_size', 'num_microbatches', low=1)
  fields.check_range(config, 'seed', low=-2**31, end=2**32)
  fields.check_range(config, 'averaging', above=0, end=1)
  if config.batch_size % config.num_microbatches:
    raise UserError(
        f'batch_size {config.batch_size} does not divide into '
        f'{config.accumulation} microbatches (accumulation).')
  return config


def check_best(config: Config) -> None:
  """Raises if `checkpoint` names an evaluator that is unknown or runs too late.

  Only for a completed config: data with a validation split add an evaluator.
  """
  for setting, metric in checkpoint_metrics(config):
    section = evaluator_of(config, metric, setting=setting)
    waits = setting.replace('best', 'patience')
    if section.every is None and (
        waits == setting or config.checkpoint.patience is not None):
      raise UserError(
          f'{waits} waits for {metric}, but its evaluator runs at the end only.'
          f' Set --config.evals.{metric.partition("/")[0]}.every.epochs=1 or '
          'similar.')


def checkpoint_metrics(config: Config) -> list[tuple[str, str]]:
  """Returns the keys and metrics that section `checkpoint` names."""
  section = config.checkpoint
  best = [] if section.best in ('', 'auto') else [section.best]
  return [*(('checkpoint.best', metric) for metric in best),
          *(('checkpoint.stop_below', metric)
            for metric, _ in section.stop_below)]


def metric_mode(
    config: Config, metric: str, *, setting: str) -> metrics_lib.Mode:
  """Returns 'max' or 'min' for 'evaluator/metric', the value of `setting`.

  Raises a `UserError` if the config has no such evaluator or metric.
  """
  section = evaluator_of(config, metric, setting=setting)
  modes = {one.name: one.mode for one in _reported(config, section)}
  return modes[schema.check_name(
      metric.partition('/')[2], list(modes), what=f'metric in {setting}')]


def evaluator_of(
    config: Config, metric: str, *, setting: str) -> evals.EvaluatorConfig:
  """Returns the evaluator of 'evaluator/metric', the value of `setting`."""
  name = metric.partition('/')[0]
  if name not in config.evals:
    raise UserError(
        f'{setting} is {metric!r}, but no evaluator is called {name!r}.'
        f'{schema.nearest(name, [*config.evals, *split_strings.VALIDATION])} '
        f'Evaluators: {", ".join(config.evals) or "none"}.')
  return config.evals[name]


def _reported(
    config: Config, section: evals.EvaluatorConfig,
) -> tuple[metrics_lib.Metric, ...]:
  """Returns the metrics that an evaluator declares."""
  return section.metrics() + (
      config.objective.metrics() if section.reports_objective else ())


def declared_metrics(config: Config) -> dict[str, metrics_lib.Metric]:
  """Returns all metrics that a run may report, by 'evaluator/metric'."""
  train = metrics_lib.LOSS, *config.objective.metrics()
  return {f'{name}/{one.name}': one for name, several in (
      ('train', train), *((name, _reported(config, section))
                          for name, section in config.evals.items()))
          for one in several}


def for_evaluation(config: Config) -> Config:
  """Returns the config of a run without what concerns its training only.

  These are the best checkpoint and, unless an evaluator reports the objective,
  the teachers. The length becomes very large: images of another source may be
  too few for a step, or for the warmup. Data determine the classes.
  """
  objective = config.objective
  if not any(section.reports_objective for section in config.evals.values()):
    objective = objective.without_teacher()
  return dataclasses.replace(
      config, objective=objective, total=schema.Duration(steps=2**30),
      model=dataclasses.replace(config.model, num_classes=0),
      checkpoint=checkpoint_config.CheckpointConfig(best=''))


def to_plain(config: Config) -> dict[str, Any]:
  """Returns the config as JSON values; `resolve` reads it back."""
  return schema.to_plain(config)


def merge(
    base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
  """Returns plain data updated with `change`; see `config_file.merge`."""
  return config_file.merge(base, change, section=Config)


def settings(overrides: Overrides) -> list[tuple[str, Any]]:
  """Returns the keys and values; those of texts wait for their field's type."""
  pairs = overrides.items() if isinstance(overrides, Mapping) else overrides
  return [schema.parse_assignment(
      each, usage='Config flags have the form --config.section.key=value')
          if isinstance(each, str) else each for each in pairs]


def resolve_with(raw: Mapping[str, Any], overrides: Overrides) -> Config:
  """Parses plain data, such as a saved config, after applying overrides."""
  changed = dict(raw)
  for path, value in settings(overrides):
    override(changed, path, value)
  return resolve(changed)


def override(config: dict[str, Any], path: str, value: Any) -> None:
  """Sets the key 'section.key' in place, to data or the text of a flag."""
  keys = path.split('.')
  schema.check_name(
      keys[0], [*(f.name for f in dataclasses.fields(Config)), 'stages'],
      what='section of the config')
  # Overrides cannot add evaluators, or a misspelt name would do so.
  if keys[0] == 'evals' and len(keys) > 1:
    schema.check_name(
        keys[1], list(config.get('evals', {})), what='evaluator of the config')
  if isinstance(value, os.PathLike):
    value = os.fspath(value)
  if path in _SECTIONS or (keys[0] == 'evals' and len(keys) == 2):
    # The whole section, from a flag as a Python or JSON dict.
    value = schema.convert(value, dict, where=path)
  elif isinstance(value, Mapping):
    override(config, path, None)  # Replaced as a whole, as by a flag.
  for key in reversed(keys):
    value = {key: value}
  config.update(value if path in _SECTIONS else merge(config, value))
