"""Metrics of log lines and of the final summary."""

from collections.abc import Mapping, Sequence
import contextlib
import itertools
from typing import Any

import psutil

from vit_jax import console
from vit_jax import data
from vit_jax import metrics as metrics_lib
from vit_jax import tree
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.run import counters as counters_lib
from vit_jax.training import step as step_lib

_MAX_LENGTH = 160  # Of metrics in a line of the terminal.


def training_row(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    metrics: Mapping[str, Any], speed: Mapping[str, float], *,
    flops_per_image: int,
) -> dict[str, float]:
  """Returns the metrics of a log line.

  `metrics` and `speed` cover the steps since the previous line;
  `flops_per_image` counts training.
  """
  device = counters_lib.hardware(mesh_lib.device_kind(experiment.mesh))
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
      **({'mfu': speed['images_per_sec'] * flops_per_image / (
          device.peak_flops * experiment.mesh.size)} if device else {}),
      **counters.totals,
      'host_memory_bytes': host_memory_bytes()}


def evaluation_line(
    row: Mapping[str, float], *, step: int, outputs: Sequence[str],
    declared: Mapping[str, metrics_lib.Metric],
) -> str:
  """Returns 'step 10: val/accuracy 97.22 %, val/loss 0.113'.

  Leaves out metrics of single targets or classes, standard deviations, and what
  exceeds three lines of a terminal; files have all.

  Args:
    row: metrics by 'evaluator/metric'.
    step: number of updates.
    outputs: names of the targets or classes.
    declared: metrics of the run.
  """
  hidden = ('/examples', '_std', *(
      f'_{name}' for name in outputs if len(outputs) > 1))
  texts = [f'{key} {format_value(key, value, declared)}'
           for key, value in row.items()
           if key in declared or not key.endswith(hidden)]
  ends = itertools.accumulate(len(text) + 2 for text in texts)
  shown = [text for text, end in zip(texts, ends) if end <= _MAX_LENGTH] or (
      texts[:1])
  more = len(texts) - len(shown)
  return f'step {step:,}: ' + ', '.join(shown) + f', and {more} more' * (
      more > 0)


def format_value(
    key: str, value: float | None, declared: Mapping[str, metrics_lib.Metric],
    *, digits: int = 3,
) -> str:
  """Formats a value of 'evaluator/metric': '97.22 %', '0.113', a dash."""
  return console.format_metric(
      value, digits=digits,
      is_fraction=metrics_lib.find(key, declared).is_fraction)


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
      **counters.totals,
      'core_hours_by_kind': counters.core_hours_by_kind,
      'devices': experiment.mesh.size,
      'device_kind': mesh_lib.device_kind(experiment.mesh),
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


def host_memory_bytes() -> int:
  """Returns the memory of this process and its child processes."""
  process = psutil.Process()
  total = process.memory_info().rss
  for child in process.children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
      total += child.memory_info().rss
  return total
