"""Many experiments in one folder, and settings chosen on held-out data.

    every point of a grid ─▶ the best ─▶ trained on all data, seed by seed

Table 4 of arXiv 2010.11929: each setting is trained on a part of the training
split and measured on the rest of it, the development split; the best is then
trained on the whole, several times, and tested. The runs of the grid have no
evaluator of the test split, so nothing can be chosen by it.

Each run is an ordinary experiment in WORKDIR/runs/NAME. One that is finished is
not run again, one that was stopped goes on where it was.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import json
import math
import re
from typing import Any

from etils import epath
import jax
import numpy as np

from vit_jax import config as config_lib
from vit_jax import experiment as experiment_lib
from vit_jax import model as model_lib
from vit_jax import records
from vit_jax import run as run_lib
from vit_jax.checkpoints import manager
from vit_jax.training import health
from vit_jax.training import signals
from vit_jax.training import writer

RUNS, RESULT = 'runs', 'sweep.json'
DEVELOPMENT = 'dev'
# Fields that a sweep sets by itself.
_OWN = ('seed', 'data.split', 'evals')
# What may change between two starts; of a run alone, evaluators may, too.
_WITHOUT_RESULT = tuple(
    key for key in run_lib.WITHOUT_RESULT if key not in ('evals.', 'init.'))


@dataclasses.dataclass(frozen=True)
class SweepConfig:
  """The section `sweep` of a config file; `main.py train` does not read it.

  Attributes:
    grid: values by field, 'optimizer.learning_rate' or nested as the config is
      ({'optimizer': {'learning_rate': [0.01, 0.03]}}); several fields make all
      of their combinations.
    held_out: percent of the training split, from its end, to choose by.
    development: how the runs of the grid differ from the config instead: the
      sections `data` and `evals` ({'data': {'split': 'train800'}, 'evals':
      {'dev': {'split': 'val200'}}}). They have these evaluators alone.
    metric: what to choose by: an evaluator of the grid's runs and its metric.
    seeds: how often the best is trained on all of the data.
  """
  grid: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
  held_out: int = 10
  development: dict[str, Any] = dataclasses.field(default_factory=dict)
  metric: str = f'{DEVELOPMENT}/accuracy'
  seeds: int = 3

  def __post_init__(self):
    if not 0 < self.held_out < 100:
      raise ValueError(
          'held_out is a whole percentage of the training split, from 1 to 99, '
          f'but is {self.held_out}.')
    if self.seeds < 1:
      raise ValueError(f'seeds must be at least 1, but is {self.seeds}.')
    if self.development and 'evals' not in self.development:
      raise ValueError(
          'development says how to train, but has no section evals that says '
          'what to choose by, such as {"dev": {"split": "validation"}}.')
    for field, values in self.grid.items():
      if not values or len(set(map(repr, values))) < len(values):
        raise ValueError(
            f'grid: the values of {field} must be one or more, each once, but '
            f'are {list(values)}.')
      own = next((o for o in _OWN if f'{field}.'.startswith(f'{o}.')), None)
      if own:
        raise ValueError(
            f'grid: {field} cannot be swept, for the sweep itself sets {own}: '
            'held_out (or development) says which data the grid sees, and '
            'seeds how many seeds the final runs have.')


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
    config: the config before any field is swept.
    section: the section `sweep`.
    points: of the grid, in order.
    mode: 'max' or 'min': which value of the metric is the best.
  """
  config: config_lib.Config
  section: SweepConfig
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
        'development': _changes(self.config, self.section),
        'config': config_lib.to_plain(self.config)}


