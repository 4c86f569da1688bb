"""Runs the evaluators of a config on weights, and keeps what they find."""

import functools
import time
from typing import Any

from etils import epath
import jax

from vit_jax import console
from vit_jax import evals
from vit_jax import metrics as metrics_lib
from vit_jax import registry
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import coordination
from vit_jax.run import evaluate_checkpoint
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import weights as weights_lib


def evaluate(
    config: config_lib.Config, weights: weights_lib.Weights, *,
    prints: bool = False, output: epath.Path | None = None,
) -> dict[str, Any]:
  """Runs the evaluators; returns their metrics and tables as plain data.

  Args:
    config: config of the evaluation; see `evaluate_checkpoint.config_for`.
    weights: what is evaluated.
    prints: whether to print tables of the metrics.
    output: folder for figures; None draws none.
  """
  metrics: dict[str, float] = {}
  tables: dict[str, dict[str, Any]] = {}
  with watchdog_lib.Watchdog(
      config.log, 'reading the checkpoint',
  ) as watchdog, coordination.explain_lost_processes():
    experiment, params = evaluate_checkpoint.restore(config, weights)
    draw = registry.optional(registry.FIGURES) if (
        jax.process_index() == 0 and output is not None) else None
    for name in experiment.evaluators:
      beat = functools.partial(watchdog.beat, f'evaluating {name}')
      beat()
      start = time.monotonic()
      result = experiment.evaluate(name, params, beat)
      if prints:
        _print(experiment, name, result, time.monotonic() - start)
      for path in draw(name, result, output) if draw else ():
        print(f'figure      {path}')
      metrics |= result.metrics_of(name)
      if result.tables:
        tables[name] = {
            **{key: table.tolist() for key, table in result.tables.items()},
            'class_names': result.class_names}
  return {'checkpoint': weights.address, 'parameters': weights.kind,
          'metrics': metrics, 'tables': tables}


def _print(
    experiment: build_lib.Experiment, name: str, result: evals.Result,
    secs: float,
) -> None:
  dataset = experiment.data_of(name)
  if dataset.without_images:
    console.print_lines(f'note: {dataset.without_images_note}')
  images = console.format_count(int(result.metrics['examples']), 'image')
  console.table(f'{name}: {dataset.title}, {images} in {secs:.1f} s',
                *_table(experiment, name, result))
  for heading, details in result.details:
    console.table(heading, *details)


def _table(
    experiment: build_lib.Experiment, name: str, result: evals.Result,
) -> tuple[list[str], list[list[Any]]]:
  """Returns the headings and rows of a table of the metrics of an evaluator."""
  if result.printed:
    return result.printed
  declared = config_lib.declared_metrics(experiment.config)
  return ['metric', 'value'], [
      [key, console.format_metric(value, digits=5, is_fraction=metrics_lib.find(
          f'{name}/{key}', declared).is_fraction)]
      for key, value in result.metrics.items() if key != 'examples']
