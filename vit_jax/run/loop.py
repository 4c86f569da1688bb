"""Runs one experiment in one workdir: restore, train, evaluate, save.

    restore or init -> step -> log -> evaluate -> save -> step ...

The order matters. A checkpoint records what was logged and evaluated at its
step, so a killed run resumes as if it had not stopped: later rows are written
again, and an interrupted evaluation is repeated.
"""

import collections
from collections.abc import Callable, Mapping
import contextlib
import dataclasses
from typing import Any

from etils import epath
import jax
import numpy as np

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import registry
from vit_jax import schema
from vit_jax import types
from vit_jax.checkpoints import lock
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.experiment import frozen_weights
from vit_jax.parallel import coordination
from vit_jax.parallel import device_memory
from vit_jax.parallel import multihost
from vit_jax.run import clock as clock_lib
from vit_jax.run import evaluation
from vit_jax.run import log_rows
from vit_jax.run import profiler as profiler_lib
from vit_jax.run import progress as progress_lib
from vit_jax.run import restore
from vit_jax.run import signals
from vit_jax.run import startup_summary
from vit_jax.run import unreadable_log
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.run import writer as writer_lib
from vit_jax.training import health
from vit_jax.weights import weights as weights_lib

_NUM_IMAGES = 16  # In TensorBoard.
IN_FLIGHT = 2  # Steps that the host may run ahead of the devices.


def train(
    experiment: experiment_lib.Experiment, workdir: epath.PathLike, *,
    title: str = '',
    weights: weights_lib.Weights | None = None,
    profile_steps: int = 0,
) -> dict[str, Any]:
  """Trains to the end, resuming a run if there is one; returns the summary.

  Args:
    experiment: the experiment.
    workdir: folder of the run.
    title: name to print.
    weights: initial parameters of a new run; by default random.
    profile_steps: number of steps to profile.

  Raises:
    ValueError: if a step or an evaluation does not fit into memory, `workdir`
      holds an incompatible run, or another run is active there.
    signals.Stopped: after a signal; the state is saved.
    health.NonFiniteError: if the loss or a gradient is not finite.
    errors.StorageError: if the workdir cannot be written to.
  """
  workdir = epath.Path(workdir).expanduser()
  if profile_steps and atomic_files.is_remote(workdir):
    raise ValueError(
        f'--profile needs a local workdir, but it is {workdir}. Profile a '
        'short run with a local --workdir.')
  with contextlib.ExitStack() as stack:
    # First, so that a signal during a long compilation is handled after it.
    stop = stack.enter_context(signals.catch())
    # Starts before any access to files or other processes, which may hang.
    watchdog = stack.enter_context(watchdog_lib.Watchdog(
        experiment.config.log, 'opening the workdir'))
    stack.enter_context(coordination.explain_lost_processes())
    coordination.run_on_first(
        'lock', lambda: stack.enter_context(lock.hold(workdir)))
    checkpoints = stack.enter_context(
        manager.Checkpoints(workdir, experiment.config.checkpoint))
    # Entered again here, so that closing the checkpoints sees a LostError.
    stack.enter_context(coordination.explain_lost_processes())
    multihost.connect_cpus(experiment.mesh)
    files = workdir_lib.Files(
        workdir, title, checkpoints.describe_latest)
    return _restore_and_train(
        experiment, files, checkpoints, stop, watchdog, weights, profile_steps)


