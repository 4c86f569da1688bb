"""What a run says of itself in numbers: a row of its log, and its summary.

Functions of what a run has counted and measured; `workdir` writes them down.
"""

from collections.abc import Mapping
from typing import Any

from vit_jax import tree
from vit_jax.experiment import build as experiment_lib
from vit_jax.training import clock as clock_lib
from vit_jax.training import cost as cost_lib
from vit_jax.training import counters as counters_lib
from vit_jax.training import profiler

# Of the last row of training, what a summary keeps.
_SUMMARIZED = ('loss', 'accuracy', 'precision_at_1')


def add_time(
    counters: counters_lib.Counters, *, before: counters_lib.Counters,
    clock: clock_lib.Clock, device_kind: str,
) -> None:
  """Counts the time until now.

  Args:
    counters: of the run; is changed.
    before: as this start of the run found them.
    clock: of this start.
    device_kind: what it runs on.
  """
  counters.secs = before.secs + clock.secs
  counters.device_secs_by_kind = cost_lib.spent(
      before.device_secs_by_kind, kind=device_kind,
      device_secs=clock.device_secs)


def training_row(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    measured: Mapping[str, Any], speed: clock_lib.Interval, *, step: int,
    device_kind: str,
) -> dict[str, float]:
  """Returns what a log line says of the steps since the last one.

  Args:
    experiment: the run's.
    counters: with the time until now.
    measured: the metrics of these steps, by name.
    speed: of these steps.
    step: updates made.
    device_kind: what the run runs on.
  """
  cost = counters.cost
  utilisation = cost_lib.utilisation(
      speed.images_per_sec * experiment.training_flops_per_image,
      kind=device_kind, devices=experiment.mesh.size)
  return {
      **{name: float(value.compute()) for name, value in measured.items()},
      'learning_rate': float(experiment.schedule(step - 1)),
      'epoch': step / experiment.steps_per_epoch,
      'images_seen': cost.images,
      'exaflops': cost.exaflops,
      'images_per_sec': speed.images_per_sec,
      'wait_share': speed.wait_share,
      **_unreadable(experiment, counters),
      **({} if utilisation is None else {'mfu': utilisation}),
      'device_hours': cost.device_hours,
      'core_hours': cost.core_hours,
      'host_memory_bytes': profiler.host_memory_bytes()}


def summary(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters, *,
    step: int, device_kind: str,
) -> dict[str, Any]:
  """Returns what `summary.json` says of a run that has come to its end.

  Args:
    experiment: the run's.
    counters: as its last checkpoint holds them.
    step: updates made.
    device_kind: what the run ended on.
  """
  return {
      'steps': step,
      'stopped_early': step < experiment.total_steps,
      'secs': counters.secs,
      **counters.cost.figures(),
      'devices': experiment.mesh.size,
      'device_kind': device_kind,
      **_unreadable(experiment, counters),
      'parameters': tree.num_elements(experiment.abstract_state.params),
      'metrics': {
          **{f'train/{name}': value for name, value in counters.train.items()
             if name in _SUMMARIZED},
          **counters.evals},
      'best': None if counters.best is None else {
          'metric': experiment.config.checkpoint.best, 'value': counters.best,
          'step': counters.best_step, 'metrics': counters.best_evals}}


def _unreadable(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> dict[str, int]:
  """Returns what was left out, where the config says to leave anything out."""
  return ({} if experiment.config.data.unreadable == 'error'
          else {'unreadable': counters.unreadable})
