"""Trains the stages of a config, each after the one it starts from."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import metrics as metrics_lib
from vit_jax import registry
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import load_config
from vit_jax.run import log_rows
from vit_jax.run import loop
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.run import workdir as workdir_lib

# Headings of `rows`.
COLUMNS = ('stage', 'steps', 'train loss', 'metric', 'last', 'best', 'of step')


def train(
    specification: str, overrides: Sequence[str], workdir: epath.Path, *,
    profile_steps: int = 0,
) -> tuple[dict[str, Any], dict[str, metrics_lib.Metric]]:
  """Trains each stage in its folder of the workdir, or continues it.

  Args:
    specification: config file.
    overrides: settings, such as 'data.source=cifar10'.
    workdir: folder of the run; stages have subfolders of their names.
    profile_steps: number of steps to profile.

  Returns:
    The summary of each stage, and the declared metrics of all.
  """
  stages = load_config.load(specification, overrides)
  if any(config.log.wandb for config in stages.values()):
    registry.load(registry.WANDB).check()
  if profile_steps:
    registry.load(registry.PROFILER).check(workdir)
  summaries: dict[str, Any] = {}
  declared: dict[str, metrics_lib.Metric] = {}
  # All stages are built first, so that errors in any of them appear at once.
  log = next(iter(stages.values())).log
  print('opening the data', flush=True)
  with watchdog_lib.Watchdog(log, 'opening the data'):
    experiments = {
        name: build_lib.build(config, earlier=workdir_lib.read(
            workdir / name / workdir_lib.CONFIG))
        for name, config in stages.items()}
  for experiment in experiments.values():
    earlier = experiment.config.init.stage
    if earlier:
      fit_weights.check(experiment, experiments[earlier])
  for name in stages:
    if name:
      print(f'\nStage {name}', flush=True)
    # A finished stage is not kept: its compiled programs take memory.
    experiment, path = experiments.pop(name), workdir / name
    declared |= config_lib.declared_metrics(experiment.config)
    with watchdog_lib.Watchdog(log, 'opening the initial weights'):
      weights = fit_weights.open_initial(experiment.config, path)
    summaries[name] = loop.train(
        experiment, path, title=name, profile_steps=profile_steps,
        weights=weights, baseline=True)
  if jax.process_index() == 0 and list(stages) != ['']:
    atomic_files.write_json(
        workdir / workdir_lib.SUMMARY, {'stages': summaries})
    workdir_lib.draw_curves(
        workdir, {name: workdir / name for name in summaries},
        declared.values())
  return summaries, declared


def rows(
    summaries: Mapping[str, Any], workdir: epath.Path,
    declared: Mapping[str, metrics_lib.Metric],
) -> list[list[Any]]:
  """Returns rows of a table of the summaries; see `COLUMNS`."""
  found: list[list[Any]] = []
  shown = {one.name for one in declared.values() if one.title} - {'loss'}
  for name, summary in summaries.items():
    best, metrics = summary['best'] or {}, summary['metrics']
    best_values = {**best.get('metrics', {}), best.get('metric'): best.get(
        'value')}
    start = [name or workdir.name, summary['steps'], metrics.get('train/loss')]
    held_out = [key for key in metrics if not (
        key.startswith('train/') or key.endswith('/examples'))]
    keys = [key for key in held_out if (
        key.partition('/')[2] in shown or key.endswith('_shot')
        or key in best_values)] or [
            key for key in held_out if key.endswith('/loss')]
    found += [[*start, key, *(
        log_rows.format_value(key, values.get(key), declared)
        for values in (metrics, best_values)), best.get('step')]
             for key in keys] or [[*start, None, None, None, None]]
  return found
