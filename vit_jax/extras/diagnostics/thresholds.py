"""Thresholds by which the model of a run decides for classes.

With several labels per image, a class is predicted if its probability reaches
its threshold: the one that the evaluator `roc` chose, or 0.5. Of two exclusive
classes, the positive one has a threshold if `roc` chose it. Of more exclusive
classes, the most probable one is predicted.

    WORKDIR/checkpoints/latest/1200/thresholds.json  stored by `evaluate`

Without this file, thresholds are those of the run's own evaluations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import shlex
from typing import Any

from etils import epy

from vit_jax.exceptions import UserError

with epy.lazy_imports():
  from etils import epath
  import jax
  from jaxtyping import Float, Integer
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import classes
  from vit_jax import escape
  from vit_jax import evals
  from vit_jax import untrusted
  from vit_jax.checkpoints import checksums
  from vit_jax.checkpoints import items
  from vit_jax.checkpoints import paths
  from vit_jax.experiment import config as config_lib
  from vit_jax.extras.diagnostics import roc as roc_lib
  from vit_jax.weights import weights as weights_lib

FILE = 'thresholds.json'  # In the folder of a checkpoint.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds flags of `evaluate`."""
  parser.add_argument(
      '--sensitivity', type=float, metavar='X',
      help='roc: choose the highest thresholds that reach this sensitivity, '
      'such as 0.95 (default: highest sensitivity + specificity)')
  parser.add_argument(
      '--store-thresholds', action='store_true',
      help='store the thresholds of roc with the checkpoint; predict decides '
      'by them')


def configure(
    args: argparse.Namespace, config: config_lib.Config,
    weights: weights_lib.Weights,
) -> config_lib.Config:
  """Returns the config with the flags, which are checked."""
  if args.store_thresholds:
    _check_storable(config, weights)
  return config if args.sensitivity is None else dataclasses.replace(
      config, evals={**config.evals, **{
          name: dataclasses.replace(section, sensitivity=args.sensitivity)
          for name, section in _choosing(config, '--sensitivity').items()}})


def store_results(
    args: argparse.Namespace, weights: weights_lib.Weights,
    results: Mapping[str, Any],
) -> None:
  """Stores the thresholds that an evaluation has chosen, with the flag."""
  for found in results['tables'].values():
    if (args.store_thresholds and 'class_threshold' in found
        and jax.process_index() == 0):
      path = store(weights, dict(zip(
          found['class_names'], found['class_threshold'])))
      print(f'thresholds  {path}')


def _choosing(
    config: config_lib.Config, flag: str) -> dict[str, roc_lib.RocConfig]:
  """Returns the evaluators that choose thresholds."""
  found = {name: section for name, section in config.evals.items()
           if isinstance(section, roc_lib.RocConfig)}
  if not found:
    raise UserError(
        f'{flag} needs the evaluator roc, but the evaluators are '
        f'{", ".join(config.evals)}. Use --evaluators=roc.')
  return found


def _check_storable(
    config: config_lib.Config, weights: weights_lib.Weights) -> None:
  """Raises unless one evaluator chooses thresholds that the weights use."""
  name, *others = _choosing(config, '--store-thresholds')
  if others:
    raise UserError(
        '--store-thresholds needs one evaluator roc, but there are '
        f'{", ".join([name, *others])}. Select one by --evaluators={name}.')
  unlike = f'evals.{name}.flip averages mirror images' * config.evals[name].flip
  if config.data.resolution != 'auto' and (
      config.data.build_ops(train=False) != weights.preprocess.ops):
    unlike = ('data.resolution or data.eval_ops differ from those of '
              f'{weights.origin}')
  if unlike:
    raise UserError(
        '--store-thresholds stores those of images as `predict` sees them, but '
        f'{unlike}. Leave one of them out.')
  if not weights.is_checkpoint or (
      weights.settings.get('labels') == weights_lib.GIVEN):
    raise UserError(
        '--store-thresholds needs a checkpoint of vit_jax with its own class '
        f'names, but {weights.origin} is none, or flags name its classes. '
        'Leave it out.')
  count = weights.config.num_classes
  if count != 2 and not _has_several_labels(weights):
    raise UserError(
        '--store-thresholds needs several labels per image or two classes, but '
        f'{weights.origin} has {count:,} classes, of which the most probable '
        'one is predicted. Leave it out.')


def decide(
    probabilities: Float[np.ndarray, 'batch classes'],
    thresholds: Sequence[float],
) -> list[Integer[np.ndarray, '_']]:
  """Returns the indices of the classes that reach their thresholds.

  The negative one of two classes, whose threshold is NaN, is predicted unless
  the other one is.
  """
  chosen = probabilities >= np.asarray(thresholds)
  others = np.isnan(thresholds) & ~chosen.any(axis=1, keepdims=True)
  return [*map(np.flatnonzero, chosen | others)]


