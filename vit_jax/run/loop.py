"""Runs one experiment in one workdir: restore, train, evaluate, save.

    restore or init -> step -> log -> evaluate -> save -> step ...

The order matters. A checkpoint records what was logged and evaluated at its
step, so a killed run resumes as if it had not stopped: later rows are written
again, and an interrupted evaluation is repeated.
"""

import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
from typing import Any

from etils import epath
import jax

from vit_jax import console
from vit_jax import registry
from vit_jax import types
from vit_jax.checkpoints import paths
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.experiment import frozen_weights
from vit_jax.parallel import coordination
from vit_jax.parallel import device_memory
from vit_jax.parallel import multihost
from vit_jax.run import clock as clock_lib
from vit_jax.run import counters as counters_lib
from vit_jax.run import evaluation
from vit_jax.run import log_rows
from vit_jax.run import progress as progress_lib
from vit_jax.run import restore
from vit_jax.run import signals
from vit_jax.run import startup_summary
from vit_jax.run import unreadable_log
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.training import health
from vit_jax.weights import weights as weights_lib

IN_FLIGHT = 2  # Steps that the host may run ahead of the devices.


def train(
    experiment: experiment_lib.Experiment, workdir: epath.PathLike, *,
    title: str = '', weights: weights_lib.Weights | None = None,
    profile_steps: int = 0, baseline: bool = False,
) -> dict[str, Any]:
  """Trains to the end, resuming a run if there is one; returns the summary.

  Args:
    experiment: the experiment.
    workdir: folder of the run.
    title: name to print.
    weights: initial parameters of a new run; by default random.
    profile_steps: number of steps to profile.
    baseline: whether to measure the initial weights of a new run; see
      `registry.BASELINE`.

  Raises:
    UserError: if a step or an evaluation does not fit into memory, `workdir`
      holds an incompatible run, or another run is active there.
    signals.Stopped: after a signal; the state is saved.
    health.NonFiniteError: if the loss or a gradient is not finite.
    errors.StorageError: if the workdir cannot be written to.
  """
  with (
      # First, so that a signal during a long compilation is handled after it.
      signals.catch() as stop,
      # Starts before any access to files or other processes, which may hang.
      watchdog_lib.Watchdog(
          experiment.config.log, 'opening the workdir') as watchdog,
      workdir_lib.hold(
          workdir, title, experiment.config.checkpoint) as files):
    multihost.connect_cpus(experiment.mesh)
    return _Run(experiment, files, stop, watchdog).run(
        weights, profile_steps, baseline=baseline)


