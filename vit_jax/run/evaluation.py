"""Evaluation in a run: what is due, the best checkpoint, and patience."""

from collections.abc import Callable, Sequence
import dataclasses
import functools

from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import manager
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import frozen_weights
from vit_jax.run import clock as clock_lib
from vit_jax.run import counters as counters_lib
from vit_jax.run import log_rows


def stops_early(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether `checkpoint.patience` or `checkpoint.stop_below` ends the run."""
  section = experiment.config.checkpoint
  return bool(counters.fallen(section.stop_below)) or (
      counters.is_out_of_patience(section.patience, **experiment.sizes))


def is_finished(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> bool:
  """Whether training ends with this step.

  It depends only on what a checkpoint stores, so a killed run ends where an
  uninterrupted one does.
  """
  return counters.step == experiment.total_steps or stops_early(
      experiment, counters)


def is_due(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    every: schema.Duration | str | None,
) -> bool:
  """Whether this step ends an interval, as the last step always does."""
  return is_finished(experiment, counters) or (
      every is not None and counters.step > 0
      and experiment.is_due(every, counters.step))


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """The evaluators of a run.

  Attributes:
    experiment: the experiment.
    checkpoints: holds the best checkpoint.
    clock: pauses during evaluations.
    on_batch: called with the name of an evaluator before its first batch and
      after each of them; may raise.
  """
  experiment: experiment_lib.Experiment
  checkpoints: manager.Checkpoints
  clock: clock_lib.Clock
  on_batch: Callable[[str], None]

  def run_due(
      self, state: types.TrainState, counters: counters_lib.Counters,
  ) -> tuple[dict[str, float], counters_lib.Counters, list[str]] | None:
    """Runs the evaluators that are due; None if none is.

    When training ends, all evaluators run, also on the best checkpoint.
    `counters` does not change.

    Returns:
      Metrics by 'evaluator/metric', the counters after this evaluation, and
      lines for the terminal.
    """
    config = self.experiment.config
    due = [name for name, section in config.evals.items()
           if is_due(self.experiment, counters, section.every)
           or (section.at_start and not counters.step)]
    if not due:
      return None
    row = self._run(due, state.eval_params)
    counters = dataclasses.replace(counters, evaluated=counters.step)
    best = config.checkpoint.best
    if best in row:
      counters.add_metric(row[best], mode=config_lib.metric_mode(
          config, best, setting='checkpoint.best'))
    elif best.partition('/')[0] in due:
      raise ValueError(f'checkpoint.best is {best!r}, but the metrics are '
                       f'{", ".join(row)}. Choose one of them.')
    counters.add_evals(row)
    stops = stops_early(self.experiment, counters)
    if stops:  # At the last step every evaluator is due.
      row |= self._run(
          [name for name in config.evals if name not in due],
          state.eval_params)
    if is_finished(self.experiment, counters):
      counters.best_evals = dict(row) if (
          counters.best_step == counters.step) else (
              self._run_on_best(state, counters))
    counters.add_evals(row)
    lines = [log_rows.evaluation_line(
        row, step=counters.step, targets=self.experiment.dataset.targets,
        declared=config_lib.declared_metrics(config))]
    if stops:
      lines.append(log_rows.describe_early_stop(config.checkpoint, counters))
    return row, counters, lines

  def _run(
      self, names: Sequence[str], params: types.Params) -> dict[str, float]:
    """Returns the metrics of evaluators by 'evaluator/metric'."""
    row: dict[str, float] = {}
    for name in names:
      self.on_batch(name)
      with self.clock.paused():
        row |= self.experiment.evaluate(
            name, params, functools.partial(self.on_batch, name),
        ).metrics_of(name)
    return row

  def _run_on_best(
      self, state: types.TrainState, counters: counters_lib.Counters,
  ) -> dict[str, float]:
    """Returns the metrics of the best checkpoint, if there is one."""
    if counters.best_step is None:
      return {}
    self.checkpoints.wait()
    best = self.checkpoints.load_best(
        frozen_weights.without(
            self.experiment, self.experiment.abstract_state),
        step=counters.best_step)
    # Frozen parameters that it does not hold come from `state`.
    return self._run(list(self.experiment.config.evals),
                     tree.update(state.eval_params, best))
