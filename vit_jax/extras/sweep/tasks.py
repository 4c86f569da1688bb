"""One sweep for each of several tasks, and the table of their results.

Each task is a sweep in WORKDIR/tasks/NAME, with its own selection and files.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath
import jax
import numpy as np

from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.extras.sweep import sweep as sweep_lib
from vit_jax.run import signals

TASKS = 'tasks'
MEAN = 'mean'  # Panel of the means over the other panels.


def run(
    tasks: Mapping[str, grid_lib.Sweep], workdir: epath.PathLike,
) -> Iterator[dict[str, Any]]:
  """Runs or resumes each task; yields the contents of `sweep.json` after it.

  Raises errors and `signals.Stopped` as `sweep.run`. Errors in the data or
  settings of any task are raised before the first one is trained.
  """
  workdir = epath.Path(workdir)
  for sweep in tasks.values():
    for metric in sweep.section.report.values():
      config_lib.metric_mode(sweep.config, metric, setting='sweep.report')
  with signals.catch() as stop:
    opened = runs.for_each(lambda name: sweep_lib.open_runs(
        tasks[name], workdir / TASKS / name), tasks, what='task')
    done: dict[str, Any] = {}
    for name, sweep in tasks.items():
      if jax.process_index() == 0:
        print(f'\nTask {name} ({len(done) + 1} of {len(tasks)})', flush=True)
      found = opened.pop(name)(stop)
      done[name] = {key: found[key] for key in ('best', 'grid', 'final')}
      result = {'columns': sweep.section.columns, 'tasks': done,
                'cells': cells(tasks, done)}
      runs.write(workdir, result)
      yield result


def cells(
    tasks: Mapping[str, grid_lib.Sweep], done: Mapping[str, Any],
) -> list[dict[str, Any]]:
  """Returns the cells of the table, by panel, and their means over panels.

  A deviation is over runs, or over the samples of one run. A mean over panels
  is given once each panel has the cell; its deviation is over seeds, if all
  have as many. Metrics that are not numbers have no mean.
  """
  found = []
  for name, task in done.items():
    for label, metric in tasks[name].section.report.items():
      metrics = list(task['final']['runs'].values())
      values = [each[metric] for each in metrics]
      statistics = runs.mean_and_std(values if None not in values else ())
      if len(values) == 1:
        statistics['std'] = metrics[0].get(f'{metric}_std')
      panel, row, column = label.split('/')
      found.append({'task': name, 'panel': panel, 'row': row, 'column': column,
                    'metric': metric, 'runs': values, **statistics})
  panels = list(dict.fromkeys(cell['panel'] for cell in found))
  found.sort(key=lambda cell: panels.index(cell['panel']))
  totals = collections.Counter(
      label.partition('/')[2] for label in {
          label for sweep in tasks.values() for label in sweep.section.report})
  groups: dict[str, list[dict[str, Any]]] = {}
  for cell in found:
    groups.setdefault(f'{cell["row"]}/{cell["column"]}', []).append(cell)
  return found + [
      {**group[0], 'task': None, 'panel': MEAN, **_mean(group)}
      for name, group in groups.items() if len(group) == totals[name] > 1]


def _mean(group: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
  """Returns mean and deviation over panels."""
  means = [cell['mean'] for cell in group]
  if None in means:
    return runs.mean_and_std(())
  if len({len(cell['runs']) for cell in group}) > 1:
    return {**runs.mean_and_std(means), 'std': None}
  return runs.mean_and_std(
      np.mean([cell['runs'] for cell in group], axis=0).tolist())
