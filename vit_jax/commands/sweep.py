"""Trains every setting of a grid, and the best of them on all of the data.

Each setting is trained on a part of the training split and measured on the
rest; the best is trained on the whole with several seeds and tested. The
config's section `sweep` says how (vit_jax/sweep.py); flags win over it.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax import schema
from vit_jax import sweep as sweep_lib
from vit_jax.analysis import sweep_plot

PICTURE = 'sweep.png'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--config', required=True, metavar='FILE.py[:name=value,...]',
      help='the experiment; change a value by --config.section.key=value')
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='folder of the sweep, with each run in DIR/runs; a sweep that was '
      'stopped goes on from what is there')
  parser.add_argument(
      '--grid', nargs='+', action='extend', default=[],
      metavar='FIELD=VALUE,...',
      help='what to sweep, instead of the grid of the config, such as '
      'optimizer.learning_rate=0.001,0.003; several fields: all combinations')
  parser.add_argument(
      '--seeds', type=int, metavar='N',
      help='how often to train the best on all of the data')
  parser.add_argument(
      '--held-out', type=int, metavar='PERCENT',
      help='how much of the training split to choose by')
  parser.add_argument(
      '--metric', metavar='NAME/METRIC',
      help='what to choose by: an evaluator of the runs of the grid, and its '
      'metric, such as dev/accuracy')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  asked = {key: getattr(args, key) for key in ('seeds', 'held_out', 'metric')
           if getattr(args, key) is not None}
  sweep = sweep_lib.plan(
      args.config, args.overrides, grid=parse_grid(args.grid), **asked)
  workdir = epath.Path(args.workdir)
  if jax.process_index() == 0:
    print(f'{len(sweep.points)} setting(s), chosen by '
          f'{sweep.section.metric} (trained on '
          f'{sweep.points[0].development.data.split}), then '
          f'{sweep.section.seeds} run(s) of the best on '
          f'{sweep.config.data.split}.', flush=True)
  result = sweep_lib.run(sweep, workdir)
  if jax.process_index() == 0:
    _print(sweep, result)
    sweep_plot.sweep(result, workdir / PICTURE)
    print(f'picture  {workdir / PICTURE}\n'
          f'figures  {workdir / sweep_lib.RESULT}')
    if args.json:
      atomic_files.write_json(args.json, result)
  return 0


def parse_grid(flags: list[str]) -> dict[str, tuple[schema.FlagText, ...]]:
  """Returns values by field from texts such as 'data.mixup=0,0.2'.

  Raises:
    ValueError: if one is not written so, or a field comes twice.
  """
  grid: dict[str, tuple[schema.FlagText, ...]] = {}
  for flag in flags:
    usage = '--grid takes section.key=value,value'
    field, text = schema.parse_assignment(flag, usage=usage)
    values = tuple(map(schema.FlagText, split_values(text)))
    if not all(values):
      raise ValueError(f'{usage}, but got {flag!r}.')
    if field in grid:
      raise ValueError(f'--grid names {field} twice.')
    grid[field] = values
  return grid


def split_values(text: str) -> list[str]:
  """Splits at the commas that are in no brackets: '[1,2],3' is two values."""
  values, depth = [''], 0
  for letter in text:
    depth += (letter in '([{') - (letter in ')]}')
    if letter == ',' and not depth:
      values.append('')
    else:
      values[-1] += letter
  return [value.strip() for value in values]


def _print(sweep: sweep_lib.Sweep, result: Mapping[str, Any]) -> None:
  metric, best = sweep.section.metric, result['best']
  print()
  console_lib.table(
      f'Chosen by {metric}', [*best['values'], metric, ''],
      [[*map(_text, row['values'].values()),
        'diverged' if row.get('diverged') else format_value(
            metric, row['value']),
        '<- best' if row['name'] == best['name'] else '']
       for row in result['grid']])
  runs = result['final']['runs']
  rows = [[name, *(format_value(name, m.get(name)) for m in runs.values()),
           format_statistics(name, values)]
          for name, values in result['final']['statistics'].items()
          if not name.endswith('/examples')]
  console_lib.table(
      f'Trained on {sweep.config.data.split} with '
      + ', '.join(f'{k}={_text(v)}' for k, v in best['values'].items()),
      ['metric', *(name.removeprefix('final,') for name in runs),
       'mean ± standard deviation'], rows)


def _text(value: Any) -> str:
  return value if isinstance(value, str) else f'{value!r}'


def format_value(metric: str, value: float | None) -> str:
  """Returns a value as a person reads it; a share as a percentage."""
  if value is None:
    return '–'
  return console_lib.format_metrics(
      {metric: value}).removeprefix(metric).strip()


def format_statistics(
    metric: str, values: Mapping[str, float | None]) -> str:
  """Returns '97.22 ± 0.13 %'."""
  mean, std = values['mean'], values['std']
  assert mean is not None
  text = format_value(metric, mean)
  if std is None:
    return text
  if text.endswith(' %'):
    return f'{100 * mean:.2f} ± {100 * std:.2f} %'
  return f'{text} ± {console_lib.format_number(std)}'
