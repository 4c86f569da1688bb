"""Runs a sweep: the grid, the selection, the final runs."""

from collections.abc import Callable, Mapping, Sequence
import functools
import math
from typing import Any

from etils import epath

from vit_jax import schema
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.extras.sweep import development_split
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.extras.sweep import soup
from vit_jax.run import log_rows
from vit_jax.run import signals
from vit_jax.training import health


def open_runs(
    sweep: grid_lib.Sweep, workdir: epath.PathLike,
) -> Callable[[signals.StopRequest], dict[str, Any]]:
  """Builds the unfinished runs; returns a function that trains them.

  Raises:
    UserError: if a run cannot be built, or the folder holds another sweep.
  """
  workdir = epath.Path(workdir)
  previous = runs.read_previous(workdir, sweep.to_plain(), sweep.config)
  rows = {row['name']: row for row in previous.get('grid', ())}
  result = {
      'best': None, 'final': None, **previous, 'plan': sweep.to_plain(),
      'mode': sweep.mode, 'grid': [rows.get(point.name, {
          'name': point.name, 'values': point.values, 'value': None})
                                   for point in sweep.points]}
  if sweep.section.soup != 'none':
    soup.check(sweep)
  # Without a grid, there is one point and nothing to select.
  if sweep.section.grid:
    experiments = _build_grid(sweep, workdir, _not_diverged(result))
  else:
    experiments = runs.build(sweep.with_seeds('final', sweep.config), workdir)
    for experiment in experiments.values():
      _check_report(sweep, experiment)
  return functools.partial(_run, sweep, workdir, result, experiments)


def run(sweep: grid_lib.Sweep, workdir: epath.PathLike) -> dict[str, Any]:
  """Runs or resumes a sweep; returns the contents of `sweep.json`.

  Raises:
    UserError: if a run cannot be built, the folder holds another sweep, or no
      run of the grid has a result.
    signals.Stopped: after a signal; the same call resumes.
  """
  with signals.catch() as stop:
    return open_runs(sweep, workdir)(stop)


def _run(
    sweep: grid_lib.Sweep, workdir: epath.Path, result: dict[str, Any],
    experiments: dict[str, build_lib.Experiment],
    stop: signals.StopRequest,
) -> dict[str, Any]:
  """Trains the runs of a sweep; completes and returns its `result`.

  Args:
    sweep: the sweep.
    workdir: its folder.
    result: contents of `sweep.json` so far.
    experiments: unfinished runs of the grid, or without a grid the final runs.
    stop: raises after a signal.
  """
  rows = {row['name']: row for row in result['grid']}
  runs.write(workdir, result)
  best = result['grid'][0]
  if sweep.section.grid:
    for name, summary in runs.train(
        experiments, _not_diverged(result), workdir, stop=stop):
      rows[name] |= _grid_row(summary, sweep.section.metric)
      runs.write(workdir, result)
    best = _best(result['grid'], sweep)
    if result['final'] and (former := result['best']['name']) != best['name']:
      raise UserError(
          f'{workdir} holds final runs of {former}, but {best["name"]} is now '
          'the best: sweeps compare the best checkpoints of runs, no longer '
          'the last. Use another --workdir.')
  result['best'] = {key: best[key] for key in ('name', 'values', 'value')}
  runs.write(workdir, result)
  method = sweep.section.soup
  if method != 'none' and (result.get('soup') or {}).get('method') != method:
    result['soup'] = soup.make(sweep, result['grid'], workdir, stop=stop)
    runs.write(workdir, result)
  point = next(p for p in sweep.points if p.name == best['name'])
  result['final'] = _run_final(sweep, point, workdir, stop, experiments)
  runs.write(workdir, result)
  return result


def _not_diverged(result: Mapping[str, Any]) -> list[str]:
  """Returns the runs of the grid that have not diverged."""
  return [row['name'] for row in result['grid'] if not row.get('diverged')]