# --------------------------------------------------------------------- planning


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
  parsed = records.parse(SweepConfig, asked, where='sweep')
  if not parsed.grid:
    raise ValueError(
        f'{specification} has no grid of its own to sweep. Give one: --grid '
        'optimizer.learning_rate=0.001,0.003,0.01')
  load = functools.partial(_load, specification)
  base = load(overrides)
  points = []
  for values in itertools.product(*parsed.grid.values()):
    chosen = [f'{field}={value}' for field, value in zip(parsed.grid, values)]
    try:
      # Weights are looked at once, unless the grid is of them.
      config = load([*overrides, *chosen]) if any(
          field.startswith('init') for field in parsed.grid) else (
              config_lib.resolve_with(config_lib.to_plain(base), chosen))
      development = _development(config, parsed)
    except ValueError as error:
      raise ValueError(f'sweep, at {", ".join(chosen)}: {error}') from error
    plain = config_lib.to_plain(config)
    resolved = {field: _look_up(plain, field, value)
                for field, value in zip(parsed.grid, values)}
    points.append(Point(run_name(resolved), resolved, config, development))
  if len({p.name for p in points}) < len(points):
    # 'data.mixup' and 'x.mixup', or texts that only differ in odd characters.
    points = [dataclasses.replace(p, name=f'{i},{p.name}')
              for i, p in enumerate(points)]
  return Sweep(
      base, parsed, tuple(points), mode=_mode(points[0].development, parsed))


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


def _changes(
    config: config_lib.Config, section: SweepConfig) -> dict[str, Any]:
  """Returns how a run of the grid differs from the config."""
  if section.development:
    return dict(section.development)
  split = config.data.split
  if '[' in split:
    raise ValueError(
        f'data.split is {split!r}: of a part of a split, the sweep cannot tell '
        'what else to hold out. Say it in the section `sweep` of the config: '
        "'development': {'data': {'split': ...}, 'evals': {'dev': {'split': "
        '...}}}.')
  kept, end = 100 - section.held_out, '+'.join
  parts = [part.strip() for part in split.split('+')]
  return {
      'data': {'split': end(f'{part}[:{kept}%]' for part in parts)},
      'evals': {DEVELOPMENT: {
          'split': end(f'{part}[{kept}%:]' for part in parts)}}}


def _development(
    config: config_lib.Config, section: SweepConfig) -> config_lib.Config:
  """Returns the config as a run of the grid has it."""
  plain = config_lib.to_plain(config)
  changes = _changes(config, section)
  if plain['checkpoint']['best'].split('/')[0] not in changes['evals']:
    # It is chosen by an evaluator that the grid must not have.
    plain['checkpoint'] |= {'best': '', 'patience': None}
  return config_lib.resolve(
      config_lib.merge({**plain, 'evals': {}}, changes))


def _mode(config: config_lib.Config, section: SweepConfig) -> str:
  """Returns whether to maximise the metric; raises if there is no such one."""
  plain = config_lib.to_plain(config)
  plain['checkpoint'] |= {
      'best': section.metric, 'best_mode': 'auto', 'patience': None}
  try:
    return config_lib.best_mode(config_lib.resolve(plain))
  except ValueError as error:
    raise ValueError(str(error).replace(
        'checkpoint.best', 'sweep.metric')) from error


def _look_up(plain: Mapping[str, Any], field: str, asked: Any) -> Any:
  value: Any = plain
  for key in field.split('.'):
    if not isinstance(value, Mapping) or key not in value:
      return asked  # Such as model.variant: known by what it stands for.
    value = value[key]
  return value


# ---------------------------------------------------------------------- running


def wire(
    configs: Mapping[str, config_lib.Config], workdir: epath.Path,
) -> dict[str, experiment_lib.Experiment]:
  """Returns the experiments of the runs that are not finished, by name.

  Raises:
    ValueError: if one of them does not go together, with its name.
  """
  experiments = {}
  for name, config in configs.items():
    if finished(workdir, name) is not None:
      continue
    try:
      experiments[name] = experiment_lib.build(config)
    except ValueError as error:
      raise ValueError(f'run {name}: {error}') from error
  return experiments


def finished(workdir: epath.Path, name: str) -> dict[str, Any] | None:
  """Returns the summary of a run, or None if it has not come to its end."""
  try:
    return json.loads(
        (workdir / RUNS / name / run_lib.SUMMARY).read_text())
  except (OSError, ValueError):  # A run writes it last of all.
    return None


