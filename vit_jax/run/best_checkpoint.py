"""Evaluates parameters, finds the best checkpoint and stops early.

Training ends after its last step, or once the metric of the best checkpoint has
not improved for `checkpoint.patience`. Both depend only on what a checkpoint
stores, so a killed run ends where an uninterrupted one does.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools

from vit_jax import console
from vit_jax import schema
from vit_jax import types
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.training import counters as counters_lib


def evaluate(
    experiment: experiment_lib.Experiment, names: Sequence[str],
    params: types.Params, *, on_batch: Callable[[str], None],
) -> dict[str, float]:
  """Runs evaluators and returns their metrics by 'evaluator/metric'.

  Args:
    experiment: the experiment.
    names: evaluators to run.
    params: parameters to evaluate.
    on_batch: called with an evaluator's name before it starts and before each
      batch; may raise to stop.
  """
  row: dict[str, float] = {}
  for name in names:
    on_batch(name)
    with fit_batch.evaluator_memory_advice(experiment.config, name):
      metrics = experiment.evaluators[name](
          params, on_batch=functools.partial(on_batch, name))
    row |= {f'{name}/{key}': value for key, value in metrics.items()}
  return row


def is_finished(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters, *,
    step: int,
) -> bool:
  """Whether `step` is the last step."""
  return (step == experiment.total_steps
          or is_out_of_patience(experiment, counters))


def is_out_of_patience(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether the best metric has not improved for `checkpoint.patience`."""
  patience = experiment.config.checkpoint.patience
  if not isinstance(patience, schema.Duration):
    return counters.is_out_of_patience(evaluations=patience)
  return counters.is_out_of_patience(steps=patience.exact_steps(
      batch_size=experiment.config.batch_size,
      num_examples=experiment.dataset.num_examples,
      total_steps=experiment.total_steps))


def updated(
    config: config_lib.Config, counters: counters_lib.Counters,
    row: Mapping[str, float], *, step: int,
) -> counters_lib.Counters:
  """Returns a copy of counters that includes metrics by 'evaluator/metric'."""
  best = config.checkpoint.best
  counters = dataclasses.replace(counters)
  if best in row:
    counters.add_metric(row[best], step=step, mode=config_lib.best_mode(config))
  return counters


def describe_early_stop(best: str, counters: counters_lib.Counters) -> str:
  """Returns why training ends before its last step."""
  value = 'was never finite' if counters.best is None else (
      f'has not improved on {console.format_number(counters.best)} of step '
      f'{counters.best_step:,}')
  return (f'{best} {value} for {counters.unimproved} evaluation(s) and '
          f'{counters.unimproved_steps:,} steps: training stops '
          '(checkpoint.patience).')
