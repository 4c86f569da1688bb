"""What a run measures of its parameters: which are the best, when it ends.

It ends after its last step, or once the metric of the best checkpoint has not
improved for `checkpoint.patience`. That is a function of what a checkpoint
holds, so that a run which was killed ends where an undisturbed one does.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools

from etils import epath

from vit_jax import console as console_lib
from vit_jax import schema
from vit_jax import types
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_batch
from vit_jax.parallel import multihost
from vit_jax.training import counters as counters_lib


def measure(
    experiment: experiment_lib.Experiment, names: Sequence[str],
    params: types.Params, *, doing: Callable[[str], None],
    check: Callable[[], None],
) -> dict[str, float]:
  """Returns what evaluators give, by 'evaluator/metric'.

  Args:
    experiment: the run's.
    names: of the evaluators.
    params: what they evaluate.
    doing: is told what is done, before each and between two batches of each.
    check: is called between two batches; what it raises ends the evaluation.
  """
  def between(name: str) -> None:
    doing(f'evaluating {name}')
    check()

  row: dict[str, float] = {}
  for name in names:
    doing(f'evaluating {name}')
    with fit_batch.evaluator_memory_advice(experiment.config, name):
      measured = experiment.evaluators[name](
          params, on_batch=functools.partial(between, name))
    row |= {f'{name}/{key}': value for key, value in measured.items()}
  return row


def best_params(
    experiment: experiment_lib.Experiment, workdir: epath.PathLike,
) -> types.Params:
  """Returns the parameters of a run's best checkpoint, laid out as its own."""
  return multihost.put(
      checkpoint_source.find(workdir, which=checkpoint_paths.BEST).load(),
      experiment.shardings.params)


def is_over(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters, *,
    step: int,
) -> bool:
  """Whether there is no step left to make after `step`."""
  return (step == experiment.total_steps
          or is_out_of_patience(experiment, counters))


def is_out_of_patience(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether the metric of the best checkpoint has long not improved."""
  patience = experiment.config.checkpoint.patience
  if not isinstance(patience, schema.Duration):
    return counters.is_out_of_patience(evaluations=patience)
  return counters.is_out_of_patience(steps=patience.exact_steps(
      batch_size=experiment.config.batch_size,
      num_examples=experiment.dataset.num_examples,
      total_steps=experiment.total_steps))


def judged(
    config: config_lib.Config, counters: counters_lib.Counters,
    row: Mapping[str, float], *, step: int,
) -> counters_lib.Counters:
  """Returns the counters with what a row says of the best checkpoint.

  Args:
    config: the run's.
    counters: as they are; left alone.
    row: what evaluators measured, by name ('val/loss').
    step: at which they did.
  """
  best = config.checkpoint.best
  counters = dataclasses.replace(counters)
  if best in row:
    counters.judge(row[best], step=step, mode=config_lib.best_mode(config))
  return counters


def refusal(best: str, row: Mapping[str, float]) -> str:
  """Returns why a row cannot say which checkpoint is the best; '' if it can.

  Not for want of a name, which the config's check knows, but of a metric that
  this data set has no use for.

  Args:
    best: the metric of the config.
    row: what evaluators measured; another evaluator's row says nothing.
  """
  evaluators = {key.split('/')[0] for key in row}
  if best in row or best.split('/')[0] not in evaluators:
    return ''
  return (f'checkpoint.best is {best!r}, which is not measured on this data. '
          f'Measured: {", ".join(row)}.')


def early_end(best: str, counters: counters_lib.Counters) -> str:
  """Returns that patience has ended, in words."""
  value = 'was never a number' if counters.best is None else (
      f'is not better than at step {counters.best_step:,}, '
      f'{console_lib.format_number(counters.best)}')
  return (f'{best} {value}, {counters.unimproved} evaluation(s) and '
          f'{counters.unimproved_steps:,} steps ago: training ends here '
          '(checkpoint.patience).')
