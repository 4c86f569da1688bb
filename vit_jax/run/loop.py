"""Runs one experiment in one workdir: restore, train, evaluate, save.

    restore or init -> step -> log -> evaluate -> save -> step ...

The order matters. A checkpoint records what was logged and evaluated at its
step, so a killed run resumes as if it had not stopped: later rows are written
again, and an interrupted evaluation is repeated.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import functools
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import schema
from vit_jax import types
from vit_jax.checkpoints import lock
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_batch
from vit_jax.experiment import frozen_weights
from vit_jax.experiment import model_flops
from vit_jax.parallel import coordination
from vit_jax.parallel import device_memory
from vit_jax.parallel import multihost
from vit_jax.run import clock as clock_lib
from vit_jax.run import counters as counters_lib
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

IN_FLIGHT = 2  # Steps that the host may run ahead of the devices.


def train(
    experiment: experiment_lib.Experiment, workdir: epath.PathLike, *,
    title: str = '',
    weights: weights_lib.Weights | None = None,
    profile_steps: int = 0,
    free_bytes: int | None = None,
) -> dict[str, Any]:
  """Trains to the end, resuming a run if there is one; returns the summary.

  Args:
    experiment: the experiment.
    workdir: folder of the run.
    title: name to print.
    weights: initial parameters of a new run; by default random.
    profile_steps: number of steps to profile.
    free_bytes: device memory for the run; by default all that is free now.

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
    files = workdir_lib.Files(workdir, title, checkpoints.describe_latest)
    run = _Run(experiment, files, checkpoints, stop, watchdog)
    free_bytes = free_bytes or device_memory.free_bytes(experiment.mesh)
    return run.train(weights, profile_steps, free_bytes)