def store(
    weights: weights_lib.Weights, thresholds: Mapping[str, float],
) -> epath.Path:
  """Stores thresholds by class with a checkpoint; returns the file."""
  path = epath.Path(weights.address) / FILE
  atomic_files.write_json(path, {
      'activation': weights.preprocess.activation, 'thresholds': thresholds})
  return path


def of_run(
    weights: weights_lib.Weights, log: Callable[[str], None],
) -> tuple[float, ...]:
  """Returns the threshold of each class of a run.

  It is NaN for the negative one of two classes. The result is () for weights
  of other origin, and for runs that predict the most probable class.

  Raises:
    items.DamagedError: if the checkpoint is damaged.
    UserError: if `FILE` is malformed.
  """
  if stored := _stored(weights):
    return stored
  run, activation = weights.run, weights.preprocess.activation
  is_sigmoid = activation == 'sigmoid'
  # Not of other probabilities than those of the run, nor of numbers.
  if not run or activation == 'none' or (
      is_sigmoid != (run.get('objective', {}).get('loss') == 'sigmoid')):
    return ()
  several = _has_several_labels(weights)
  if not several and weights.config.num_classes != 2:
    return ()
  return _measured(weights, several, log) or (
      (0.5,) * weights.config.num_classes * (several and is_sigmoid))


def _stored(weights: weights_lib.Weights) -> tuple[float, ...]:
  """Returns the thresholds of `FILE`; () if there are none."""
  if not weights.is_checkpoint:
    return ()  # Its address may be that of a web page.
  path, names = epath.Path(weights.address) / FILE, _names(weights)
  if not path.exists():
    return ()
  found = untrusted.read_json(path)
  by_name = found.get('thresholds')
  fewest = 1 if len(names) == 2 else len(names)
  if not isinstance(by_name, dict) or len(by_name) < fewest or not all(
      name in names and isinstance(value, (int, float))
      for name, value in by_name.items()):
    raise UserError(
        f'{path} must hold a number for each of the classes '
        f'{classes.shorten(names)}, or for one of two, but holds {by_name!r}. '
        'Correct it, or remove it.')
  # Not of other probabilities than those that were measured.
  return tuple(by_name.get(name, math.nan) for name in names) if (
      found.get('activation') == weights.preprocess.activation) else ()


def _measured(
    weights: weights_lib.Weights, several: bool, log: Callable[[str], None],
) -> tuple[float, ...]:
  """Returns the thresholds that an evaluation during training has chosen.

  `log` is called with a note if the run has such an evaluator, but it has not
  measured the checkpoint.
  """
  chosen = {name: section
            for name, section in weights.run.get('evals', {}).items()
            if section.get('name') == 'roc' and section.get('threshold_split')
            and not section.get('flip')}  # `predict` averages nothing.
  if not chosen:
    return ()
  metrics = _metrics(epath.Path(weights.address))
  for name, roc in evals.parse(chosen).items():
    assert isinstance(roc, roc_lib.RocConfig)
    found = roc.thresholds({
        key.removeprefix(f'{name}/'): value for key, value in metrics.items()
        if key.startswith(f'{name}/')}, _names(weights))
    if len(found) == weights.config.num_classes:
      return found
  log('note: no thresholds were measured for this checkpoint; '
      + ('0.5 decides' if several else 'the most probable class is predicted')
      + '. This command stores them:')
  log(escape.line(
      f'  python main.py evaluate --workdir={shlex.quote(weights.address)} '
      f'--evaluators={next(iter(chosen))} --store-thresholds'))
  return ()


def _metrics(step: epath.Path) -> Mapping[str, float]:
  """Returns the metrics of a checkpoint, of which it holds older ones, too.

  Metrics of an earlier step, by evaluators with a longer interval, are left
  out. At the end of training, all evaluators also measure the best checkpoint.
  Their metrics are in the counters of the latest one.
  """
  progress = _counters(step)
  latest = paths.newest(step.parent.parent / paths.LATEST)
  if step.parent.name == paths.BEST and latest:
    last = _counters(latest)
    if last.get('best_step') == int(step.name) and last['best_evals']:
      return last['best_evals']
  steps = progress['eval_steps']  # Empty before 2026-11-28.
  return {
      name: value for name, value in progress['evals'].items() if step.name ==
      str(steps.get(name.partition('/')[0], progress['evaluated']))}


def _names(weights: weights_lib.Weights) -> tuple[str, ...]:
  """Returns the names of the classes, or their numbers."""
  return weights.preprocess.labels or tuple(
      map(str, range(weights.config.num_classes)))


def _has_several_labels(weights: weights_lib.Weights) -> bool:
  """Whether images of the run of a checkpoint have several labels each."""
  return _counters(epath.Path(weights.address)).get('label_kind') == 'multi'


def _counters(step: epath.Path) -> dict[str, Any]:
  """Returns the counters of a checkpoint."""
  with items.explain_errors(step):
    progress = items.read_config(step / 'progress')
    checksums.check(items.read_checksums(step), {'progress': progress})
  return {'evals': {}, 'best_evals': {}, 'eval_steps': {}, 'evaluated': -1,
          **progress}
