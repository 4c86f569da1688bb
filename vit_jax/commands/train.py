"""Trains the stages of a config, each after the one it starts from."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Mapping
import time
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath
  import jax

  from vit_jax import console as console_lib
  from vit_jax.run import signals
  from vit_jax.run import stages as stages_lib
  from vit_jax.run import workdir as workdir_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_run(parser, folder='folder for checkpoints, metrics and curves')
  parser.add_argument(
      '--profile', type=int, default=0, metavar='STEPS',
      help='write a profile of this many steps to WORKDIR/profile, for '
      'TensorBoard and Perfetto')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  workdir, start = epath.Path(args.workdir).expanduser(), time.monotonic()
  with signals.catch():  # Includes the time between stages.
    summaries, declared = stages_lib.train(
        args.config, args.overrides, workdir, profile_steps=args.profile)
    if jax.process_index() == 0:
      _print_summary(
          summaries, stages_lib.rows(summaries, workdir, declared), workdir,
          secs=time.monotonic() - start)
  return 0, summaries.get('', {'stages': summaries})


def _print_summary(
    summaries: Mapping[str, Any], rows: list[list[Any]], workdir: epath.Path,
    *, secs: float,
) -> None:
  # Without a best checkpoint, its columns are left out.
  columns = slice(None if any(row[-1] is not None for row in rows) else -2)
  print()
  trained = sum(summary['secs'] for summary in summaries.values())
  console_lib.table(
      f'Summary (this start: {console_lib.format_secs(secs)}; training in all '
      f'starts: {console_lib.format_secs(trained)})',
      stages_lib.COLUMNS[columns], [row[columns] for row in rows])
  hours: collections.Counter[str] = collections.Counter()
  for summary in summaries.values():
    hours.update(summary['core_hours_by_kind'])
  exaflops = sum(summary['exaflops'] for summary in summaries.values())
  cost = ' and '.join(
      f'{console_lib.format_number(value)} core-hours on {kind}'
      for kind, value in hours.items())
  print(f'cost     {console_lib.format_flops(1e18 * exaflops)}, {cost}')
  for name in (workdir_lib.CURVES, workdir_lib.SUMMARY):
    if (workdir / name).exists():
      print(f'{name.partition(".")[0]:8} {workdir / name}')
