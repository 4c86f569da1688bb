"""From a config file and its section `sweep` to the runs to make."""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import re
from typing import Any

from vit_jax import schema
from vit_jax.experiment import config as config_lib
from vit_jax.sweep import config as sweep_config
from vit_jax.sweep import development_split


@dataclasses.dataclass(frozen=True)
class Point:
  """One point of the grid.

  Attributes:
    name: of its run, such as 'learning_rate=0.01'.
    values: the swept fields, as resolved.
    config: as asked for: trains on all data, with the config's evaluators.
    development: as its run of the grid is.
  """
  name: str
  values: dict[str, Any]
  config: config_lib.Config
  development: config_lib.Config


@dataclasses.dataclass(frozen=True)
class Sweep:
  """A sweep as planned.

  Attributes:
    config: the config of the first point.
    section: the section `sweep`.
    points: of the grid, in order.
    mode: 'max' or 'min': which value of the metric is the best.
  """
  config: config_lib.Config
  section: sweep_config.SweepConfig
  points: tuple[Point, ...]
  mode: str

  def finals(self, best: Point) -> dict[str, config_lib.Config]:
    """Returns the runs on all of the data, by name."""
    first = best.config.seed
    return {f'final,seed={seed}': dataclasses.replace(best.config, seed=seed)
            for seed in range(first, first + self.section.seeds)}

  def to_plain(self) -> dict[str, Any]:
    """Returns what makes this sweep this one."""
    grid = {field: list({repr(v): v for v in (
        p.values[field] for p in self.points)}.values())
            for field in self.points[0].values}
    return {
        'grid': grid, 'metric': self.section.metric,
        'seeds': self.section.seeds,
        'development': development_split.changes(self.config, self.section),
        'config': config_lib.to_plain(self.config)}


def plan(
    specification: str, overrides: Sequence[str] = (), *,
    grid: Mapping[str, Sequence[str]] | None = None, **section: Any,
) -> Sweep:
  """Returns the sweep of a config file; resolves every point of its grid.

  Args:
    specification: as of `config.load`.
    overrides: the same.
    grid: values by field, instead of the file's.
    **section: other keys of the section `sweep`, instead of the file's.

  Raises:
    ValueError: for a value that its field does not take, and whatever else is
      wrong with the config or the section.
  """
  asked = config_lib.read_file(specification).get('sweep', {})
  asked = {**asked, 'grid': grid or _by_field(asked.get('grid', {})), **section}
  parsed = schema.parse(sweep_config.SweepConfig, asked, where='sweep')
  if not parsed.grid:
    raise ValueError(
        f'{specification} has no grid of its own to sweep. Give one: --grid '
        'optimizer.learning_rate=0.001,0.003,0.01')
  points, base = [], None
  for values in itertools.product(*parsed.grid.values()):
    chosen = [f'{field}={value}' for field, value in zip(parsed.grid, values)]
    try:
      # What other fields follow from is read anew for each point; else files
      # of weights are looked at once. The first point may say what the config
      # leaves open, such as the model.
      if base is None or any(map(_decides_others, parsed.grid)):
        config = _load(specification, [*overrides, *chosen])
      else:
        config = config_lib.resolve_with(config_lib.to_plain(base), chosen)
      held_out = development_split.config_of(config, parsed)
    except ValueError as error:
      raise ValueError(f'sweep, at {", ".join(chosen)}: {error}') from error
    base = base or config
    plain = config_lib.to_plain(config)
    resolved = {field: _look_up(plain, field, value)
                for field, value in zip(parsed.grid, values)}
    points.append(Point(run_name(resolved), resolved, config, held_out))
  if len({p.name for p in points}) < len(points):
    # 'data.mixup' and 'x.mixup', or texts that only differ in odd characters.
    points = [dataclasses.replace(p, name=f'{i},{p.name}')
              for i, p in enumerate(points)]
  first = points[0]
  parsed = dataclasses.replace(
      parsed, metric=parsed.metric or development_split.usual_metric(
          first.development))
  modes = [development_split.mode(p.development, parsed.metric) for p in points]
  return Sweep(first.config, parsed, tuple(points), mode=modes[0])


def _decides_others(field: str) -> bool:
  section, _, key = field.partition('.')
  return section in ('init', 'model') or key.endswith('name')


def run_name(values: Mapping[str, Any]) -> str:
  """Returns 'learning_rate=0.01,mixup=0.2': safe as the name of a folder."""
  text = ','.join(
      f'{field.split(".")[-1]}={value}' for field, value in values.items())
  return re.sub(r'[^\w.,=+-]+', '-', text).strip('-')


def _by_field(grid: Mapping[str, Any], where: str = '') -> dict[str, Any]:
  """Returns a nested grid with the lists under their whole names."""
  flat: dict[str, Any] = {}
  for key, value in grid.items():
    if isinstance(value, Mapping):
      flat |= _by_field(value, f'{where}{key}.')
    else:
      flat[f'{where}{key}'] = value
  return flat


def _load(specification: str, overrides: Sequence[str]) -> config_lib.Config:
  stages = config_lib.load(specification, overrides)
  if list(stages) != ['']:
    raise ValueError(
        f'{specification} has the stages {", ".join(stages)}, but a sweep is '
        'of a config with a single run. Write a file for the stage.')
  return stages['']


def _look_up(plain: Mapping[str, Any], field: str, asked: Any) -> Any:
  value: Any = plain
  for key in field.split('.'):
    if not isinstance(value, Mapping) or key not in value:
      return asked  # Such as model.variant: known by what it stands for.
    value = value[key]
  return value