class _Run:
  """One start of a run: its services and, while it trains, its state."""

  def __init__(
      self, experiment: experiment_lib.Experiment, files: workdir_lib.Files,
      stop: signals.StopRequest, watchdog: watchdog_lib.Watchdog):
    self._experiment, self._files, self._stop = experiment, files, stop
    self._checkpoints, self._watchdog = files.checkpoints, watchdog
    self._counters = counters_lib.Counters()

  def run(
      self, weights: weights_lib.Weights | None, profile_steps: int, *,
      baseline: bool,
  ) -> dict[str, Any]:
    """Restores or initialises the state, and trains unless it has ended."""
    free_bytes = device_memory.free_bytes(self._experiment.mesh)
    fit_batch.check_state_fits(self._experiment, free_bytes=free_bytes)
    self._report('restoring or initialising the state', is_start=True)
    self._state, start = restore.restore_or_init(
        self._experiment, self._checkpoints, self._files.path, weights)
    self._experiment, self._counters = start.experiment, start.counters
    self._report('compiling', is_start=True)
    # Process 0 decides: other hosts may see stale files.
    summary = coordination.run_on_first(
        'finished', lambda: self._files.read_finished(
            self._counters.step) if self._is_finished() else {})
    if not summary:
      self._start(start, free_bytes, profile_steps)
      if baseline and weights and not self._counters.step:
        self._measure_baseline()
      summary = self._train()
    elif not self._files.describe_finished(summary, start.changed_evaluators):
      return summary  # The card would describe other metrics.
    self._files.write_card(
        self._experiment, summary, origin=self._counters.origin,
        source_config=weights.run if weights else {})
    return summary

  def _start(
      self, start: restore.Start, free_bytes: int | None, profile_steps: int,
  ) -> None:
    """Compiles the step, opens the files and describes the run."""
    self._profiler = registry.load(registry.PROFILER).Profiler(
        self._files.path / 'profile', first=self._step,
        last=self._experiment.total_steps, steps=profile_steps,
    ) if profile_steps else None
    print('compiling the training step', flush=True)
    fitted = fit_batch.fit(self._experiment, free_bytes=free_bytes,
                           previous=start.num_microbatches)
    # Saved with every checkpoint, so that the run keeps this number.
    self._experiment = fitted.experiment
    self._step_function, self._config = fitted.step, fitted.experiment.config
    count_flops = registry.optional(registry.FLOPS)
    flops = count_flops(self._experiment) if count_flops else None
    self._flops_per_image = flops.training if flops else 0
    described = startup_summary.describe(
        self._experiment, flops, fitted.memory, self._files.title,
        self._counters)
    self._files.write_start(self._experiment, '\n'.join(filter(None, [
        described, fitted.message, start.message])))
    self._examples, self._first_step = start.examples, self._step
    self._logged_step, self._clock = self._step, clock_lib.Clock()
    self._unreadable = unreadable_log.UnreadableRecorder(
        self._experiment, self._files)
    self._writer = self._files.open_metrics(
        self._config, resume_step=self._step)
    self._progress = progress_lib.Progress(
        self._experiment.total_steps, start_step=self._step,
        title=self._files.title, quiet=not self._files.is_active)

  def _measure_baseline(self) -> None:
    """Prints the accuracy of the initial weights before they are trained."""
    if describe := registry.optional(registry.BASELINE):
      self._progress.print(describe(
          self._experiment, self._state.params,
          functools.partial(self._on_eval_batch, 'baseline')))

  def _train(self) -> dict[str, Any]:
    """Runs the remaining steps; writes and returns the summary."""
    try:
      with self._progress, device_memory.explain_shortage('Training', advice=(
          f'Use more than {self._config.num_microbatches} microbatches: '
          '--config.accumulation.')):
        self._loop()
      self._report('finishing a checkpoint')
      self._checkpoints.wait()
    except signals.Stopped as stopped:
      self._report('saving after a signal')
      self._write_checkpoint()
      self._checkpoints.wait()
      console.print_lines(f'{stopped}: saved at step {self._step:,}. The same '
                          'command resumes from there.')
      raise
    finally:
      # Also if an error ended the run.
      if self._profiler:
        self._profiler.stop()
      self._writer.close()
      self._unreadable.close(self._counters)
    summary = log_rows.summary(self._experiment, self._counters)
    self._files.write_summary(self._config, summary)
    self._stop.check()  # Handles a signal during the last save.
    return summary

  def _loop(self) -> None:
    if self._counters.best_step is None:
      self._checkpoints.delete_best()  # It is forgotten, or found again.
    if self._counters.evaluated != self._step:
      self._evaluate()  # Interrupted before the restart.
    in_flight: collections.deque[jax.Array] = collections.deque()
    with contextlib.closing(self._experiment.batches(
        start_step=self._step,
        unreadable=self._unreadable.start_counter(self._counters))) as batches:
      while not self._is_finished():
        self._stop.check()
        self._checkpoints.check()
        batch = self._next(batches)
        self._report('in a step')
        self._state, loss = self._step_function(self._state, batch)
        self._counters.add_step(
            self._config.batch_size, flops_per_image=self._flops_per_image)
        self._progress.advance(self._step)
        in_flight.append(loss)
        if len(in_flight) > IN_FLIGHT:
          in_flight.popleft().block_until_ready()
        if self._profiler:
          self._profiler.step(self._step, loss)
        if self._is_due(self._config.log.every):
          self._log()
        self._evaluate()
        if self._is_due(self._config.checkpoint.every):
          self._write_checkpoint()

  def _next(self, batches: Iterator[types.Batch]) -> types.Batch:
    self._report('waiting for the input')
    is_first = self._step == self._first_step
    # The first batch waits for the start of worker processes.
    with self._clock.paused() if is_first else self._clock.waiting():
      batch = next(batches)
    if is_first:  # Before mixup.
      self._writer.write_images(self._step, 'train/images', batch['image'])
    return batch

  @property
  def _step(self) -> int:
    return self._counters.step

  def _is_finished(self) -> bool:
    return evaluation.is_finished(self._experiment, self._counters)

  def _is_due(self, every: Any) -> bool:
    return evaluation.is_due(self._experiment, self._counters, every)

  def _log(self) -> None:
    """Writes the metrics since the previous log line and resets them."""
    metrics = jax.device_get(self._state.metrics)
    health.assert_finite(metrics.pop('non_finite'), self._state.params)
    speed = self._clock.interval(
        images=(self._step - self._logged_step) * self._config.batch_size)
    self._logged_step = self._step
    self._update_counters()
    row = self._counters.train = log_rows.training_row(
        self._experiment, self._counters, metrics, speed,
        flops_per_image=self._flops_per_image)
    self._writer.write(
        self._step, {f'train/{name}': value for name, value in row.items()})
    self._progress.update(self._step, row)
    self._state = dataclasses.replace(
        self._state, metrics=self._experiment.empty_metrics())

  def _evaluate(self) -> None:
    """Runs the evaluators that are due at this step."""
    with self._clock.paused():
      found = evaluation.run_due(
          self._experiment, self._state, self._counters, self._checkpoints,
          on_batch=self._on_eval_batch)
    if found is None:
      return
    row, counters, text = found
    self._writer.write(self._step, row)
    self._progress.print(text)
    # Set only here, so that an evaluation stopped by a signal is repeated.
    self._counters = counters
    if self._counters.best_step == self._step:
      self._write_checkpoint(paths.BEST)
    if self._is_finished() and self._state.metrics['loss'].count:
      self._log()  # Stopped early, between two log lines.

  def _on_eval_batch(self, name: str) -> None:
    self._report(f'evaluating {name}')
    self._stop.check()

  def _write_checkpoint(self, which: str = paths.LATEST) -> None:
    self._report('starting a checkpoint')
    health.assert_finite(self._state.metrics['non_finite'], self._state.params)
    self._update_counters()
    self._writer.flush()
    with self._clock.paused():
      self._checkpoints.save(
          frozen_weights.without(self._experiment, self._state), which=which,
          config=config_lib.to_plain(self._config),
          progress={**dataclasses.asdict(self._counters),
                    'label_kind': self._experiment.dataset.kind},
          labels=self._experiment.dataset.classes.names,
          examples=self._examples)

  def _update_counters(self) -> None:
    """Counts unreadable images and time up to now."""
    self._unreadable.update(self._counters)
    self._counters.add_time(self._clock.lap(), self._experiment.mesh)

  def _report(self, activity: str, *, is_start: bool = False) -> None:
    self._watchdog.beat(activity, step=self._step, is_start=is_start)