class _Run:
  """The mutable parts of a run: state, counters and open files."""

  def __init__(
      self, experiment: experiment_lib.Experiment, files: workdir_lib.Files,
      checkpoints: manager.Checkpoints, stop: signals.StopRequest,
      watchdog: watchdog_lib.Watchdog):
    self._experiment, self._config = experiment, experiment.config
    self._files, self._checkpoints = files, checkpoints
    self._stop, self._watchdog = stop, watchdog
    self._unreadable = unreadable_log.UnreadableRecorder(experiment, files)
    self._device_kind = startup_summary.device_kind(experiment.mesh)
    self._state: types.TrainState
    self._start: restore.Start
    self._counters: counters_lib.Counters
    self._step = 0  # Number of updates made.

  def train(
      self, weights: weights_lib.Weights | None, profile_steps: int,
      free_bytes: int | None,
  ) -> dict[str, Any]:
    fit_batch.check_state_fits(self._experiment, free_bytes=free_bytes)
    self._report('restoring or initialising the state', is_start=True)
    self._state, self._start = restore.restore_or_init(
        self._experiment, self._checkpoints, self._files.path, weights)
    self._counters = dataclasses.replace(self._start.counters)
    self._step = self._logged_step = self._start.step
    if not self._step:
      coordination.run_on_first('check_images', self._unreadable.check_images)
    self._report('compiling', is_start=True)
    # Process 0 decides: other hosts may see stale files.
    summary = coordination.run_on_first(
        'finished', lambda: restore.read_finished(
            self._experiment, self._files.path, self._start))
    if summary:
      early = ' (stopped early)' * summary.get('stopped_early', False)
      print(f'{self._files.title or self._files.path}: already finished at '
            f'step {self._step:,}{early}.', flush=True)
    else:
      self._train(self._fit(free_bytes), profile_steps)
      summary = log_rows.summary(
          self._experiment, self._counters, step=self._step,
          device_kind=self._device_kind)
      self._files.write_summary(summary)
      self._stop.check()  # Handles a signal during the last save.
    self._files.write_card(
        self._experiment, summary, origin=self._counters.origin,
        source_config=weights.run if weights else {})
    return summary

  def _fit(self, free_bytes: int | None) -> fit_batch.FittedStep:
    """Compiles the step with the fewest microbatches that fit."""
    print('compiling the training step', flush=True)
    fitted = fit_batch.fit(
        self._experiment, free_bytes=free_bytes,
        previous=self._start.num_microbatches)
    # Saved with every checkpoint, so that the run keeps this number.
    self._experiment = fitted.experiment
    self._config = fitted.experiment.config
    self._flops = model_flops.per_image(self._experiment)
    return fitted

  def _train(
      self, fitted: fit_batch.FittedStep, profile_steps: int) -> None:
    """Runs the remaining steps and waits for the last checkpoint."""
    total = self._experiment.total_steps
    self._files.write_start(self._experiment)
    if self._files.is_active:
      console.print_lines('\n'.join(filter(None, [
          startup_summary.describe(
              self._experiment, self._flops, fitted.memory,
              self._files.title),
          fitted.message, self._start.message])))
    self._clock = clock_lib.Clock(devices=self._experiment.mesh.size)
    self._writer = self._files.open_metrics(
        self._config, resume_step=self._step)
    self._progress = progress_lib.Progress(
        total, start_step=self._step, title=self._files.title,
        active=self._files.is_active, advise_input=functools.partial(
            log_rows.advise_input, self._config.data, self._experiment.dataset))
    profiler = profiler_lib.Profiler(
        self._files.path / 'profile', first=self._step, last=total,
        steps=profile_steps)
    try:
      with self._progress:
        with fit_batch.out_of_memory_advice('Training', advice=(
            f'Use more than {self._config.num_microbatches} microbatches: '
            '--config.accumulation.')):
          self._loop(fitted.step, profiler)
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
      profiler.stop()
      self._writer.close()
      # Written even if too many unreadable images ended the run.
      self._unreadable.write(step=self._step)
    if self._counters.unreadable:
      console.print_lines(unreadable_log.describe(self._counters))

  def _loop(
      self, step_function: Callable, profiler: profiler_lib.Profiler,
  ) -> None:
    if self._counters.evaluated != self._step:
      self._evaluate()  # Interrupted before the restart.
    in_flight: collections.deque[jax.Array] = collections.deque()
    with contextlib.closing(self._experiment.batches(
        start_step=self._step,
        unreadable=self._unreadable.start_counter(self._counters))) as batches:
      while not self._is_finished():
        self._stop.check()
        self._checkpoints.check()
        self._report('waiting for the input')
        is_first = self._step == self._start.step
        # The first batch waits for the start of worker processes.
        with self._clock.paused() if is_first else self._clock.waiting():
          batch = next(batches)
        self._report('in a step')
        log_rows.observe(self._experiment, self._writer, self._state, batch,
                         step=self._step, is_first=is_first)
        self._state, loss = step_function(self._state, batch)
        self._step += 1
        self._counters.add_images(
            self._config.batch_size,
            flops_per_image=self._flops.training)
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

  def _is_finished(self) -> bool:
    return evaluation.is_finished(
        self._experiment, self._counters, step=self._step)

  def _is_due(self, every: schema.Duration | str | None) -> bool:
    """Whether this step ends an interval, as the last step always does."""
    return self._is_finished() or (
        every is not None and self._step > 0
        and self._experiment.is_due(every, self._step))

  def _log(self) -> None:
    """Writes the metrics since the previous log line and resets them."""
    metrics = jax.device_get(self._state.metrics)
    health.assert_finite(metrics.pop('non_finite'), self._state.params)
    speed = self._clock.interval(
        images=(self._step - self._logged_step) * self._config.batch_size)
    self._logged_step = self._step
    self._unreadable.update(self._counters, step=self._step)
    self._counters.set_time(
        self._start.counters, self._clock, self._device_kind)
    row = log_rows.training_row(
        self._experiment, self._counters, metrics, speed, step=self._step,
        flops_per_image=self._flops.training, device_kind=self._device_kind)
    self._counters.train = row
    self._write_row({f'train/{name}': value for name, value in row.items()})
    self._progress.update(self._step, loss=row['loss'],
                          images_per_sec=speed.images_per_sec,
                          wait_share=speed.wait_share)
    self._state = dataclasses.replace(
        self._state, metrics=self._experiment.empty_metrics())

  def _evaluate(self) -> None:
    """Runs the evaluators that are due at this step."""
    evaluators = self._config.evals.items()
    due = [name for name, section in evaluators if self._is_due(section.every)]
    if not due:
      return
    params = self._state.eval_params
    row = self._run_evaluators(due, params)
    counters = dataclasses.replace(self._counters)
    best = self._config.checkpoint.best
    if best in row:
      counters.add_metric(
          row[best], step=self._step, mode=config_lib.best_mode(self._config))
    elif best.partition('/')[0] in due:
      raise ValueError(f'checkpoint.best is {best!r}, but the metrics are '
                       f'{", ".join(row)}. Choose one of them.')
    stops_early = evaluation.is_out_of_patience(self._experiment, counters)
    if stops_early:  # At the last step every evaluator is due.
      row |= self._run_evaluators(
          [name for name, _ in evaluators if name not in due], params)
    if self._is_finished() or stops_early:
      counters.best_evals = self._evaluate_best(counters, row)
    self._write_row(row)
    self._progress.print(log_rows.evaluation_line(
        row, step=self._step, targets=self._experiment.dataset.targets))
    if stops_early:
      self._progress.print(log_rows.describe_early_stop(best, counters))
    is_logged = self._is_due(self._config.log.every)
    # Set only here, so that an evaluation stopped by a signal is repeated.
    self._counters = dataclasses.replace(
        counters, evaluated=self._step, evals=self._counters.evals | row)
    if counters.best_step == self._step:
      self._write_checkpoint(paths.BEST)
    if self._is_finished() and not is_logged:
      self._log()  # Stopped early, between two log lines.

  def _run_evaluators(
      self, names: Sequence[str], params: types.Params) -> dict[str, float]:
    """Returns the metrics of evaluators by 'evaluator/metric'."""
    row: dict[str, float] = {}
    for name in names:
      self._on_eval_batch(name)
      with self._clock.paused(), fit_batch.evaluator_memory_advice(
          self._config, name):
        result = self._experiment.evaluate(
            name, params, functools.partial(self._on_eval_batch, name))
      row |= {f'{name}/{key}': value for key, value in result.metrics.items()}
    return row

  def _on_eval_batch(self, name: str) -> None:
    self._report(f'evaluating {name}')
    self._stop.check()

  def _evaluate_best(
      self, counters: counters_lib.Counters, row: Mapping[str, float],
  ) -> dict[str, float]:
    """Returns the metrics of the best checkpoint at the end of training."""
    if counters.best is None or counters.best_step is None:
      return {}
    if counters.best_step == self._step:
      return dict(row)
    self._checkpoints.wait()
    return self._run_evaluators(list(self._config.evals), restore.load_best(
        self._experiment, self._checkpoints, self._state,
        step=counters.best_step))

  def _write_checkpoint(self, which: str = paths.LATEST) -> None:
    self._report('starting a checkpoint')
    self._unreadable.update(self._counters, step=self._step)
    health.assert_finite(
        self._state.metrics['non_finite'], self._state.params)
    self._counters.set_time(
        self._start.counters, self._clock, self._device_kind)
    dataset = self._experiment.dataset
    with self._clock.paused():
      self._checkpoints.save(
          frozen_weights.without(self._experiment, self._state), which=which,
          config=config_lib.to_plain(self._config),
          progress=dataclasses.asdict(self._counters),
          labels=dataset.classes.names)

  def _write_row(self, row: Mapping[str, float]) -> None:
    with self._files.explain_errors(f'a row of {writer_lib.FILENAME}'):
      self._writer.write(self._step, row)

  def _report(self, activity: str, *, is_start: bool = False) -> None:
    self._watchdog.beat(activity, step=self._step, is_start=is_start)
