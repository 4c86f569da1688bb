"""Means over the points of a grid, as in a benchmark of several datasets.

Every point is trained on all data with each seed; nothing is selected.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
import numpy as np

from vit_jax.run import signals
from vit_jax.sweep import development_split
from vit_jax.sweep import grid as grid_lib
from vit_jax.sweep import runs
from vit_jax.training import health


def run(
    sweep: grid_lib.Sweep, workdir: epath.PathLike, *,
    skip_missing: bool = False,
) -> dict[str, Any]:
  """Runs or resumes a sweep; returns the contents of `sweep.json`.

  Args:
    sweep: a sweep whose result is 'mean'.
    workdir: folder of the sweep.
    skip_missing: leaves out points without data, unless all lack it.

  Raises:
    ValueError: if a run cannot be built, data is missing, or the folder holds
      another sweep.
    health.NonFiniteError: if a run diverges.
    signals.Stopped: after a signal; the same call resumes.
  """
  workdir, plan = epath.Path(workdir), sweep.to_plain()
  runs.read_previous(workdir, plan)
  configs = {name: config for point in sweep.points for name, config in
             sweep.with_seeds(point.name, point.config).items()}
  metrics: dict[str, Mapping[str, float]] = {}
  missing: dict[str, str] = {}
  result: dict[str, Any] = {}
  with signals.catch() as stop:
    experiments = runs.build(configs, workdir, missing)
    if missing and not (skip_missing and len(missing) < len(configs)):
      raise ValueError(_how_to_prepare(missing, total=len(configs)))
    for experiment in experiments.values():
      development_split.check_metric(experiment, sweep.section.metric)
    print_skipped(sweep, missing)
    for name, summary in runs.train(
        experiments, [name for name in configs if name not in missing],
        workdir, stop=stop):
      if isinstance(summary, health.NonFiniteError):
        raise summary
      metrics[name] = summary['metrics']
      result = {
          'plan': plan, **summarise(sweep, metrics), 'missing': missing}
      runs.write(workdir, result)
  return result


def print_skipped(sweep: grid_lib.Sweep, missing: Mapping[str, str]) -> None:
  """Prints each point with missing data once, whatever its number of seeds.

  Args:
    sweep: a sweep whose result is 'mean'.
    missing: commands that prepare the data, by name of the run.
  """
  for point in sweep.points:
    names = sweep.with_seeds(point.name, point.config)
    for command in {missing[name] for name in names if name in missing}:
      print(f'skipped: {point.name}, which needs\n  {command}')


def summarise(
    sweep: grid_lib.Sweep, metrics: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
  """Returns the values of finished points, and means of groups and of all.

  Standard deviations are over seeds, of the mean over points.

  Args:
    sweep: a sweep whose result is 'mean'.
    metrics: metrics of each finished run, by name.
  """
  metric = sweep.section.metric
  examples = f'{metric.split("/")[0]}/examples'
  points: dict[str, dict[str, Any]] = {}
  for point in sweep.points:
    rows = [metrics[name] for name in sweep.with_seeds(point.name, point.config)
            if name in metrics]
    if len(rows) == sweep.section.seeds:
      values = [row[metric] for row in rows]
      points[point.name] = {
          'values': point.values, 'examples': rows[0].get(examples),
          'runs': values, **runs.mean_and_std(values)}
  groups = {
      name: mean_of([row for row in points.values() if any(
          value in members for value in row['values'].values())], len(members))
      for name, members in sweep.section.groups.items()}
  total = sum(group['total'] for group in groups.values())
  return {'points': points, 'groups': groups,
          'mean': mean_of(list(points.values()), total or len(sweep.points))}


def mean_of(points: Sequence[Mapping[str, Any]], total: int) -> dict[str, Any]:
  """Returns the mean of points, and its deviation over seeds."""
  means = np.mean([point['runs'] for point in points], axis=0) if points else ()
  return {'count': len(points), 'total': total,
          **runs.mean_and_std([float(mean) for mean in means])}


def _how_to_prepare(missing: Mapping[str, str], *, total: int) -> str:
  by_command: dict[str, list[str]] = {}
  for name, command in missing.items():
    by_command.setdefault(command, []).append(name)
  return '\n'.join([
      f'{len(missing)} of the {total} runs have no data here. Prepare it once, '
      'on any machine, with',
      '  pip install tensorflow tensorflow-datasets',
      *(f'  {command}\n    ({", ".join(names)})'
        for command, names in by_command.items()),
      'or set the directory that has it: --config.data.data_dir=DIR'
      + ('.' if len(missing) == total else
         ', or skip those without data by --skip-missing; their mean cannot be '
         'compared with the mean of all.')])
