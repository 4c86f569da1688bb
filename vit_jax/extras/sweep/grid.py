"""Plans a sweep: expands a config file and its section `sweep` into configs."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
import re
from typing import Any

from flax import traverse_util

from vit_jax import exceptions
from vit_jax import schema
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import load_config
from vit_jax.extras.sweep import config as sweep_config
from vit_jax.extras.sweep import development_split


@dataclasses.dataclass(frozen=True)
class Point:
  """A point of the grid.

  Attributes:
    name: name of its run, such as 'learning_rate=0.01'.
    values: resolved values of the swept fields.
    config: config of the final runs, which train on all data.
    development: config of the grid run, which holds out training data.
  """
  name: str
  values: dict[str, Any]
  config: config_lib.Config
  development: config_lib.Config


@dataclasses.dataclass(frozen=True)
class Sweep:
  """A planned sweep.

  Attributes:
    config: config of the first point.
    section: the section `sweep`.
    points: points of the grid, in order.
    mode: 'max' or 'min', for the metric.
  """
  config: config_lib.Config
  section: sweep_config.SweepConfig
  points: tuple[Point, ...]
  mode: str

  def with_seeds(
      self, name: str, config: config_lib.Config,
  ) -> dict[str, config_lib.Config]:
    """Returns the configs of the runs of each seed, by name.

    Few images per class are another sample for each seed.
    """
    def with_seed(seed: int) -> config_lib.Config:
      data = config.data if config.data.examples_per_class is None else (
          dataclasses.replace(config.data, sample_seed=seed))
      return dataclasses.replace(config, seed=seed, data=data)

    return {f'{name},seed={seed}': with_seed(seed)
            for seed in range(config.seed, config.seed + self.section.seeds)}

  def to_plain(self) -> dict[str, Any]:
    """Returns the identity of the sweep as JSON values."""
    config = config_lib.to_plain(self.config)
    grid = {field: list({repr(p.values[field]): p.values[field]
                         for p in self.points}.values())
            for field in self.points[0].values}
    return {
        'grid': grid, 'metric': self.section.metric,
        'seeds': self.section.seeds,
        'development': development_split.overrides(self.config, self.section),
        'config': config}


def plan(
    specification: str, overrides: Sequence[str] = (), *,
    grid: Mapping[str, Sequence[Any]] | None = None, **section: Any,
) -> dict[str, Sweep]:
  """Returns the sweep of each of the `tasks` of a config file, by name.

  A file without tasks gives one sweep under the name ''. Every point of a grid
  is resolved. Weights are opened once, however many points start from them.

  Args:
    specification: see `experiment.config.load`.
    overrides: see `experiment.config.load`; take precedence over tasks.
    grid: values by field, data or texts of flags; override those in the file.
    **section: other keys of the section `sweep`; override those in the file.
  """
  content = config_file.read(specification)
  raw = {**content.get('sweep', {}), **section,
         **({'grid': grid} if grid else {})}
  parsed = _parse_section(raw)
  open_weights = functools.cache(load_config.open_weights)

  def load(
      change: Mapping[str, Any], chosen: Mapping[str, Any],
  ) -> config_lib.Config:
    return load_config.load_one(
        config_lib.merge(content, change), [*overrides, *chosen.items()],
        open_weights=open_weights)

  if not parsed.tasks:
    if not parsed.grid:
      raise UserError(
          f'{specification} has no grid. Use, for example, --grid '
          'optimizer.learning_rate=0.001,0.003,0.01')
    return {'': _plan(functools.partial(load, {}), parsed)}
  sweeps = {}
  for name, task in parsed.tasks.items():
    change = {**task}
    own = _parse_section({**raw, 'tasks': {}, **change.pop('sweep', {})},
                         where=f'sweep.tasks.{name}.sweep')
    with exceptions.within(f'sweep.tasks.{name}'):
      sweeps[name] = _plan(functools.partial(load, change), own)
  return sweeps


def _parse_section(
    raw: Mapping[str, Any], where: str = 'sweep') -> sweep_config.SweepConfig:
  grid = traverse_util.flatten_dict(raw.get('grid', {}), sep='.')
  parsed = schema.parse(
      sweep_config.SweepConfig, {**raw, 'grid': grid}, where=where)
  # Parsing reads texts of flags, which only fields can: '1' may be a name.
  return dataclasses.replace(
      parsed, grid={field: tuple(values) for field, values in grid.items()})


def _plan(
    load: Callable[[Mapping[str, Any]], config_lib.Config],
    parsed: sweep_config.SweepConfig,
) -> Sweep:
  """Plans a grid; `load` returns the config with some overrides."""
  points = _resolve_points(load, parsed)
  first = points[0]
  parsed = dataclasses.replace(
      parsed, metric=parsed.metric or development_split.default_metric(
          first.development))
  modes = [development_split.mode(p.development, parsed.metric) for p in points]
  return Sweep(first.config, parsed, tuple(points), mode=modes[0])


def _resolve_points(
    load: Callable[[Mapping[str, Any]], config_lib.Config],
    section: sweep_config.SweepConfig,
) -> list[Point]:
  points = []
  for values in itertools.product(*section.grid.values()):
    chosen = dict(zip(section.grid, values))
    with exceptions.within('sweep, at ' + ', '.join(
        f'{field}={value}' for field, value in chosen.items())):
      config = load(chosen)
      development = development_split.development_config(config, section)
    plain = traverse_util.flatten_dict(config_lib.to_plain(config), sep='.')
    # Some fields, such as model.variant, are not stored.
    resolved = {
        field: plain.get(field, schema.convert(value, Any, where=field))
        for field, value in chosen.items()}
    points.append(Point(run_name(resolved), resolved, config, development))
  if len({p.name for p in points}) < len(points):
    # Fields with the same last part, long values, or values that differ only in
    # characters that folder names lack.
    points = [dataclasses.replace(p, name=f'{i},{p.name}')
              for i, p in enumerate(points)]
  return points


def run_name(values: Mapping[str, Any]) -> str:
  """Returns 'learning_rate=0.01,mixup=0.2', safe as a folder name."""
  text = ','.join(
      f'{field.split(".")[-1]}={value}' for field, value in values.items())
  name = re.sub(r'[^\w.,=+-]+', '-', text).strip('-')
  # File systems allow 255 bytes; a number may still come before the name.
  return name.encode()[:200].decode(errors='ignore')


def parse_flags(flags: Sequence[str]) -> dict[str, tuple[schema.FlagText, ...]]:
  """Returns values by field from texts such as 'data.mixup=0,0.2'."""
  grid: dict[str, tuple[schema.FlagText, ...]] = {}
  for flag in flags:
    usage = '--grid takes section.key=value,value'
    field, text = schema.parse_assignment(flag, usage=usage)
    values = tuple(map(schema.FlagText, split_values(text)))
    if not all(values):
      raise UserError(f'{usage}, but got {flag!r}.')
    if field in grid:
      raise UserError(f'--grid names {field} twice.')
    grid[field] = values
  return grid


def split_values(text: str) -> list[str]:
  """Splits at commas outside brackets: '[1,2],3' gives two values."""
  values, depth = [''], 0
  for letter in text:
    depth += (letter in '([{') - (letter in ')]}')
    if letter == ',' and not depth:
      values.append('')
    else:
      values[-1] += letter
  return [value.strip() for value in values]