def _build_grid(
    sweep: grid_lib.Sweep, workdir: epath.Path, names: Sequence[str],
) -> dict[str, build_lib.Experiment]:
  """Builds the runs of the grid, and checks a final run of each point.

  Errors of any run are raised before the first one is trained.
  """
  experiments = runs.build({p.name: p.development for p in sweep.points
                            if p.name in names}, workdir)
  checked = set()
  for point in sweep.points:
    if point.name not in experiments:
      continue
    experiment, name = experiments[point.name], f'{point.name}, final'
    final = runs.build({name: point.config}, workdir)[name]
    evaluators_lib.check_metric(
        experiment, sweep.section.metric, setting='sweep.metric')
    _check_report(sweep, final)
    # Comparing data may be slow, and most grid fields do not change the data.
    key = repr((experiment.config.data, experiment.config.evals,
                final.config.evals))
    if key not in checked:
      development_split.check_disjoint(experiment, final)
    checked.add(key)
  return experiments


def _check_report(sweep: grid_lib.Sweep, final: build_lib.Experiment) -> None:
  """Raises unless a final run measures the metrics of the table."""
  for metric in sweep.section.report.values():
    evaluators_lib.check_metric(final, metric, setting='sweep.report')


def _run_final(
    sweep: grid_lib.Sweep, best: grid_lib.Point, workdir: epath.Path,
    stop: signals.StopRequest, experiments: dict[str, build_lib.Experiment],
) -> dict[str, Any]:
  """Trains the best point on all data with each seed."""
  configs = sweep.with_seeds('final', best.config)
  if sweep.section.grid:
    experiments = runs.build(configs, workdir)
  summaries = {}
  for name, summary in runs.train(
      experiments, list(configs), workdir, stop=stop):
    if isinstance(summary, health.NonFiniteError):
      raise summary
    summaries[name] = summary
  reported = development_split.reported_evaluators(
      best.config, best.development)
  metrics = {name: log_rows.chosen_metrics(summary)
             for name, summary in summaries.items()}
  return {
      'runs': metrics,
      'checkpoint': ' or '.join(dict.fromkeys(
          map(_chosen_checkpoint, summaries.values()))),
      'statistics': runs.statistics(
          list(metrics.values()), evaluators=reported)}


def _grid_row(
    summary: Mapping[str, Any] | health.NonFiniteError, metric: str,
) -> dict[str, Any]:
  if isinstance(summary, health.NonFiniteError):
    return {'value': None, 'diverged': str(summary).splitlines()[0]}
  metrics = log_rows.chosen_metrics(summary)
  value = metrics[schema.check_name(
      metric, list(metrics), what='metric of the runs (--metric)')]
  finite = value is not None and math.isfinite(value)
  return {'value': value if finite else None, 'metrics': metrics}


def _best(
    rows: Sequence[Mapping[str, Any]], sweep: grid_lib.Sweep,
) -> Mapping[str, Any]:
  """Returns the row with the best value; ties go to the first."""
  usable = [row for row in rows if row['value'] is not None]
  if not usable:
    raise UserError(
        f'No run of the grid has a value of {sweep.section.metric}: '
        + '; '.join(f'{row["name"]}: {row.get("diverged", "not a number")}'
                    for row in rows))
  choose = max if sweep.mode == 'max' else min
  return choose(usable, key=lambda row: row['value'])


def edges(result: Mapping[str, Any]) -> list[str]:
  """Returns a warning for each field whose best value ends its range.

  There is none if another value of the field is as good.
  """
  best = result['best']
  ties = [row['values'] for row in result['grid']
          if row['value'] == best['value']]
  warnings = []
  for field, value in best['values'].items():
    values = [row['values'][field] for row in result['grid']]
    # Nothing lies below 0, such as no mixup.
    if not value or any(type(v) not in (int, float) for v in values):
      continue
    low, high = min(values), max(values)
    if low < high and value in (low, high) and all(
        tie[field] == value for tie in ties):
      word = 'smallest' if value == low else 'largest'
      warnings.append(
          f'{field}={value} is the {word} value of the grid: one beyond it may '
          'be better')
  return warnings


def _chosen_checkpoint(content: Mapping[str, Any]) -> str:
  """Returns 'best checkpoint by val/accuracy' or 'last checkpoint'."""
  best = content.get('best') or {}
  return (f'best checkpoint by {best["metric"]}' if best.get('metrics')
          else 'last checkpoint')
