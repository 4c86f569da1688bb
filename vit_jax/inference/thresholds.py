"""Thresholds by which the model of a run decides for classes.

With several labels per image, a class is predicted if its probability reaches
its threshold: the one that the evaluator `roc` chose, or 0.5. Of two exclusive
classes, the positive one has a threshold if `roc` chose it. Of more exclusive
classes, the most probable one is predicted.

    WORKDIR/checkpoints/latest/1200/thresholds.json  stored by `evaluate`

Without this file, thresholds are those of the run's own evaluations.
"""

from collections.abc import Callable, Sequence
import math
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax import classes
from vit_jax import registry
from vit_jax import untrusted
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
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
          names_of(weights), thresholds) if not math.isnan(value)}})
  return path


def names_of(weights: weights_lib.Weights) -> tuple[str, ...]:
  """Returns the names of the classes, or their numbers."""
  return weights.preprocess.labels or tuple(
      map(str, range(weights.config.num_classes)))


def _stored(weights: weights_lib.Weights) -> tuple[float, ...]:
  """Returns the thresholds of `FILE`; () if there are none."""
  if not weights.is_checkpoint:
    return ()  # Its address may be that of a web page.
  path, names = epath.Path(weights.address) / FILE, names_of(weights)
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
  of other origin, and for runs that predict the most probable class.

  Raises:
    items.DamagedError: if the checkpoint is damaged.
    ValueError: if `FILE` is malformed.
  """
  if stored := _stored(weights):
    return stored
  run, activation = weights.run, weights.preprocess.activation
  is_sigmoid = activation == 'sigmoid'
  # Not of other probabilities than those of the run, nor of numbers.
  if not run or activation == 'none' or (
      is_sigmoid != (run.get('objective', {}).get('loss') == 'sigmoid')):
    return ()
  find = registry.optional(registry.THRESHOLDS)
  measured = find(weights, log) if find else ()
  if measured or not is_sigmoid:
    return measured
  several = read_progress(
      epath.Path(weights.address)).get('label_kind') == 'multi'
  return (0.5,) * weights.config.num_classes * several


def read_progress(step: epath.Path) -> dict[str, Any]:
  """Returns the counters of a checkpoint."""
  with items.explain_errors(step):
    progress = items.read_config(step / 'progress')
    checksums.check(items.read_checksums(step), {'progress': progress})
  return {'evals': {}, 'best_evals': {}, 'eval_steps': {}, 'evaluated': -1,
          **progress}
