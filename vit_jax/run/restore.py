"""How a run starts: from its own checkpoint, from another's parameters, anew.

    a checkpoint in the workdir ─▶ go on, if the config still fits it
    none, but a source          ─▶ its parameters in a new state
    neither                     ─▶ random parameters

A config may change between two starts of a run. What may not is said here.
"""

from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from etils import epath

from vit_jax import types
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.inference import load
from vit_jax.run import best_checkpoint
from vit_jax.run import workdir as workdir_lib
from vit_jax.training import counters as counters_lib
from vit_jax.training import watchdog
from vit_jax.weights import initialize

# Sections and keys that change how a run is made, not what comes of it.
WITHOUT_RESULT = (
    'mesh.', 'log.', 'checkpoint.', 'evals.', 'accumulation:', 'model.remat:',
    'model.unroll:', 'data.data_dir:', 'data.num_workers:', 'data.num_threads:',
    'data.prefetch:', 'data.max_unreadable:', 'data.eval_unreadable:', 'init.',
    'card')

Source = checkpoint_source.Source | load.Weights


@dataclasses.dataclass(frozen=True)
class Start:
  """Where a run is when it starts. Not its state, whose memory is the run's.

  Attributes:
    counters: what earlier starts of it counted.
    note: what was done, in words.
    step: updates made.
    parts: of a batch, until now; None if no checkpoint says so.
    keeps_patience: whether `checkpoint.patience` is that of the checkpoint.
  """
  counters: counters_lib.Counters
  note: str
  step: int = 0
  parts: int | None = None
  keeps_patience: bool = True


def watching(
    log: config_lib.LogConfig, doing: str) -> watchdog.Watchdog:
  """Returns what ends this process where a part of its start hangs.

  Args:
    log: the section that says after how long.
    doing: the first part.
  """
  return watchdog.Watchdog(
      report_secs=log.stalled_secs, end_secs=log.hung_secs,
      start_secs=log.start_secs, doing=doing)


def find_source(
    origin: epath.PathLike, which: str, heads: int | None) -> Source:
  """Finds what a run starts from.

  Args:
    origin: a workdir, a checkpoint, or weights of another codebase.
    which: 'latest' or 'best' of a workdir's.
    heads: of the run's model, for weights that do not tell them; None of a
      ResNet.
  """
  known = {} if heads is None else {'num_heads': heads}
  return load.find(origin, which=which, **known)


def restore_or_init(
    experiment: experiment_lib.Experiment, saved: manager.Checkpoints,
    workdir: epath.Path, source: Source | None,
) -> tuple[types.TrainState, Start]:
  """Restores the state, or makes it anew.

  Args:
    experiment: what is trained.
    saved: the run's checkpoints.
    workdir: the run's.
    source: whose parameters a new run starts from; None is random ones.

  Raises:
    ValueError: if the run in `workdir` is another, or is beyond its end.
  """
  restored = saved.restore(experiment.abstract_state)
  if restored is not None:
    return restored.state, _go_on(experiment, restored, workdir, source)
  state = experiment.init_state()
  if source is None:
    return state, Start(counters_lib.Counters(), (
        f'Starts from random parameters (seed {experiment.config.seed}).'))
  state, rows = experiment.start_from(state, source.load(), source.config)
  return state, Start(counters_lib.Counters(origin=str(source.path)), (
      f'Starts from the {source.item} of {paths.shown(source.path)}:\n'
      f'{initialize.report(rows)}'))


def _go_on(
    experiment: experiment_lib.Experiment, restored: manager.Restored,
    workdir: epath.Path, source: Source | None,
) -> Start:
  """Returns where a checkpoint of this run is, if the run may go on from it."""
  config = experiment.config
  counters = counters_lib.Counters.restore(
      restored.progress, flops_per_image=experiment.training_flops_per_image)
  step = int(restored.state.step)
  # Read anew: what a newer version added was then at its default.
  earlier = config_lib.resolve(restored.config)
  changes = config_file.differences(config_lib.to_plain(earlier), {
      **config_lib.to_plain(config),
      **({'accumulation': earlier.num_microbatches}
         if config.accumulation == 'auto' else {})})
  changed = ('\nThe config differs from the one it ran with:\n  '
             + '\n  '.join(changes)) if changes else ''
  if source is not None and str(source.path) != counters.origin:
    raise ValueError(
        f'The run in {workdir} started from '
        f'{counters.origin or "random parameters"}, but the config '
        f'now says {source.path}. Use another --workdir, or remove that one.')
  if step > experiment.total_steps:
    raise ValueError(
        f'The run in {workdir} is at step {step:,}, beyond the '
        f'{experiment.total_steps:,} that the config asks for. Use another '
        '--workdir, or a longer total.')
  if (best_checkpoint.is_over(experiment, counters, step=step)
      and _concern_the_result(changes)):
    longer = ('total' if step == experiment.total_steps
              else 'checkpoint.patience')
    raise ValueError(
        f'The run in {workdir} is finished, with another config than '
        f'this one. Use another --workdir, or a longer {longer}.{changed}')
  _check_grid(earlier, config, workdir)
  return Start(
      counters, step=step, parts=earlier.num_microbatches,
      keeps_patience=not any(
          line.startswith('checkpoint.patience') for line in changes),
      note='\n'.join([
          *restored.damaged,
          f'Goes on from step {step:,} of {workdir}.{changed}']))


def _check_grid(
    earlier: config_lib.Config, config: config_lib.Config, workdir: epath.Path,
) -> None:
  """Raises if the position embeddings are those of other patches."""
  old_grid = experiment_lib.grid(earlier)
  new_grid = experiment_lib.grid(config)
  if old_grid != new_grid:
    raise ValueError(
        f'The run in {workdir} has position embeddings of '
        f'{old_grid[0]}x{old_grid[1]} patches, but the config asks for '
        f'{new_grid[0]}x{new_grid[1]}. Start another run from it: '
        '--config.init.checkpoint.')


def finished_before(
    experiment: experiment_lib.Experiment, workdir: epath.Path, start: Start,
) -> dict[str, Any] | None:
  """Returns the summary of a run that has nothing left to do."""
  try:
    summary = json.loads((workdir / workdir_lib.SUMMARY).read_text())
  except (OSError, ValueError):  # Not written yet, or damaged: made again.
    return None
  # Where a signal cut the last evaluation off, and the next start made it
  # again, the checkpoint does not know that patience has ended.
  early = summary.get('stopped_early') and start.keeps_patience
  is_over = early or best_checkpoint.is_over(
      experiment, start.counters, step=start.step)
  return summary if is_over and summary.get('steps') == start.step else None


def written_parts(
    config: config_lib.Config, workdir: epath.Path) -> int | None:
  """Returns the parts of a batch that the same run's config.json says."""
  try:
    written = config_lib.resolve(
        json.loads((workdir / workdir_lib.CONFIG).read_text()))
  except (OSError, ValueError):  # Not written yet, or damaged.
    return None
  same = {**config_lib.to_plain(written), 'accumulation': config.accumulation}
  changes = config_file.differences(same, config_lib.to_plain(config))
  return None if _concern_the_result(changes) else written.num_microbatches


def _concern_the_result(changes: Sequence[str]) -> list[str]:
  """Returns the changes of a config that make another result of a run."""
  return [line for line in changes if not line.startswith(WITHOUT_RESULT)]
