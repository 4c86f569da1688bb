"""Evaluates a checkpoint with the evaluators of its config, or others.

    python main.py evaluate --workdir=runs/x --evaluators=fewshot,knn

Weights of other codebases need --config: the model comes from the weights, data
and evaluators from the config. Classes of the head and of the data are matched
by name. Few-shot and k-NN evaluation do not use the head.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from etils import epy

from vit_jax import registry
from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath

  from vit_jax import console as console_lib
  from vit_jax.experiment import config as config_lib
  from vit_jax.run import evaluate_weights
  from vit_jax.run import watchdog as watchdog_lib
  from vit_jax.weights import weights as weights_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='a workdir, one of its checkpoints, or weights of another codebase')
  arguments.add(parser, '--which')
  arguments.add_config(
      parser, 'config file (default: the config saved with the checkpoint)',
      required=False)
  parser.add_argument(
      '--evaluators', default='', metavar='NAME,...',
      help='evaluators of the config, by their names there, or others with '
      'default settings, such as confusion (also names the images of the '
      'largest losses), fewshot or imagenet_v2: docs/evaluation.md. Override '
      "a setting by --config.evals.fewshot.shots='[1,5]'")
  parser.add_argument(
      '--source', default='', metavar='DATA',
      help='evaluate on a table of images, a folder or another dataset, as in '
      'data.source; its classes are matched by name')
  parser.add_argument(
      '--output', default='', metavar='DIR',
      help='folder for figures (default: `evals` in the workdir)')
  arguments.add(parser, '--flip', '--text-embeddings', '--labels')
  if thresholds := registry.optional(registry.THRESHOLDS):
    thresholds.add_arguments(parser)
  parser.add_argument(
      '--stage', default='', metavar='NAME',
      help='stage: with --config, one of the config; without, a subfolder of '
      'the workdir')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  if args.stage and not args.config:
    args.workdir = os.path.join(args.workdir, args.stage)
  # The time limits of the run's config are not known yet.
  with watchdog_lib.Watchdog(
      config_lib.LogConfig(), 'finding the checkpoint'):
    weights = _open(args)
    config = evaluate_weights.config_for(
        weights, args.config, evaluators=args.evaluators.split(','),
        overrides=args.overrides, stage=args.stage, source=args.source,
        flip=args.flip)
  if thresholds := registry.optional(registry.THRESHOLDS):
    config = thresholds.configure(args, config, weights)
  run_folder = arguments.run_folder(args.workdir)
  output = (epath.Path(args.output) if args.output else
            run_folder and run_folder / 'evals')
  results = evaluate_weights.evaluate(
      config, weights, prints=True, output=output)
  if thresholds:
    thresholds.store_results(args, weights, results)
  print(f'checkpoint  {weights.address} ({weights.kind})')
  return 0, results


def _open(args: argparse.Namespace) -> weights_lib.Weights:
  """Opens the weights; those of a run say what was found."""
  if args.text_embeddings or args.labels:
    return arguments.load_model(args, args.workdir)
  weights = evaluate_weights.open_weights(args.workdir, which=args.which)
  for note in weights.notes if weights.run else ():  # Others have printed them.
    console_lib.print_lines(note)
  return weights
