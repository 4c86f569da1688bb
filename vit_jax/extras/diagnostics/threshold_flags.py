"""Flags of `evaluate` for the evaluator `roc`, which chooses thresholds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import dataclasses

from etils import epy

with epy.lazy_imports():
  from vit_jax import evals
  from vit_jax.experiment import config as config_lib
  from vit_jax.extras.diagnostics import roc as roc_lib
  from vit_jax.inference import thresholds as thresholds_lib
  from vit_jax.weights import weights as weights_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.add_argument(
      '--sensitivity', type=float, metavar='X',
      help='roc: choose the highest thresholds that reach this sensitivity, '
      'such as 0.95 (default: highest sensitivity + specificity)')
  parser.add_argument(
      '--store-thresholds', action='store_true',
      help='store the thresholds of roc with the checkpoint; predict decides '
      'by them')


def apply(
    args: argparse.Namespace, config: config_lib.Config,
    weights: weights_lib.Weights,
) -> tuple[config_lib.Config, Callable[[str, evals.Result], None]]:
  """Returns the config with the sensitivity, and a function for each result.

  Raises:
    ValueError: if the flags need other evaluators or weights.
  """
  stored = _name_of_stored(config, weights) if args.store_thresholds else None
  if args.sensitivity is not None:
    config = dataclasses.replace(config, evals={**config.evals, **{
        name: dataclasses.replace(section, sensitivity=args.sensitivity)
        for name, section in _roc(config, flag='--sensitivity').items()}})

  def store(name: str, result: evals.Result) -> None:
    if name == stored:
      path = thresholds_lib.store(weights, result.thresholds)
      print(f'thresholds  {path}')

  return config, store


def _roc(
    config: config_lib.Config, *, flag: str) -> dict[str, roc_lib.RocConfig]:
  """Returns the evaluators that choose thresholds."""
  found = {name: section for name, section in config.evals.items()
           if isinstance(section, roc_lib.RocConfig)}
  if not found:
    raise ValueError(
        f'{flag} needs the evaluator roc, but the evaluators are '
        f'{", ".join(config.evals)}. Use --evaluators=roc.')
  return found


def _name_of_stored(
    config: config_lib.Config, weights: weights_lib.Weights) -> str:
  """Returns the name of the evaluator whose thresholds are to be stored."""
  name, *others = _roc(config, flag='--store-thresholds')
  if others:
    raise ValueError(
        '--store-thresholds needs one evaluator roc, but there are '
        f'{", ".join([name, *others])}. Select one by --evaluators={name}.')
  if not weights.is_checkpoint or (
      weights.settings.get('labels') == weights_lib.GIVEN):
    raise ValueError(
        '--store-thresholds needs a checkpoint of vit_jax with its own class '
        f'names, but {weights.origin} is none, or flags name its classes. '
        'Leave it out.')
  count = weights.config.num_classes
  if weights.preprocess.activation != 'sigmoid' and count != 2:
    raise ValueError(
        '--store-thresholds needs several labels per image or two classes, but '
        f'{weights.address} has {count:,} classes, of which the most probable '
        'one is predicted. Leave it out.')
  return name
