"""Thresholds by which the model of a run decides for classes.

With several labels per image, a class is predicted if its probability reaches
its threshold: the one that the evaluator `roc` chose, or 0.5. Of two exclusive
classes, the positive one has a threshold if `roc` chose it. Of more exclusive
classes, the most probable one is predicted.

    WORKDIR/checkpoints/latest/1200/thresholds.json  stored by `evaluate`

Without this file, thresholds are those of the run's own evaluations.
"""

from collections.abc import Callable, Mapping, Sequence
import math
import shlex
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax import classes
from vit_jax import escape
from vit_jax import evals
from vit_jax import untrusted
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.evals import roc as roc_lib
from vit_jax.weights import weights as weights_lib

NOT_WRITTEN = (
    'note: the thresholds of the classes are not written: without them, the '
    'most probable class is predicted')


FILE = 'thresholds.json'  # In the folder of a checkpoint.


def store(
    weights: weights_lib.Weights, thresholds: Sequence[float],
) -> epath.Path:
  """Stores the threshold of each class with a checkpoint; returns the file.

  Args:
    weights: a checkpoint of a run.
    thresholds: probabilities; NaN for the negative one of two classes.
  """
  path = epath.Path(weights.address) / FILE
  atomic_files.write_json(path, {
      'activation': weights.preprocess.activation,
      'thresholds': {name: value for name, value in zip(
          _names(weights), thresholds) if not math.isnan(value)}})
  return path


def _names(weights: weights_lib.Weights) -> tuple[str, ...]:
  return weights.preprocess.labels or tuple(
      map(str, range(weights.config.num_classes)))


def _stored(weights: weights_lib.Weights) -> tuple[float, ...]:
  """Returns the thresholds of `FILE`; () if there are none."""
  if not weights.is_checkpoint:
    return ()
  path, names = epath.Path(weights.address) / FILE, _names(weights)
  if not path.exists():
    return ()
  found = untrusted.read_json(path)
  by_name = found.get('thresholds')
  fewest = 1 if len(names) == 2 else len(names)
  if not isinstance(by_name, dict) or len(by_name) < fewest or not all(
      name in names and isinstance(value, (int, float))
      for name, value in by_name.items()):
    raise ValueError(
        f'{path} must hold a number for each of the classes '
        f'{classes.shorten(names)}, or for one of two, but holds {by_name!r}. '
        'Correct it, or remove it.')
  # Not of other probabilities than those that were measured.
  return tuple(by_name.get(name, math.nan) for name in names) if (
      found.get('activation') == weights.preprocess.activation) else ()


def of_run(
    weights: weights_lib.Weights, log: Callable[[str], None],
) -> tuple[float, ...]:
  """Returns the threshold of each class of a run.

  It is NaN for the negative one of two classes. The result is () for weights
  of other origin, and for runs that predict the most probable class. `log` is
  called with a note if `roc` has not measured the checkpoint.

  Raises:
    items.DamagedError: if the checkpoint is damaged.
    ValueError: if `FILE` is malformed.
  """
  if stored := _stored(weights):
    return stored
  count, run = weights.config.num_classes, weights.run
  is_sigmoid = weights.preprocess.activation == 'sigmoid'
  chosen = {name: section for name, section in run.get('evals', {}).items()
            if section.get('name') == 'roc' and section.get('threshold_split')}
  # Not of other probabilities than those of the run, nor of numbers.
  if not count or not (chosen or is_sigmoid) or (
      weights.preprocess.activation == 'none'
      or is_sigmoid != (run.get('objective', {}).get('loss') == 'sigmoid')):
    return ()
  progress = _progress(epath.Path(weights.address))
  several = progress.get('label_kind') == 'multi'
  for name, roc in evals.parse(chosen).items():
    assert isinstance(roc, roc_lib.RocConfig)
    found = roc.thresholds({
        key.removeprefix(f'{name}/'): value for key, value in
        progress['evals'].items() if key.startswith(f'{name}/')},
                           _names(weights))
    if len(found) == count and (several or count == 2):
      return found
  if chosen and (several or count == 2):
    log('note: no thresholds were measured for this checkpoint; '
        + ('0.5 decides' if several else 'the most probable class is predicted')
        + '. This command stores them:')
    log(escape.line(
        f'  python main.py evaluate --workdir={shlex.quote(weights.address)} '
        f'--evaluators={next(iter(chosen))} --store-thresholds'))
  return (0.5,) * count if several and is_sigmoid else ()


def _progress(step: epath.Path) -> Mapping[str, Any]:
  """Returns the counters of a checkpoint, with only its own metrics.

  Metrics of an earlier step, by evaluators with a longer interval, are left
  out. At the end of training, all evaluators also measure the best checkpoint.
  Their metrics are in the counters of the latest one.
  """
  progress = _read(step)
  latest = paths.newest(step.parent.parent / paths.LATEST)
  if step.parent.name == paths.BEST and latest:
    last = _read(latest)
    if last.get('best_step') == int(step.name) and last['best_evals']:
      return {**progress, 'evals': last['best_evals']}
  steps = progress['eval_steps']  # Empty before 2026-11-28.
  return {**progress, 'evals': {
      name: value for name, value in progress['evals'].items() if step.name ==
      str(steps.get(name.partition('/')[0], progress['evaluated']))}}


def _read(step: epath.Path) -> dict[str, Any]:
  with items.explain_errors(step):
    progress = items.read_config(step / 'progress')
    checksums.check(items.read_checksums(step), {'progress': progress})
  return {'evals': {}, 'best_evals': {}, 'eval_steps': {}, 'evaluated': -1,
          **progress}