def train(
    experiments: Mapping[str, experiment_lib.Experiment],
    names: Sequence[str], workdir: epath.Path, *, stop: signals.Stop,
) -> Iterator[tuple[str, dict[str, Any] | health.NonFiniteError]]:
  """Trains runs one after the other; yields each one's name and summary.

  Args:
    experiments: those of `wire`.
    names: of all the runs, finished or not, in order.
    workdir: of the whole.
    stop: says whether a signal came between two runs.

  Yields:
    A run that broke off, since its loss or a gradient was no number, yields
    that error in place of the summary.

  Raises:
    signals.Stopped: if a signal asked for it; the state is saved.
  """
  find = functools.cache(_find)
  for number, name in enumerate(names, start=1):
    stop.check()
    summary = finished(workdir, name)
    if jax.process_index() == 0:
      print(f'\n{name} ({number} of {len(names)})'
            + ': finished before' * (summary is not None), flush=True)
    if summary is not None:
      yield name, summary
      continue
    experiment = experiments[name]
    init = experiment.config.init
    source = find(
        init.checkpoint, init.which,
        getattr(experiment.config.model, 'num_heads', None)
    ) if init.checkpoint else None
    try:
      yield name, run_lib.train(
          experiment, workdir / RUNS / name, title=name, source=source,
          show_parameters=False)
    except health.NonFiniteError as error:
      yield name, error
  stop.check()


def _find(
    checkpoint: str, which: str, num_heads: int | None,
) -> manager.Source | model_lib.Weights:
  heads = {} if num_heads is None else {'num_heads': num_heads}
  return model_lib.find(checkpoint, which=which, **heads)


def check_same(
    path: epath.Path, plan: Mapping[str, Any], *, what: str) -> dict[str, Any]:
  """Returns what an earlier start of the same plan wrote, or {}.

  Raises:
    ValueError: if it was another one, with the differences.
  """
  if not path.exists():
    return {}
  old = json.loads(path.read_text())
  changes = [
      line for line in config_lib.differences(old['plan'], dict(plan))
      if not line.removeprefix('config.').startswith(_WITHOUT_RESULT)]
  if changes:
    raise ValueError(
        f'{path.parent} holds another {what} than this one. Use another '
        '--workdir, or ask for the same:\n  ' + '\n  '.join(changes))
  return old


def statistics(
    summaries: Sequence[Mapping[str, Any]],
) -> dict[str, dict[str, float | None]]:
  """Returns mean and standard deviation of each metric over several runs.

  The deviation is that of a sample, with n - 1; None of a single run.
  """
  metrics = [summary['metrics'] for summary in summaries]
  names = [name for name in metrics[0]
           if all(name in m and m[name] is not None for m in metrics)]
  values = {name: np.array([m[name] for m in metrics]) for name in names}
  return {name: {
      'mean': float(v.mean()),
      'std': float(v.std(ddof=1)) if len(v) > 1 else None}
          for name, v in values.items()}


def run(sweep: Sweep, workdir: epath.PathLike) -> dict[str, Any]:
  """Runs the whole sweep; returns what it also writes to `sweep.json`.

  Raises:
    ValueError: if a run does not go together, the folder is another sweep's,
      or no run of the grid has a result.
    signals.Stopped: if a signal asked for it; the same call goes on.
  """
  with signals.catch() as stop:
    return _run(sweep, epath.Path(workdir), stop)


