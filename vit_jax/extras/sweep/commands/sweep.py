"""Selects the best setting of a grid; trains with it on all data.

Each setting is trained on a part of the training split and evaluated on the
rest; the best one is trained on the whole split with several seeds and tested.
The section `sweep` of the config sets the details; flags take precedence. With
`tasks`, as in configs/vtab.py and configs/transfer.py, each task has its own
selection, and results are averaged over tasks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epy

from vit_jax import schema
from vit_jax.commands import arguments
from vit_jax.exceptions import UserError

with epy.lazy_imports():
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_run(
      parser, folder='folder of the sweep, with each run in DIR/runs')
  parser.add_argument(
      '--grid', nargs='+', action='extend', default=[],
      metavar='FIELD=VALUE,...',
      help='grid that replaces that of the config, such as '
      'optimizer.learning_rate=0.001,0.003 or, log-spaced, =log:0.001:0.1:3; '
      'with several fields, all combinations are trained')
  parser.add_argument(
      '--seeds', type=int, metavar='N',
      help='number of final runs with the best setting (default: as in the '
      'config)')
  parser.add_argument(
      '--held-out', type=int, metavar='PERCENT',
      help='percentage of the training split that is held out for the '
      'selection (default: as in the config)')
  parser.add_argument(
      '--metric', metavar='NAME/METRIC',
      help='metric for the selection, as evaluator and metric of the grid '
      'runs: dev/accuracy')
  parser.add_argument(
      '--soup', choices=('greedy', 'uniform'),
      help='also average the parameters of the grid runs (model soups, arXiv '
      '2203.05482): of all, or of those that improve the metric')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  section = {
      key: getattr(args, key) for key in ('seeds', 'held_out', 'metric', 'soup')
      if getattr(args, key) is not None}
  workdir = epath.Path(args.workdir).expanduser()
  sweeps = grid_lib.plan(
      args.config, args.overrides, grid=parse_grid(args.grid), **section)
  if '' not in sweeps:
    return 0, _run_tasks(sweeps, workdir)
  sweep = sweeps['']
  console_lib.print_lines(
      f'{console_lib.format_count(len(sweep.points), "setting")} trained on '
      f'{sweep.points[0].development.data.split}, selected by '
      f'{sweep.section.metric}, then '
      f'{console_lib.format_count(sweep.section.seeds, "run")} of the best on '
      f'{sweep.config.data.split}.')
  result = sweep_lib.run(sweep, workdir)
  _print(sweep, result)
  if jax.process_index() == 0:
    sweep_plot.sweep(
        result, workdir / FIGURE, percent=metrics_lib.find(
            sweep.section.metric, _declared(sweep)).is_fraction)
    print(f'figure   {workdir / FIGURE}\n'
          f'results  {workdir / runs.RESULT}')
  return 0, result


def _run_tasks(
    tasks: Mapping[str, grid_lib.Sweep], workdir: epath.Path) -> Any:
  """Runs all tasks; draws and prints the results of each."""
  result: Any = {}
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
  print(f'figure   {workdir / FIGURE}\nresults  {workdir / runs.RESULT}')
  return result


def parse_grid(flags: list[str]) -> dict[str, tuple[schema.FlagText, ...]]:
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


def _declared(sweep: grid_lib.Sweep) -> dict[str, metrics_lib.Metric]:
  """Returns the metrics of the runs of a sweep."""
  return {**config_lib.declared_metrics(sweep.points[0].development),
          **config_lib.declared_metrics(sweep.config)}


def _print(sweep: grid_lib.Sweep, result: Mapping[str, Any]) -> None:
  metric, best = sweep.section.metric, result['best']
  declared = _declared(sweep)
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
  runs = result['final']['runs']
  several = len(runs) > 1
  console_lib.table(
      f'Trained on {sweep.config.data.split} with '
      + ', '.join(f'{k}={v}' for k, v in best['values'].items())
      + f' ({result["final"]["checkpoint"]})',
      ['metric', *(name.removeprefix('final,') for name in runs),
       *['mean ± standard deviation'] * several],
      [[name, *(console_lib.format_metric(m.get(name), is_fraction=percent)
               for m in runs.values()),
        *[_format_statistics(values, is_fraction=percent)] * several]
       for name, values in result['final']['statistics'].items()
       if not name.endswith('/examples')
       for percent in [metrics_lib.find(name, declared).is_fraction]])


def _print_cells(
    result: Mapping[str, Any], cells: Sequence[Mapping[str, Any]],
    declared: Mapping[str, metrics_lib.Metric],
) -> None:
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
