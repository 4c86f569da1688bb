"""Evaluates a checkpoint with the evaluators of its config.

Weights of another codebase have no config of ours: name one with --config. The
model is then the weights' own, and the rest of the config says on what, and
how, it is measured.
"""

import argparse
import dataclasses
import time

import jax
import numpy as np

from vit_jax import config as config_lib
from vit_jax import experiment as experiment_lib
from vit_jax import model as model_lib
from vit_jax import models
from vit_jax import records
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import pretrained
from vit_jax.checkpoints import sources
from vit_jax.training import progress
from vit_jax.training import writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='a workdir, or one checkpoint in it; or weights of another '
      'codebase, as `convert` reads them')
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
  config, source = _open(args)
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


def _open(
    args: argparse.Namespace,
) -> tuple[config_lib.Config, manager.Source | model_lib.Weights]:
  path = sources.fetch(args.workdir)
  if model_lib.is_run(path):
    source = manager.find(path, which=args.which)
    if 'batch_size' in source.config:  # Not so where `convert` wrote it.
      return _config(args, source), source
  if not args.config:
    raise ValueError(
        f'{args.workdir} was not trained here: there is no config with it that '
        'says on what to measure. Give one: --config=configs/x.py.')
  model = model_lib.load(path, which=args.which)
  config = _config(args, None)
  data = config.data
  for name in ('mean', 'std'):
    theirs = tuple(getattr(model.preprocess, name))
    if not np.allclose(theirs, np.broadcast_to(getattr(data, name), (3,))):
      print(f'note: data.{name} is {getattr(data, name)}, but the weights are '
            f'for {theirs}')
  if data.size != model.resolution and (
      models.grid(model.config, data.size)
      != models.grid(model.config, model.resolution)):
    model = dataclasses.replace(model, params=model_lib.resize(
        model.params, model.config, old=model.resolution, new=data.size,
        method=model.positions))
  config = dataclasses.replace(config, model=model.config)
  return config, model_lib.Weights(
      path=str(path), item=model.origin, params=model.params,
      config=config_lib.to_plain(config))


def _config(
    args: argparse.Namespace, source: manager.Source | None,
) -> config_lib.Config:
  if not args.config:
    assert source is not None
    return config_lib.resolve_with(source.config, args.overrides)
  stages = config_lib.load(args.config, args.overrides)
  if len(stages) == 1 and not args.stage:
    return next(iter(stages.values()))
  records.check_name(args.stage, list(stages), what='stage (--stage)')
  return stages[args.stage]