def _restore_and_train(
    experiment: experiment_lib.Experiment, files: workdir_lib.Files,
    checkpoints: manager.Checkpoints, stop: signals.StopRequest,
    watchdog: watchdog_lib.Watchdog, weights: weights_lib.Weights | None,
    profile_steps: int,
) -> dict[str, Any]:
  """Implements `train` with the services of a run."""
  free_bytes = device_memory.free_bytes(experiment.mesh)
  fit_batch.check_state_fits(experiment, free_bytes=free_bytes)
  watchdog.beat('restoring or initialising the state', is_start=True)
  state, start = restore.restore_or_init(
      experiment, checkpoints, files.path, weights)
  experiment = start.experiment
  unreadable = unreadable_log.UnreadableRecorder(experiment, files)
  step = start.counters.step
  watchdog.beat('compiling', step=step, is_start=True)
  # Process 0 decides: other hosts may see stale files.
  summary = coordination.run_on_first('finished', lambda: restore.read_finished(
      experiment, files.path, start))
  if summary:
    early = ' (stopped early)' * summary.get('stopped_early', False)
    print(f'{files.title or files.path}: already finished at step '
          f'{step:,}{early}.', flush=True)
    if start.changed_evaluators:
      console.print_lines(
          'note: the metrics of this run were measured before the settings or '
          f'images of {", ".join(start.changed_evaluators)} changed; main.py '
          'evaluate with this config measures again', in_logs=True)
      return summary  # The card would describe them.
  else:
    print('compiling the training step', flush=True)
    fitted = fit_batch.fit(experiment, free_bytes=free_bytes,
                           previous=start.num_microbatches)
    # Saved with every checkpoint, so that the run keeps this number.
    experiment = fitted.experiment
    count_flops = registry.optional(registry.FLOPS)
    flops = count_flops(experiment) if count_flops else None
    files.write_start(experiment)
    if files.is_active:
      console.print_lines('\n'.join(filter(None, [
          startup_summary.describe(
              experiment, flops, fitted.memory, files.title,
              start.counters),
          fitted.message, start.message])), in_logs=True)
    run = _Run(experiment, files, checkpoints, stop, watchdog, unreadable,
               flops.training if flops else 0, state, start)
    del state  # The first step donates it.
    summary = run.train(fitted.step, profiler_lib.Profiler(
        files.path / 'profile', first=step, last=experiment.total_steps,
        steps=profile_steps))
    files.write_summary(experiment.config, summary)
    stop.check()  # Handles a signal during the last save.
  files.write_card(experiment, summary, origin=start.counters.origin,
                   source_config=weights.run if weights else {})
  return summary


