"""Evaluation in a run: what is due, the best checkpoint, and patience."""

from collections.abc import Callable, Sequence
import dataclasses
import functools

from vit_jax import console
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import manager
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import frozen_weights
from vit_jax.run import counters as counters_lib
from vit_jax.run import log_rows


def early_stop(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> str:
  """Returns why a run ends before its last step; '' if it does not."""
  section, evals = experiment.config.checkpoint, counters.evals
  for name, fraction in section.stop_below:
    first = counters.first_evals.get(name, 0)
    if name in evals and not (  # Also for NaN.
        evals[name] - first >= (fraction - 1) * abs(first)):
      return (f'{name} fell from {first:.4g} to {evals[name]:.4g}: training '
              'stops (checkpoint.stop_below).')
  if not counters.is_out_of_patience(section.patience, **experiment.sizes):
    return ''
  value = 'was never finite' if counters.best is None else (
      f'has not improved on {console.format_number(counters.best)} of step '
      f'{counters.best_step:,}')
  return (f'{section.best} {value} for {counters.unimproved} evaluation(s) and '
          f'{counters.unimproved_steps:,} steps: training stops '
          '(checkpoint.patience).')


def is_finished(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether training ends with this step.

  It depends only on what a checkpoint stores, so a killed run ends where an
  uninterrupted one does.
  """
  return counters.step == experiment.total_steps or bool(
      early_stop(experiment, counters))


def is_due(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    every: schema.Duration | str | None,
) -> bool:
  """Whether this step ends an interval, as the last step always does."""
  return is_finished(experiment, counters) or (
      every is not None and counters.step > 0
      and experiment.is_due(every, counters.step))


def run_due(
    experiment: experiment_lib.Experiment, state: types.TrainState,
    counters: counters_lib.Counters, checkpoints: manager.Checkpoints, *,
    on_batch: Callable[[str], None],
) -> tuple[dict[str, float], counters_lib.Counters, str] | None:
  """Runs the evaluators that are due; None if none is.

  When training ends, all evaluators run, also on the best checkpoint.

  Args:
    experiment: the experiment.
    state: state of this step.
    counters: counters at this step, which do not change.
    checkpoints: holds the best checkpoint.
    on_batch: called with the name of an evaluator before its first batch and
      after each of them; may raise.

  Returns:
    Metrics by 'evaluator/metric', the counters after this evaluation, and text
    for the terminal.
  """
  config = experiment.config
  due = [name for name, section in config.evals.items()
         if is_due(experiment, counters, section.every)
         or (section.at_start and not counters.step)]
  if not due:
    return None
  run = functools.partial(_run, experiment, on_batch)
  row = run(due, state.eval_params)
  counters = dataclasses.replace(counters, evaluated=counters.step)
  best = config.checkpoint.best
  if best in row:
    counters.add_metric(row[best], mode=config_lib.metric_mode(
        config, best, setting='checkpoint.best'))
  elif best.partition('/')[0] in due:
    raise UserError(f'checkpoint.best is {best!r}, but the metrics are '
                    f'{", ".join(row)}. Choose one of them.')
  counters.add_evals(row)
  reason = early_stop(experiment, counters)
  if reason:  # At the last step every evaluator is due.
    row |= run([name for name in config.evals if name not in due],
               state.eval_params)
  if is_finished(experiment, counters):
    if counters.best_step == counters.step:
      counters.best_evals = dict(row)
    elif counters.best_step is not None and checkpoints.holds_another_best(
        counters.best_step):
      # A killed run had replaced it, and this one took other steps since.
      reason = f'{reason}\n'.lstrip() + (
          f'The best checkpoint, of step {counters.best_step:,}, was replaced '
          'before an interruption: the last one counts.')
      counters.forget_best()
      checkpoints.delete_best()
    elif counters.best_step is not None:
      counters.best_evals = run([*config.evals], _best_params(
          experiment, state, checkpoints, step=counters.best_step))
  counters.add_evals(row)
  line = log_rows.evaluation_line(
      row, step=counters.step, outputs=experiment.dataset.classes.names,
      declared=config_lib.declared_metrics(config))
  return row, counters, f'{line}\n{reason}'.rstrip()


def _run(
    experiment: experiment_lib.Experiment, on_batch: Callable[[str], None],
    names: Sequence[str], params: types.Params,
) -> dict[str, float]:
  """Returns the metrics of evaluators by 'evaluator/metric'."""
  row: dict[str, float] = {}
  for name in names:
    on_batch(name)
    row |= experiment.evaluate(
        name, params, functools.partial(on_batch, name)).metrics_of(name)
  return row


def _best_params(
    experiment: experiment_lib.Experiment, state: types.TrainState,
    checkpoints: manager.Checkpoints, *, step: int,
) -> types.Params:
  """Returns the parameters of the best checkpoint."""
  checkpoints.wait()
  best = checkpoints.load_best(
      frozen_weights.without(experiment, experiment.abstract_state), step=step)
  # Frozen parameters that it does not hold come from `state`.
  return tree.update(state.eval_params, best)
