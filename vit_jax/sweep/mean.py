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


def run(sweep: grid_lib.Sweep, workdir: epath.PathLike) -> dict[str, Any]:
  """Runs or resumes a sweep; returns the contents of `sweep.json`.

  Args:
    sweep: a sweep whose result is 'mean'.
    workdir: folder of the sweep.

  Raises:
    ValueError: if a run cannot be built, or the folder holds another sweep.
    health.NonFiniteError: if a run diverges.
    signals.Stopped: after a signal; the same call resumes.
  """
  workdir, plan = epath.Path(workdir), sweep.to_plain()
  runs.read_previous(workdir, plan)
  configs = {name: config for point in sweep.points for name, config in
             sweep.with_seeds(point.name, point.config).items()}
  metrics: dict[str, Mapping[str, float]] = {}
  result: dict[str, Any] = {}
  with signals.catch() as stop:
    experiments = runs.build(configs, workdir)
    for experiment in experiments.values():
      development_split.check_metric(experiment, sweep.section.metric)
    for name, summary in runs.train(
        experiments, list(configs), workdir, stop=stop):
      if isinstance(summary, health.NonFiniteError):
        raise summary
      metrics[name] = summary['metrics']
      result = {'plan': plan, **summarise(sweep, metrics)}
      runs.write(workdir, result)
  return result


def summarise(
    sweep: grid_lib.Sweep, metrics: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
  """Returns the values of finished points, and means of groups and of all.

  Standard deviations are over seeds, of the mean over points.

  Args:
    sweep: a sweep whose result is 'mean'.
    metrics: metrics of each finished run, by name.
  """
  points: dict[str, dict[str, Any]] = {}
  for point in sweep.points:
    rows = [metrics[name] for name in sweep.with_seeds(point.name, point.config)
            if name in metrics]
    if len(rows) == sweep.section.seeds:
      metric = development_split.reported_metric(
          sweep.section.metric, {key.split('/')[0] for key in rows[0]})
      examples = f'{metric.split("/")[0]}/examples'
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

