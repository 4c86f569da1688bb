"""Selects the best setting of a grid; trains with it on all data.

Each setting is trained on a part of the training split and evaluated on the
rest; the best one is trained on the whole split with several seeds and tested.
The section `sweep` of the config sets the details; flags take precedence. With
`tasks`, as in configs/vtab.py and configs/transfer.py, each task has its own
selection, and results are averaged over tasks.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath

  from vit_jax.extras.sweep import grid as grid_lib
  from vit_jax.extras.sweep import report


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
      args.config, args.overrides, grid=grid_lib.parse_flags(args.grid),
      **section)
  return 0, (report.run(sweeps[''], workdir) if '' in sweeps
             else report.run_tasks(sweeps, workdir))
