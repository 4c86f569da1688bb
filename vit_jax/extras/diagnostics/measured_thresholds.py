"""Thresholds that `roc` has chosen for a checkpoint during training."""

from collections.abc import Callable, Mapping
import shlex
from typing import Any

from etils import epath

from vit_jax import escape
from vit_jax import evals
from vit_jax.checkpoints import paths
from vit_jax.extras.diagnostics import roc as roc_lib
from vit_jax.inference import thresholds
from vit_jax.weights import weights as weights_lib


def of_run(
    weights: weights_lib.Weights, log: Callable[[str], None],
) -> tuple[float, ...]:
  """Returns the threshold of each class, if an evaluation has chosen them.

  `log` is called with a note if the run has such an evaluator, but it has not
  measured the checkpoint.
  """
  count = weights.config.num_classes
  chosen = {name: section
            for name, section in weights.run.get('evals', {}).items()
            if section.get('name') == 'roc' and section.get('threshold_split')}
  if not chosen:
    return ()
  progress = _progress(epath.Path(weights.address))
  several = progress.get('label_kind') == 'multi'
  if not several and count != 2:
    return ()
  for name, roc in evals.parse(chosen).items():
    assert isinstance(roc, roc_lib.RocConfig)
    found = roc.thresholds({
        key.removeprefix(f'{name}/'): value for key, value in
        progress['evals'].items() if key.startswith(f'{name}/')},
                           thresholds.names_of(weights))
    if len(found) == count:
      return found
  log('note: no thresholds were measured for this checkpoint; '
      + ('0.5 decides' if several else 'the most probable class is predicted')
      + '. This command stores them:')
  log(escape.line(
      f'  python main.py evaluate --workdir={shlex.quote(weights.address)} '
      f'--evaluators={next(iter(chosen))} --store-thresholds'))
  return ()


def _progress(step: epath.Path) -> Mapping[str, Any]:
  """Returns the counters of a checkpoint, with only its own metrics.

  Metrics of an earlier step, by evaluators with a longer interval, are left
  out. At the end of training, all evaluators also measure the best checkpoint.
  Their metrics are in the counters of the latest one.
  """
  progress = thresholds.read_progress(step)
  latest = paths.newest(step.parent.parent / paths.LATEST)
  if step.parent.name == paths.BEST and latest:
    last = thresholds.read_progress(latest)
    if last.get('best_step') == int(step.name) and last['best_evals']:
      return {**progress, 'evals': last['best_evals']}
  steps = progress['eval_steps']  # Empty before 2026-11-28.
  return {**progress, 'evals': {
      name: value for name, value in progress['evals'].items() if step.name ==
      str(steps.get(name.partition('/')[0], progress['evaluated']))}}
