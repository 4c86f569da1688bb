"""The whole of a sweep: the grid, the choice, the final runs."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax.experiment import build as experiment_lib
from vit_jax.sweep import development_split
from vit_jax.sweep import grid
from vit_jax.sweep import runs
from vit_jax.training import health
from vit_jax.training import signals

RESULT = 'sweep.json'


def run(sweep: grid.Sweep, workdir: epath.PathLike) -> dict[str, Any]:
  """Runs the whole sweep; returns what it also writes to `sweep.json`.

  Raises:
    ValueError: if a run does not go together, the folder is another sweep's,
      or no run of the grid has a result.
    signals.Stopped: if a signal asked for it; the same call goes on.
  """
  with signals.catch() as stop:
    return _run(sweep, epath.Path(workdir), stop)


def _run(
    sweep: grid.Sweep, workdir: epath.Path, stop: signals.StopRequest,
) -> dict[str, Any]:
  path = workdir / RESULT
  before = runs.check_same(path, sweep.to_plain(), what='sweep')
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
  for name, summary in runs.train(experiments, todo, workdir, stop=stop):
    rows[name] |= _measured(summary, sweep.section.metric)
    result['grid'] = [rows[name] for name in points]
    _write(path, result)
  result['grid'] = [rows[name] for name in points]
  best = _best(result['grid'], sweep)
  finals = sweep.finals(points[best['name']])
  result['best'] = {key: best[key] for key in ('name', 'values', 'value')}
  _write(path, result)
  summaries = {}
  for name, summary in runs.train(
      runs.wire(finals, workdir), list(finals), workdir, stop=stop):
    if isinstance(summary, health.NonFiniteError):
      raise summary
    summaries[name] = summary
  result['final'] = {
      'runs': {name: s['metrics'] for name, s in summaries.items()},
      'statistics': runs.statistics(
          list(summaries.values()), of=development_split.reported(
              points[best['name']].config, points[best['name']].development))}
  _write(path, result)
  return result


def _wire_all(
    sweep: grid.Sweep, workdir: epath.Path, names: Sequence[str],
) -> dict[str, experiment_lib.Experiment]:
  """Wires the runs of the grid, and tries a final run of each of its points.

  What cannot run is said before hours are spent on what can.
  """
  experiments = runs.wire({p.name: p.development for p in sweep.points
                           if p.name in names}, workdir)
  checked = set()
  for point in sweep.points:
    if point.name not in experiments:
      continue
    experiment, name = experiments[point.name], f'{point.name}, final'
    final = runs.wire({name: point.config}, workdir)[name]
    development_split.check_measured(experiment, sweep.section.metric)
    # Most fields change nothing of the data, which may take long to compare.
    what = repr((experiment.config.data, experiment.config.evals,
                 final.config.evals))
    if what not in checked:
      development_split.check_unseen(experiment, final)
    checked.add(what)
  return experiments


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


def _best(
    rows: Sequence[Mapping[str, Any]], sweep: grid.Sweep,
) -> Mapping[str, Any]:
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
    atomic_files.write_json(path, result)
