"""One experiment in one workdir: restored, trained, evaluated, saved.

    restore or init ─▶ step ─▶ log ─▶ evaluate ─▶ save ─▶ step ...

The order matters. A checkpoint says what was logged and evaluated at its step,
so a run that is killed anywhere goes on as if nothing had happened: rows after
the checkpoint are written again, an evaluation that was cut off is redone.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import json
from typing import Any

import clu.parameter_overview
from etils import epath
import humanize
import jax

from vit_jax import config as config_lib
from vit_jax import experiment as experiment_lib
from vit_jax import model as model_lib
from vit_jax import records
from vit_jax import tree
from vit_jax import types
from vit_jax.analysis import plots
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import pretrained
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.training import clock as clock_lib
from vit_jax.training import health
from vit_jax.training import profiler as profiler_lib
from vit_jax.training import progress as progress_lib
from vit_jax.training import signals
from vit_jax.training import writer as writer_lib

CONFIG, SUMMARY, CURVES = 'config.json', 'summary.json', 'curves.png'
# Sections and keys that change how a run is made, not what comes of it.
WITHOUT_RESULT = (
    'mesh.', 'log.', 'checkpoint.', 'evals.', 'accumulation:', 'model.remat:',
    'model.unroll:', 'data.data_dir:', 'data.num_workers:', 'data.num_threads:',
    'data.prefetch:', 'init.')
IN_FLIGHT = 2  # Steps that the host may run ahead of the devices.


@dataclasses.dataclass
class Counters:
  """What a run counts beside its state; saved with each checkpoint.

  Attributes:
    origin: the checkpoint that the first parameters came from, or ''.
    images: images trained on; not steps x batch size, which may have changed.
    secs: time that the run took, over all restarts.
    device_secs: the same times the devices it held.
    evaluated: step of the last whole evaluation, or -1.
    evals: what it gave.
    train: the last row of training metrics.
    best: value of the metric that chooses the best checkpoint, or None.
    best_step: its step.
  """
  origin: str = ''
  images: int = 0
  secs: float = 0.0
  device_secs: float = 0.0
  evaluated: int = -1
  evals: dict[str, float] = dataclasses.field(default_factory=dict)
  train: dict[str, float] = dataclasses.field(default_factory=dict)
  best: float | None = None
  best_step: int | None = None


def train(
    experiment: experiment_lib.Experiment,
    workdir: epath.PathLike,
    *,
    title: str = '',
    source: manager.Source | model_lib.Weights | None = None,
    profile_steps: int = 0,
    show_parameters: bool = True,
) -> dict[str, Any]:
  """Trains to the end and returns the summary; goes on where a run stopped.

  Args:
    experiment: what to train.
    workdir: folder of the run; holds everything that comes of it.
    title: name to show.
    source: checkpoint whose parameters a new run starts from.
    profile_steps: steps to trace with the profiler; 0 for none.
    show_parameters: whether to print the table of parameters.

  Raises:
    signals.Stopped: if a signal asked for it; the state is saved.
    health.NonFiniteError: if the loss or a gradient is not finite.
  """
  workdir = epath.Path(workdir)
  if profile_steps and writer_lib.is_remote(workdir):
    raise ValueError(
        f'A profile is written to a local folder only, but the workdir is '
        f'{workdir}. Use --profile in a short run with a local --workdir.')
  workdir.mkdir(parents=True, exist_ok=True)
  with manager.Checkpoints(workdir, experiment.config.checkpoint) as saved:
    run = _Run(experiment, workdir, saved, title=title)
    return run.train(source, profile_steps, show_parameters)


class _Run:
  """The mutable side of a run: the state, the counters, the open files."""

  def __init__(
      self, experiment: experiment_lib.Experiment, workdir: epath.Path,
      saved: manager.Checkpoints, *, title: str):
    self._experiment = experiment
    self._config = experiment.config
    self._workdir = workdir
    self._saved = saved
    self._title = title
    self._active = jax.process_index() == 0
    self._counters = Counters()
    self._state: types.TrainState
    self._clock: clock_lib.Clock
    self._writer: writer_lib.MetricWriter
    self._progress: progress_lib.Progress
    self._stop: signals.Stop
    self._step = 0  # Updates made.
    self._logged = 0  # Of these, those already logged.
    self._secs = 0.0  # What earlier starts of the run took.

  def train(
      self, source: manager.Source | model_lib.Weights | None,
      profile_steps: int,
      show_parameters: bool,
  ) -> dict[str, Any]:
    """See `train`."""
    total = self._experiment.total_steps
    notes = self._start(source)
    summary = self._finished_before()
    if summary:
      print(f'{self._title or self._workdir}: finished before, at step '
            f'{total:,}.', flush=True)
      return summary
    if self._active:
      writer_lib.write_json(
          self._workdir / CONFIG, config_lib.to_plain(self._config))
    step_function, memory = self._compile()
    if self._active:
      print(describe(self._experiment, memory, self._title,
                     show_parameters=show_parameters), flush=True)
      print(notes, flush=True)
    self._clock = clock_lib.Clock(
        devices=self._experiment.mesh.size,
        device_secs=self._counters.device_secs)
    self._writer = writer_lib.MetricWriter(
        self._workdir, resume_step=self._step, active=self._active)
    self._progress = progress_lib.Progress(
        total, start_step=self._step, title=self._title, active=self._active)
    profiler = profiler_lib.Profiler(
        self._workdir / 'profile', first=self._step, last=total,
        steps=profile_steps)
    with signals.catch() as self._stop:
      try:
        with self._progress:
          self._loop(step_function, total, profiler)
          self._saved.wait()
      except signals.Stopped as stopped:
        self._save()
        self._saved.wait()
        print(f'{stopped}: saved at step {self._step:,}. The same command goes '
              'on from there.', flush=True)
        raise
      finally:
        profiler.stop()
        self._writer.close()
      summary = self._finish()
      self._stop.check()  # A signal during the last save stops what follows.
    return summary

  def _loop(
      self, step_function: Callable, total: int,
      profiler: profiler_lib.Profiler,
  ) -> None:
    if self._counters.evaluated != self._step:
      self._evaluate()  # Was cut off by the end of the process.
    in_flight: collections.deque[jax.Array] = collections.deque()
    with contextlib.closing(
        self._experiment.batches(start_step=self._step)) as batches:
      while self._step < total:
        self._stop.check()
        with self._clock.waiting():
          batch = next(batches)
        self._state, loss = step_function(self._state, batch)
        self._step += 1
        self._counters.images += self._config.batch_size
        self._progress.advance(self._step)
        in_flight.append(loss)
        if len(in_flight) > IN_FLIGHT:
          in_flight.popleft().block_until_ready()
        profiler.step(self._step, loss)
        if self._is_due(self._config.log.every):
          self._log()
        self._evaluate()
        if self._is_due(self._config.checkpoint.every):
          with self._clock.paused():
            self._save()

  def _is_due(self, every: records.Duration | None) -> bool:
    """Whether this step ends an interval; the last step ends every one."""
    if self._step == self._experiment.total_steps:
      return True
    if every is None or not self._step:
      return False
    return self._experiment.is_due(every, self._step)

  def _start(self, source: manager.Source | model_lib.Weights | None) -> str:
    """Restores the state, or makes it anew; returns what was done, in words."""
    restored = self._saved.restore(self._experiment.abstract_state)
    if restored is not None:
      return self._go_on(restored, source)
    self._state = self._experiment.init_state()
    if source is None:
      return f'Starts from random parameters (seed {self._config.seed}).'
    self._counters.origin = str(source.path)
    self._state, rows = self._experiment.start_from(
        self._state, source.load(), source.config)
    return (f'Starts from the {source.item} of {source.path}:\n'
            f'{pretrained.report(rows)}')

  def _go_on(
      self, restored: manager.Restored,
      source: manager.Source | model_lib.Weights | None,
  ) -> str:
    """Takes over a checkpoint of this run; returns what it says, in words."""
    total = self._experiment.total_steps
    self._state = restored.state
    self._counters = Counters(**restored.progress)
    self._step = self._logged = int(self._state.step)
    self._secs = self._counters.secs
    changes = config_lib.differences(
        restored.config, config_lib.to_plain(self._config))
    changed = ('\nThe config differs from the one it ran with:\n  '
               + '\n  '.join(changes)) if changes else ''
    if source is not None and str(source.path) != self._counters.origin:
      raise ValueError(
          f'The run in {self._workdir} started from '
          f'{self._counters.origin or "random parameters"}, but the config '
          f'now says {source.path}. Use another --workdir, or remove that one.')
    if self._step > total:
      raise ValueError(
          f'The run in {self._workdir} is at step {self._step:,}, beyond the '
          f'{total:,} that the config asks for. Use another --workdir, or a '
          'longer total.')
    if self._step == total and _concern_the_result(changes):
      raise ValueError(
          f'The run in {self._workdir} is finished, with another config than '
          f'this one. Use another --workdir, or a longer total.{changed}')
    old_grid = experiment_lib.grid(config_lib.resolve(restored.config))
    new_grid = experiment_lib.grid(self._config)
    if old_grid != new_grid:
      raise ValueError(
          f'The run in {self._workdir} has position embeddings of '
          f'{old_grid[0]}x{old_grid[1]} patches, but the config asks for '
          f'{new_grid[0]}x{new_grid[1]}. Start another run from it: '
          '--config.init.checkpoint.')
    return f'Goes on from step {self._step:,} of {self._workdir}.{changed}'

  def _finished_before(self) -> dict[str, Any] | None:
    """Returns the summary of a run that has nothing left to do."""
    if self._step < self._experiment.total_steps:
      return None
    try:
      summary = json.loads((self._workdir / SUMMARY).read_text())
    except (OSError, ValueError):  # Not written yet, or damaged: made again.
      return None
    return summary if summary.get('steps') == self._step else None

  def _compile(self) -> tuple[Callable, Any]:
    e = self._experiment
    compiled = e.train_step.lower(e.abstract_state, e.abstract_batch).compile()
    return compiled, compiled.memory_analysis()

  def _log(self) -> None:
    """Writes the averages since the last log line, and starts new ones."""
    measured = jax.device_get(self._state.metrics)
    health.assert_finite(measured.pop('non_finite'), self._state.params)
    batch_size = self._config.batch_size
    speed = self._clock.interval(
        images=(self._step - self._logged) * batch_size)
    self._logged = self._step
    row = {
        **{name: float(value.compute()) for name, value in measured.items()},
        'learning_rate': float(self._experiment.schedule(self._step - 1)),
        'epoch': self._step / self._experiment.steps_per_epoch,
        'images_seen': self._counters.images,
        'images_per_sec': speed.images_per_sec,
        'wait_share': speed.wait_share,
        'device_hours': self._clock.device_hours,
        'host_memory_bytes': profiler_lib.host_memory_bytes()}
    self._counters.train = row
    self._writer.write(
        self._step, {f'train/{name}': value for name, value in row.items()})
    self._progress.update(self._step, loss=row['loss'],
                          images_per_sec=speed.images_per_sec)
    self._state = dataclasses.replace(
        self._state, metrics=self._experiment.empty_metrics())
    self._saved.check()

  def _evaluate(self) -> None:
    """Runs the evaluators that are due at this step."""
    due = [name for name, section in self._config.evals.items()
           if self._is_due(section.every)]
    if not due:
      return
    row: dict[str, float] = {}
    with self._clock.paused():
      for name in due:
        measured = self._experiment.evaluators[name](
            self._state.eval_params, between=self._stop.check)
        row |= {f'{name}/{key}': value for key, value in measured.items()}
    self._writer.write(self._step, row)
    self._progress.print(
        f'step {self._step:,}: ' + progress_lib.format_metrics(row))
    self._counters.evaluated = self._step
    self._counters.evals |= row
    self._keep_best(row)

  def _keep_best(self, row: Mapping[str, float]) -> None:
    section = self._config.checkpoint
    if section.best not in row:
      if section.best.split('/')[0] in {key.split('/')[0] for key in row}:
        # Not for want of a name, which the config's check knows, but of a
        # metric that this data set has no use for. The state is not lost.
        self._save()
        self._saved.wait()
        raise ValueError(
            f'checkpoint.best is {section.best!r}, which is not measured on '
            f'this data. Measured: {", ".join(row)}.')
      return
    value = row[section.best]
    if section.is_better(value, self._counters.best):
      self._counters.best, self._counters.best_step = value, self._step
      self._write(self._saved.save_best)

  def _save(self) -> None:
    self._write(self._saved.save)

  def _write(self, save: Callable[..., None]) -> None:
    health.assert_finite(
        self._state.metrics['non_finite'], self._state.params)
    self._counters.secs = self._secs + self._clock.secs
    self._counters.device_secs = self._clock.device_secs
    save(self._state, config=config_lib.to_plain(self._config),
         progress=dataclasses.asdict(self._counters))

  def _finish(self) -> dict[str, Any]:
    counters = self._counters
    summary = {
        'steps': self._step,
        'images': counters.images,
        'secs': counters.secs,
        'device_hours': counters.device_secs / 3600,
        'devices': self._experiment.mesh.size,
        'device_kind': self._experiment.mesh.devices.flat[0].device_kind,
        'parameters': tree.num_elements(self._experiment.abstract_state.params),
        'metrics': {
            **{f'train/{name}': counters.train[name]
               for name in counters.train if name in (
                   'loss', 'accuracy', 'precision_at_1')},
            **counters.evals},
        'best': None if counters.best is None else {
            'metric': self._config.checkpoint.best, 'value': counters.best,
            'step': counters.best_step}}
    if self._active:
      writer_lib.write_json(self._workdir / SUMMARY, summary)
      plots.curves({self._title or self._workdir.name: writer_lib.read_rows(
          self._workdir)}, self._workdir / CURVES)
    return summary


def describe(
    experiment: experiment_lib.Experiment, memory: Any, title: str, *,
    show_parameters: bool,
) -> str:
  """Returns the arithmetic of a run: what divides into what, what it costs.

  Args:
    experiment: the run's.
    memory: the compiler's analysis of the step, or None.
    title: name of the run.
    show_parameters: appends the table of parameters.
  """
  config, state = experiment.config, experiment.abstract_state
  dataset, mesh = experiment.dataset, experiment.mesh
  _, height, width, channels = experiment.abstract_batch['image'].shape
  hosts, per_host = jax.process_count(), mesh.size // jax.process_count()
  share = config.batch_size // mesh_lib.data_parallelism(mesh)
  forward = experiment.flops_per_image()
  per_step = 3 * forward * config.batch_size  # Backward is twice forward.
  epochs = experiment.total_steps / experiment.steps_per_epoch
  lines = [
      f'{title or "run"}: {dataset.name} {dataset.split}, '
      f'{dataset.num_examples:,} images of {height}x{width}x{channels}, '
      f'{dataset.num_classes} classes',
      f'batch {config.batch_size:,} = {hosts} host(s) x {per_host} '
      f'{mesh.devices.flat[0].device_kind} device(s), {share:,} images each'
      + f' in {config.accumulation} parts' * (config.accumulation > 1)
      + f' | mesh {" x ".join(f"{a} {n}" for a, n in mesh.shape.items())}',
      f'{dataset.num_examples:,} images / {config.batch_size:,} = '
      f'{experiment.steps_per_epoch:,.1f} steps per epoch | '
      f'{epochs:,.1f} epochs = {experiment.total_steps:,} steps',
      f'{tree.num_elements(state.params):,} parameters'
      + (f', {experiment.num_trainable:,} of them trained'
         if experiment.num_trainable < tree.num_elements(state.params) else '')
      + f' | {_flops(forward)} per image forward, {_flops(per_step)} per step, '
      f'{_flops(per_step * experiment.total_steps)} in all',
      f'memory: parameters {_bytes(tree.num_bytes(state.params))}, optimizer '
      f'{_bytes(tree.num_bytes(state.opt_state))}'
      + (f', temporaries of a step {_bytes(memory.temp_size_in_bytes)} a device'
         if memory is not None else '')]
  if show_parameters:
    lines.append(clu.parameter_overview.get_parameter_overview(
        state.params, include_stats=False))
  return '\n'.join(lines)


def _flops(count: float) -> str:
  return humanize.metric(count, 'FLOP')


def _bytes(count: int) -> str:
  return humanize.naturalsize(count, binary=True)


def _concern_the_result(changes: Sequence[str]) -> list[str]:
  """Returns the changes of a config that make another result of a run."""
  return [line for line in changes if not line.startswith(WITHOUT_RESULT)]