@dataclasses.dataclass
class _Run:
  """The mutable parts of a run: state, counters and open files."""
  experiment: experiment_lib.Experiment
  files: workdir_lib.Files
  checkpoints: manager.Checkpoints
  stop: signals.StopRequest
  watchdog: watchdog_lib.Watchdog
  unreadable: unreadable_log.UnreadableRecorder
  flops_per_image: int
  state: types.TrainState
  start: restore.Start

  def __post_init__(self):
    self._config = self.experiment.config
    self._counters = dataclasses.replace(self.start.counters)
    self._logged_step = self._step
    self._clock = clock_lib.Clock(devices=self.experiment.mesh.size)
    self._evaluation = evaluation.Evaluation(
        self.experiment, self.checkpoints, self._clock,
        on_batch=self._on_eval_batch)
    self._writer = self.files.open_metrics(
        self._config, resume_step=self._step)
    self._progress = progress_lib.Progress(
        self.experiment.total_steps, start_step=self._step,
        title=self.files.title, active=self.files.is_active)

  def train(
      self, step_function: Callable, profiler: profiler_lib.Profiler,
  ) -> dict[str, Any]:
    """Runs the remaining steps; returns the summary."""
    try:
      with self._progress:
        with device_memory.explain_shortage('Training', advice=(
            f'Use more than {self._config.num_microbatches} microbatches: '
            '--config.accumulation.')):
          self._loop(step_function, profiler)
        self._report('finishing a checkpoint')
        self.checkpoints.wait()
    except signals.Stopped as stopped:
      self._report('saving after a signal')
      self._write_checkpoint()
      self.checkpoints.wait()
      console.print_lines(f'{stopped}: saved at step {self._step:,}. The same '
                          'command resumes from there.')
      raise
    finally:
      profiler.stop()
      self._writer.close()
      # Written even if an error ended the run.
      self.unreadable.write(step=self._step)
    if self._counters.unreadable:
      console.print_lines(unreadable_log.describe(self._counters))
    return log_rows.summary(self.experiment, self._counters)

  def _loop(
      self, step_function: Callable, profiler: profiler_lib.Profiler,
  ) -> None:
    if self._counters.evaluated != self._step:
      self._evaluate()  # Interrupted before the restart.
    in_flight: collections.deque[jax.Array] = collections.deque()
    with contextlib.closing(self.experiment.batches(
        start_step=self._step,
        unreadable=self.unreadable.start_counter(self._counters))) as batches:
      while not self._is_finished():
        self.stop.check()
        self.checkpoints.check()
        self._report('waiting for the input')
        is_first = self._step == self.start.counters.step
        # The first batch waits for the start of worker processes.
        with self._clock.paused() if is_first else self._clock.waiting():
          batch = next(batches)
        self._report('in a step')
        if is_first:  # Of the first device, before mixup.
          self._writer.write_images('train/images', np.asarray(
              batch['image'].addressable_data(0)[:_NUM_IMAGES]),
                                    step=self._step)
        self.state, loss = step_function(self.state, batch)
        self._counters.add_step(
            self._config.batch_size, flops_per_image=self.flops_per_image)
        self._progress.advance(self._step)
        in_flight.append(loss)
        if len(in_flight) > IN_FLIGHT:
          in_flight.popleft().block_until_ready()
        profiler.step(self._step, loss)
        if self._is_due(self._config.log.every):
          self._log()
        self._evaluate()
        if self._is_due(self._config.checkpoint.every):
          self._write_checkpoint()

  @property
  def _step(self) -> int:
    return self._counters.step

  def _is_finished(self) -> bool:
    return evaluation.is_finished(self.experiment, self._counters)

  def _is_due(self, every: schema.Duration | str) -> bool:
    return evaluation.is_due(self.experiment, self._counters, every)

  def _log(self) -> None:
    """Writes the metrics since the previous log line and resets them."""
    metrics = jax.device_get(self.state.metrics)
    health.assert_finite(metrics.pop('non_finite'), self.state.params)
    speed = self._clock.interval(
        images=(self._step - self._logged_step) * self._config.batch_size)
    self._logged_step = self._step
    self._update_counters()
    row = log_rows.training_row(
        self.experiment, self._counters, metrics, speed,
        flops_per_image=self.flops_per_image)
    self._counters.train = row
    self._write_row({f'train/{name}': value for name, value in row.items()})
    self._progress.update(self._step, loss=row['loss'], **speed)
    self.state = dataclasses.replace(
        self.state, metrics=self.experiment.empty_metrics())

  def _evaluate(self) -> None:
    """Runs the evaluators that are due at this step."""
    found = self._evaluation.run_due(self.state, self._counters)
    if found is None:
      return
    row, counters, lines = found
    self._write_row(row)
    for line in lines:
      self._progress.print(line)
    is_logged = self._is_due(self._config.log.every)
    # Set only here, so that an evaluation stopped by a signal is repeated.
    self._counters = counters
    if self._counters.best_step == self._step:
      self._write_checkpoint(paths.BEST)
    if self._is_finished() and not is_logged:
      self._log()  # Stopped early, between two log lines.

  def _on_eval_batch(self, name: str) -> None:
    self._report(f'evaluating {name}')
    self.stop.check()

  def _write_checkpoint(self, which: str = paths.LATEST) -> None:
    self._report('starting a checkpoint')
    health.assert_finite(
        self.state.metrics['non_finite'], self.state.params)
    self._update_counters()
    with self._explain_rows():
      self._writer.flush()
    with self._clock.paused():
      self.checkpoints.save(
          frozen_weights.without(self.experiment, self.state), which=which,
          config=config_lib.to_plain(self._config),
          progress={**dataclasses.asdict(self._counters),
                    'label_kind': self.experiment.dataset.kind},
          labels=self.experiment.dataset.classes.names,
          examples=self.start.examples)

  def _update_counters(self) -> None:
    """Counts unreadable images and time up to now."""
    self.unreadable.update(self._counters)
    self._counters.set_time(
        self.start.counters, self._clock,
        startup_summary.device_kind(self.experiment.mesh))

  def _write_row(self, row: Mapping[str, float]) -> None:
    with self._explain_rows():
      self._writer.write(self._step, row)

  def _explain_rows(self) -> contextlib.AbstractContextManager[None]:
    return self.files.explain_errors(f'a row of {writer_lib.FILENAME}')

  def _report(self, activity: str) -> None:
    self.watchdog.beat(activity, step=self._step)
