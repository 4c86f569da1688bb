"""Metrics of log lines and of the final summary."""

from collections.abc import Mapping
from typing import Any

from vit_jax import console
from vit_jax import data
from vit_jax import metrics as metrics_lib
from vit_jax import tree
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import hardware
from vit_jax.run import counters as counters_lib
from vit_jax.run import profiler as profiler_lib
from vit_jax.run import startup_summary
from vit_jax.training import step as step_lib


def training_row(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    metrics: Mapping[str, Any], speed: Mapping[str, float], *,
    flops_per_image: int,
) -> dict[str, float]:
  """Returns the metrics of a log line.

  `metrics` and `speed` cover the steps since the previous line;
  `flops_per_image` counts training.
  """
  utilisation = hardware.utilisation(
      speed['images_per_sec'] * flops_per_image,
      kind=startup_summary.device_kind(experiment.mesh),
      devices=experiment.mesh.size)
  return {
      # A training step of one's own may measure no norms.
      **{name: float(value.compute()) for name, value in metrics.items()
         if not (name in step_lib.NORMS and value.count == 0)},
      'learning_rate': float(experiment.optimizer.schedule(counters.step - 1)),
      'epoch': counters.images / experiment.dataset.num_examples,
      'images_seen': counters.images,
      **{f'images_seen_{name}': count for name, count in data.images_seen(
          experiment.config.data.mixture, experiment.dataset.source,
          counters.images).items()},
      **speed,
      **({'mfu': utilisation} if utilisation else {}),
      **_totals(experiment, counters),
      'host_memory_bytes': profiler_lib.host_memory_bytes()}


def evaluation_line(
    row: Mapping[str, float], *, step: int, targets: tuple[str, ...],
    declared: Mapping[str, metrics_lib.Metric],
) -> str:
  """Returns 'step 10: val/accuracy 97.22 %, val/loss 0.113'.

  Several targets show only their mean. `declared` are the metrics of the run.
  """
  hidden = ('/examples', *(
      f'_{name}' for name in targets if len(targets) > 1))
  return f'step {step:,}: ' + ', '.join(
      f'{key} ' + console.format_metric(
          value, is_fraction=metrics_lib.find(key, declared).is_fraction)
      for key, value in row.items() if not key.endswith(hidden))


def summary(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> dict[str, Any]:
  """Returns the content of `summary.json` for a finished run."""
  return {
      'steps': counters.step,
      'stopped_early': counters.step < experiment.total_steps,
      'secs': counters.secs,
      'images': counters.images,
      'flops': counters.flops,
      **_totals(experiment, counters),
      'core_hours_by_kind': counters.core_hours_by_kind,
      'devices': experiment.mesh.size,
      'device_kind': startup_summary.device_kind(experiment.mesh),
      'parameters': tree.num_elements(experiment.model_params),
      'metrics': {
          **{f'train/{name}': value for name, value in counters.train.items()
             if name in ('loss', *experiment.objective.metrics)},
          **counters.evals},
      'best': None if counters.best is None else {
          'metric': experiment.config.checkpoint.best, 'value': counters.best,
          'step': counters.best_step, 'metrics': counters.best_evals}}


def chosen_metrics(content: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the metrics of the checkpoint that other commands read.

  It is the best one, on which all evaluators run at the end, if the run keeps
  it. Metrics of training belong to the last one and are then left out.
  """
  return (content.get('best') or {}).get('metrics') or content['metrics']


def describe_early_stop(
    section: checkpoint_config.CheckpointConfig,
    counters: counters_lib.Counters) -> str:
  """Explains why training stopped early."""
  for name in counters.fallen(section.stop_below):
    return (f'{name} fell from {counters.first_evals[name]:.4g} to '
            f'{counters.evals[name]:.4g}: training stops '
            '(checkpoint.stop_below).')
  value = 'was never finite' if counters.best is None else (
      f'has not improved on {console.format_number(counters.best)} of step '
      f'{counters.best_step:,}')
  return (f'{section.best} {value} for {counters.unimproved} evaluation(s) and '
          f'{counters.unimproved_steps:,} steps: training stops '
          '(checkpoint.patience).')


def _totals(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
) -> dict[str, float]:
  skips = experiment.config.data.unreadable != 'error'
  return {**({'unreadable': counters.unreadable} if skips else {}),
          **counters.cost}
