"""Runs sweeps, and prints and draws their results."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
import jax

from vit_jax import console as console_lib
from vit_jax import metrics as metrics_lib
from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.extras.sweep import sweep as sweep_lib
from vit_jax.extras.sweep import sweep_plot
from vit_jax.extras.sweep import tasks as tasks_lib

FIGURE = 'sweep.png'


def run(sweep: grid_lib.Sweep, workdir: epath.Path) -> dict[str, Any]:
  """Runs or resumes a sweep; see `sweep.run`."""
  console_lib.print_lines(
      f'{console_lib.format_count(len(sweep.points), "setting")} trained on '
      f'{sweep.points[0].development.data.split}, selected by '
      f'{sweep.section.metric}, then '
      f'{console_lib.format_count(sweep.section.seeds, "run")} of the best on '
      f'{sweep.config.data.split}.')
  result, declared = sweep_lib.run(sweep, workdir), _declared(sweep)
  _print(sweep, result, declared)
  if jax.process_index() == 0:
    sweep_plot.sweep(
        result, workdir / FIGURE, percent=metrics_lib.find(
            sweep.section.metric, declared).is_fraction)
    _print_paths(workdir)
  return result


def run_tasks(
    tasks: Mapping[str, grid_lib.Sweep], workdir: epath.Path,
) -> dict[str, Any]:
  """Runs or resumes all tasks; prints and draws the results after each."""
  result: dict[str, Any] = {}
  declared = {key: metric for sweep in tasks.values()
              for key, metric in _declared(sweep).items()}
  for result in tasks_lib.run(tasks, workdir):
    name, task = list(result['tasks'].items())[-1]
    _print_cells(result, [
        cell for cell in result['cells'] if cell['task'] == name], declared)
    for warning in sweep_lib.edges(task):
      console_lib.print_lines(f'warning: {warning}.')
    if jax.process_index() == 0:
      sweep_plot.cells(result, workdir / FIGURE, declared=declared)
  _print_cells(result, result['cells'], declared)
  _print_paths(workdir)
  return result


def _print_paths(workdir: epath.Path) -> None:
  print(f'figure   {workdir / FIGURE}\nresults  {workdir / runs.RESULT}')


def _declared(sweep: grid_lib.Sweep) -> dict[str, metrics_lib.Metric]:
  """Returns the metrics of the runs of a sweep."""
  return {**config_lib.declared_metrics(sweep.points[0].development),
          **config_lib.declared_metrics(sweep.config)}


def _print(
    sweep: grid_lib.Sweep, result: Mapping[str, Any],
    declared: Mapping[str, metrics_lib.Metric],
) -> None:
  """Prints the grid, the soup and the final runs."""
  metric, best = sweep.section.metric, result['best']
  is_fraction = metrics_lib.find(metric, declared).is_fraction
  print()
  console_lib.table(
      f'Selected by {metric}', [*best['values'], metric, ''],
      [[*map(str, row['values'].values()),
        'diverged' if row.get('diverged') else console_lib.format_metric(
            row['value'], is_fraction=is_fraction),
        '<- best' if row['name'] == best['name'] else '']
       for row in result['grid']])
  for warning in sweep_lib.edges(result):
    console_lib.print_lines(f'warning: {warning}.')
  if 'soup' in result:
    _print_soup(sweep, result, declared)
  final = result['final']['runs']
  several = len(final) > 1
  console_lib.table(
      f'Trained on {sweep.config.data.split} with '
      + ', '.join(f'{k}={v}' for k, v in best['values'].items())
      + f' ({result["final"]["checkpoint"]})',
      ['metric', *(name.removeprefix('final,') for name in final),
       *['mean ± standard deviation'] * several],
      [[name, *(console_lib.format_metric(m.get(name), is_fraction=percent)
               for m in final.values()),
        *[_format_statistics(values, is_fraction=percent)] * several]
       for name, values in result['final']['statistics'].items()
       if not name.endswith('/examples')
       for percent in [metrics_lib.find(name, declared).is_fraction]])


def _print_cells(
    result: Mapping[str, Any], cells: Sequence[Mapping[str, Any]],
    declared: Mapping[str, metrics_lib.Metric],
) -> None:
  """Prints the results of tasks, a column for each `column` of the cells."""
  columns = list(dict.fromkeys(cell['column'] for cell in cells))
  rows: dict[tuple[str, str], dict[str, str]] = {}
  for cell in cells:
    rows.setdefault((cell['panel'], cell['row']), dict.fromkeys(columns, '–'))[
        cell['column']] = _format_statistics(
            cell, is_fraction=metrics_lib.find(
                cell['metric'], declared).is_fraction)
  print()
  console_lib.table(
      f'Mean ± standard deviation, by {result["columns"]} ('
      + ' or '.join(dict.fromkeys(
          task['final']['checkpoint'] for task in result['tasks'].values()))
      + ')',
      ['', '', *columns],
      [[*headings, *row.values()] for headings, row in rows.items()])


def _print_soup(
    sweep: grid_lib.Sweep, result: Mapping[str, Any],
    declared: Mapping[str, metrics_lib.Metric],
) -> None:
  """Prints the metrics of the mean parameters beside those of the best run."""
  soup, metric = result['soup'], sweep.section.metric
  rows = {metric: (result['best']['value'], soup['value']), **{
      name: (soup['best_metrics'][name], value)
      for name, value in soup['metrics'].items()
      if not name.endswith('/examples')}}
  console_lib.table(
      f'Mean of {len(soup["members"])} of '
      f'{console_lib.format_count(len(result["grid"]), "run")} '
      f'({soup["method"]} soup), written to {soup["folder"]}',
      ['metric', 'best single run', 'soup'],
      [[name, *(console_lib.format_metric(
          value, is_fraction=metrics_lib.find(name, declared).is_fraction)
                for value in values)]
       for name, values in rows.items()])


def _format_statistics(values: Mapping[str, Any], *, is_fraction: bool) -> str:
  """Formats `mean` and `std` of a metric over runs: '97.22 ± 0.13 %'."""
  mean, std = values['mean'], values['std']
  if mean is None or std is None:
    return console_lib.format_metric(mean, is_fraction=is_fraction)
  if is_fraction:
    return f'{100 * mean:.2f} ± {100 * std:.2f} %'
  return f'{console_lib.format_number(mean)} ± {console_lib.format_number(std)}'
