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

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax import metrics as metrics_lib
  from vit_jax import run as run_lib
  from vit_jax import spelling
  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import fit_weights
  from vit_jax.experiment import load_config
  from vit_jax.run import curves as plots
  from vit_jax.run import initial_weights
  from vit_jax.run import signals
  from vit_jax.run import watchdog as watchdog_lib
  from vit_jax.run import workdir as workdir_lib
  from vit_jax.run import writer as writer_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_run(
      parser, folder='folder for checkpoints, metrics and curves')
  parser.add_argument(
      '--profile', type=int, default=0, metavar='STEPS',
      help='write a profile of this many steps to WORKDIR/profile, for '
      'TensorBoard and Perfetto')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  with signals.catch():  # Includes the time between stages.
    return 0, _train(args)


def _train(args: argparse.Namespace) -> dict[str, Any]:
  opener = load_config.opener()
  stages = load_config.load(args.config, args.overrides, open_weights=opener)
  if any(config.log.wandb for config in stages.values()):
    writer_lib.import_wandb()
  workdir = epath.Path(args.workdir).expanduser()
  if not workdir.exists() and (hint := spelling.hint(args.workdir)):
    console_lib.print_lines(f'note: the run in {workdir} is new.{hint}')
  start = time.monotonic()
  summaries: dict[str, Any] = {}
  declared: dict[str, metrics_lib.Metric] = {}
  # All stages are built first, so that errors in any of them appear at once.
  log = next(iter(stages.values())).log
  print('opening the data', flush=True)
  with watchdog_lib.Watchdog(log, 'opening the data'):
    experiments = {
        name: build_lib.build(config, earlier=workdir_lib.read(
            workdir / name / workdir_lib.CONFIG))
        for name, config in stages.items()}
  for experiment in experiments.values():
    earlier = experiment.config.init.stage
    if earlier:
      fit_weights.check(experiment, experiments[earlier])
  for name in stages:
    if name:
      print(f'\nStage {name}', flush=True)
    # A finished stage is not kept: its compiled programs take memory.
    experiment, path = experiments.pop(name), workdir / name
    declared |= config_lib.declared_metrics(experiment.config)
    summaries[name] = run_lib.train(
        experiment, path, title=name, profile_steps=args.profile,
        weights=initial_weights.open_weights(
            experiment.config, path, opener))
  if jax.process_index() == 0:
    if list(stages) != ['']:
      atomic_files.write_json(
          workdir / workdir_lib.SUMMARY, {'stages': summaries})
      plots.curves(
          {name: writer_lib.read_rows(workdir / name) for name in summaries},
          workdir / workdir_lib.CURVES, declared=declared.values())
    _print_summary(
        summaries, workdir, declared, secs=time.monotonic() - start)
  return summaries.get('', {'stages': summaries})


def _print_summary(
    summaries: Mapping[str, Any], workdir: epath.Path,
    declared: Mapping[str, metrics_lib.Metric], *, secs: float,
) -> None:
  rows = []
  shown = {one.name for one in declared.values() if one.title} - {'loss'}
  for name, summary in summaries.items():
    best, metrics = summary['best'] or {}, summary['metrics']
    best_values = {**best.get('metrics', {}), best.get('metric'): best.get(
        'value')}
    start = [name or workdir.name, summary['steps'], metrics.get('train/loss')]
    held_out = [key for key in metrics if not (
        key.startswith('train/') or key.endswith('/examples'))]
    keys = [key for key in held_out if (
        key.partition('/')[2] in shown or key.endswith('_shot')
        or key in best_values)] or [
            key for key in held_out if key.endswith('/loss')]
    rows += [[*start, key, *(
        console_lib.format_metric(
            values.get(key),
            is_fraction=metrics_lib.find(key, declared).is_fraction)
        for values in (metrics, best_values)), best.get('step')]
             for key in keys] or [[*start, None, None, None, None]]
  # Without a best checkpoint, its columns are left out.
  columns = slice(None if any(row[-1] is not None for row in rows) else -2)
  print()
  trained = sum(summary['secs'] for summary in summaries.values())
  console_lib.table(
      f'Summary (this start: {console_lib.format_secs(secs)}; training in all '
      f'starts: {console_lib.format_secs(trained)})',
      ['stage', 'steps', 'train loss', 'held out', 'last', 'best', 'of step'
       ][columns], [row[columns] for row in rows])
  hours: collections.Counter[str] = collections.Counter()
  for summary in summaries.values():
    hours.update(summary['core_hours_by_kind'])
  exaflops = sum(summary['exaflops'] for summary in summaries.values())
  cost = ' and '.join(
      f'{console_lib.format_number(value)} core-hours on {kind}'
      for kind, value in hours.items())
  print(f'cost     {console_lib.format_flops(1e18 * exaflops)}, {cost}\n'
        f'curves   {workdir / workdir_lib.CURVES}\n'
        f'summary  {workdir / workdir_lib.SUMMARY}')
