"""Thresholds by which the model of a run decides for classes.

With several labels per image, a class is predicted if its probability reaches
its threshold: the one that the evaluator `roc` chose on a validation split, or
0.5. Of two exclusive classes, the positive one has a threshold if `roc` chose
it. Of more exclusive classes, the most probable one is predicted.
"""

from collections.abc import Mapping
from typing import Any

from etils import epath

from vit_jax import evals
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.evals import roc as roc_lib
from vit_jax.weights import weights as weights_lib


def of_run(weights: weights_lib.Weights) -> tuple[float, ...]:
  """Returns the threshold of each class of a run.

  It is NaN for the negative one of two classes. The result is () for weights
  of other origin, and for runs that predict the most probable class.

  Raises:
    items.DamagedError: if the checkpoint is damaged.
  """
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
  names = weights.preprocess.labels or tuple(map(str, range(count)))
  for name, roc in evals.parse(chosen).items():
    assert isinstance(roc, roc_lib.RocConfig)
    found = roc.thresholds({
        key.removeprefix(f'{name}/'): value for key, value in
        progress['evals'].items() if key.startswith(f'{name}/')}, names)
    if len(found) == count and (several or count == 2):
      return found
  return (0.5,) * count if several and is_sigmoid else ()


def _progress(step: epath.Path) -> Mapping[str, Any]:
  """Returns the counters of a checkpoint, with the metrics of its evaluation.

  At the end of training, all evaluators also measure the best checkpoint. Their
  metrics are in the counters of the latest one.
  """
  progress = _read(step)
  latest = paths.newest(step.parent.parent / paths.LATEST)
  if step.parent.name == paths.BEST and latest:
    last = _read(latest)
    if last.get('best_step') == int(step.name) and last['best_evals']:
      return {**progress, 'evals': last['best_evals']}
  return progress


def _read(step: epath.Path) -> dict[str, Any]:
  with items.explain_errors(step):
    progress = items.read_config(step / 'progress')
    checksums.check(items.read_checksums(step), {'progress': progress})
  return {'evals': {}, 'best_evals': {}, **progress}
