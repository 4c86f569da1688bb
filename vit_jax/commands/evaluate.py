"""Evaluates a checkpoint with the evaluators of its config."""

import argparse
import time

import jax

from vit_jax import config as config_lib
from vit_jax import experiment as experiment_lib
from vit_jax import records
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import pretrained
from vit_jax.training import progress
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='a workdir, or one checkpoint in it')
  parser.add_argument(
      '--which', choices=(manager.LATEST, manager.BEST), default=manager.LATEST,
      help='which checkpoint of the workdir (default: %(default)s)')
  parser.add_argument(
      '--config', default='', metavar='FILE.py[:name=value,...]',
      help='the experiment; by default the config saved with the checkpoint. '
      'Change a value of either by --config.section.key=value')
  parser.add_argument(
      '--stage', default='', metavar='NAME',
      help='which stage, where --config has several')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  source = manager.find(args.workdir, which=args.which)
  config = _config(args, source)
  if not config.evals:
    raise ValueError(
        'The config has no evaluator: its section evals is empty.')
  experiment = experiment_lib.build(config)
  # As trained, and whole: at another resolution only the positions differ.
  params, rows = experiment.adapt(
      source.load(), source.config, config=pretrained.InitConfig(
          new=(), ignored=(), positions=config.init.positions),
      initial=experiment.abstract_state.params)
  for row in rows:
    if row.status != 'loaded':
      print(f'{row.status} {row.name}: {row.source} -> {row.target}')
  metrics: dict[str, float] = {}
  for name, evaluator in experiment.evaluators.items():
    start = time.monotonic()
    measured = evaluator(params)
    secs = time.monotonic() - start
    metrics |= {f'{name}/{key}': value for key, value in measured.items()}
    progress.table(
        f'{name}: {config.evals[name].source or config.data.source} '
        f'{config.evals[name].split or experiment.dataset.eval_split}, '
        f'{measured["examples"]:,} images in {secs:.1f} s',
        ['metric', 'value'],
        [row.rsplit(' ', 1) if not row.endswith('%') else row.split(' ', 1)
         for row in progress.format_metrics(measured).split(', ')])
  print(f'checkpoint  {source.path} ({source.item})')
  if args.json and jax.process_index() == 0:
    writer.write_json(args.json, {
        'checkpoint': str(source.path), 'parameters': source.item,
        'metrics': metrics})
  return 0


def _config(
    args: argparse.Namespace, source: manager.Source,
) -> config_lib.Config:
  if not args.config:
    return config_lib.resolve_with(source.config, args.overrides)
  stages = config_lib.load(args.config, args.overrides)
  if len(stages) == 1 and not args.stage:
    return next(iter(stages.values()))
  records.check_name(args.stage, list(stages), what='stage (--stage)')
  return stages[args.stage]
