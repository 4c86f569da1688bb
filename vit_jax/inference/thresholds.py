"""Thresholds by which the model of a run decides for classes.

With several labels per image, a class is predicted if its probability reaches
its threshold: the one that the evaluator `roc` chose on a validation split, or
0.5. Of two exclusive classes, the positive one has a threshold if `roc` chose
it. Of more exclusive classes, the most probable one is predicted.
"""

from collections.abc import Callable, Mapping
import shlex
from typing import Any

from etils import epath

from vit_jax import escape
from vit_jax import evals
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.evals import roc as roc_lib
from vit_jax.weights import weights as weights_lib

NOT_WRITTEN = (
    'note: the thresholds of the classes are not written: without them, the '
    'most probable class is predicted')


def of_run(
    weights: weights_lib.Weights, log: Callable[[str], None],
) -> tuple[float, ...]:
  """Returns the threshold of each class of a run.

  It is NaN for the negative one of two classes. The result is () for weights
  of other origin, and for runs that predict the most probable class. `log` is
  called with a note if `roc` has not measured the checkpoint.

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
  if chosen and (several or count == 2):
    log('note: no thresholds were measured for this checkpoint; '
        + ('0.5 decides' if several else 'the most probable class is predicted')
        + '. This command prints them, but predict does not read them:')
    log(escape.line(
        f'  python main.py evaluate --workdir={shlex.quote(weights.address)} '
        f'--evaluators={",".join(chosen)}'))
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