def _run(
    sweep: Sweep, workdir: epath.Path, stop: signals.Stop) -> dict[str, Any]:
  path = workdir / RESULT
  before = check_same(path, sweep.to_plain(), what='sweep')
  rows = {row['name']: row for row in before.get('grid', ())}
  points = {point.name: point for point in sweep.points}
  experiments = _wire_all(sweep, workdir, [
      name for name in points if not rows.get(name, {}).get('diverged')])
  result: dict[str, Any] = {
      'plan': sweep.to_plain(), 'mode': sweep.mode, 'grid': [], 'best': None,
      'final': None}
  _write(path, {**result, 'grid': list(rows.values())})
  todo = []
  for name, point in points.items():
    rows.setdefault(
        name, {'name': name, 'values': point.values, 'value': None})
    if not rows[name].get('diverged'):
      todo.append(name)
  for name, summary in train(experiments, todo, workdir, stop=stop):
    rows[name] |= _measured(summary, sweep.section.metric)
    result['grid'] = [rows[name] for name in points]
    _write(path, result)
  result['grid'] = [rows[name] for name in points]
  best = _best(result['grid'], sweep)
  finals = sweep.finals(points[best['name']])
  result['best'] = {key: best[key] for key in ('name', 'values', 'value')}
  _write(path, result)
  summaries = {}
  for name, summary in train(
      wire(finals, workdir), list(finals), workdir, stop=stop):
    if isinstance(summary, health.NonFiniteError):
      raise summary
    summaries[name] = summary
  result['final'] = {
      'runs': {name: s['metrics'] for name, s in summaries.items()},
      'statistics': statistics(list(summaries.values()))}
  _write(path, result)
  return result


def _wire_all(
    sweep: Sweep, workdir: epath.Path, names: Sequence[str],
) -> dict[str, experiment_lib.Experiment]:
  """Wires the runs of the grid, and tries a final run of each of its points.

  What cannot run is said before hours are spent on what can.
  """
  experiments = wire({p.name: p.development for p in sweep.points
                      if p.name in names}, workdir)
  for point in sweep.points:
    if point.name in experiments:
      final = wire({f'{point.name}, final': point.config},
                   workdir)[f'{point.name}, final']
      _check_unseen(experiments[point.name], final)
  if not sweep.config.evals:
    raise ValueError(
        'The config has no evaluator for the final runs: its section evals is '
        'empty.')
  return experiments


def _check_unseen(
    development: experiment_lib.Experiment,
    final: experiment_lib.Experiment,
) -> None:
  """Raises if an evaluator of the grid reads what the final runs report on."""
  def seen(experiment: experiment_lib.Experiment) -> dict[tuple, str]:
    # Not every evaluator reads a split of that name.
    return {(getattr(e, 'source', '') or experiment.config.data.source,
             getattr(e, 'split', '') or experiment.dataset.eval_split): name
            for name, e in experiment.config.evals.items()}

  reported = seen(final)
  for (source, split), name in seen(development).items():
    if (source, split) in reported:
      raise ValueError(
          f'sweep.development: the evaluator {name!r} reads {split!r} of '
          f'{source}, which the final runs report on '
          f'({reported[source, split]!r}). Choose by a part of the training '
          'split.')


def _measured(
    summary: Mapping[str, Any] | health.NonFiniteError, metric: str,
) -> dict[str, Any]:
  if isinstance(summary, health.NonFiniteError):
    return {'value': None, 'diverged': str(summary).splitlines()[0]}
  metrics = summary['metrics']
  if metric not in metrics:
    raise ValueError(
        f'sweep.metric is {metric!r}, which is not measured on this data. '
        f'Measured: {", ".join(metrics)}. Choose one of these: --metric.')
  value = metrics[metric]
  usable = value is not None and math.isfinite(value)
  return {'value': value if usable else None, 'metrics': metrics}


def _best(rows: Sequence[Mapping[str, Any]], sweep: Sweep) -> Mapping[str, Any]:
  """Returns the row with the best value, of equal ones the first."""
  usable = [row for row in rows if row['value'] is not None]
  if not usable:
    raise ValueError(
        f'No run of the grid has a value of {sweep.section.metric}: '
        + '; '.join(f'{row["name"]}: {row.get("diverged", "not a number")}'
                    for row in rows))
  choose = max if sweep.mode == 'max' else min
  return choose(usable, key=lambda row: row['value'])


def _write(path: epath.Path, result: Mapping[str, Any]) -> None:
  if jax.process_index() == 0:
    writer.write_json(path, result)
