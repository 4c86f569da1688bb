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
import functools
import json
from typing import Any

from etils import epath
import jax

from vit_jax import announcement
from vit_jax import config as config_lib
from vit_jax import data
from vit_jax import experiment as experiment_lib
from vit_jax import loading
from vit_jax import model_card
from vit_jax import records
from vit_jax import tree
from vit_jax import types
from vit_jax.analysis import plots
from vit_jax.checkpoints import folders
from vit_jax.checkpoints import lock
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import pretrained
from vit_jax.checkpoints import storage
from vit_jax.parallel import agreement
from vit_jax.parallel import multihost
from vit_jax.plan import parts as parts_lib
from vit_jax.training import clock as clock_lib
from vit_jax.training import cost as cost_lib
from vit_jax.training import counters as counters_lib
from vit_jax.training import health
from vit_jax.training import profiler as profiler_lib
from vit_jax.training import progress as progress_lib
from vit_jax.training import signals
from vit_jax.training import watchdog as watchdog_lib
from vit_jax.training import writer as writer_lib

CONFIG, SUMMARY, CURVES = 'config.json', 'summary.json', 'curves.png'
# Sections and keys that change how a run is made, not what comes of it.
WITHOUT_RESULT = (
    'mesh.', 'log.', 'checkpoint.', 'evals.', 'accumulation:', 'model.remat:',
    'model.unroll:', 'data.data_dir:', 'data.num_workers:', 'data.num_threads:',
    'data.prefetch:', 'data.max_unreadable:', 'data.eval_unreadable:', 'init.',
    'card')
IN_FLIGHT = 2  # Steps that the host may run ahead of the devices.


def train(
    experiment: experiment_lib.Experiment,
    workdir: epath.PathLike,
    *,
    title: str = '',
    source: manager.Source | loading.Weights | None = None,
    profile_steps: int = 0,
    show_parameters: bool = True,
    free_bytes: int | None = None,
) -> dict[str, Any]:
  """Trains to the end and returns the summary; goes on where a run stopped.

  Args:
    experiment: what to train.
    workdir: folder of the run; holds everything that comes of it.
    title: name to show.
    source: checkpoint whose parameters a new run starts from.
    profile_steps: steps to trace with the profiler; 0 for none.
    show_parameters: whether to print the table of parameters.
    free_bytes: memory of a device that the run may take; by default what is
      free now.

  Raises:
    ValueError: if a step does not fit it, before the first; if an evaluation
      runs out of memory; if the run in `workdir` is another.
    signals.Stopped: if a signal asked for it; the state is saved.
    health.NonFiniteError: if the loss or a gradient is not finite.
    storage.StorageError: if the workdir cannot be written to.
    ValueError: if another run is at work there.
  """
  workdir = epath.Path(workdir)
  if profile_steps and writer_lib.is_remote(workdir):
    raise ValueError(
        f'A profile is written to a local folder only, but the workdir is '
        f'{workdir}. Use --profile in a short run with a local --workdir.')
  log = experiment.config.log
  with contextlib.ExitStack() as stack:
    # From the start: what comes during a long compilation is granted after it.
    stop = stack.enter_context(signals.catch())
    # First of all that may hang: a file system does, and so do the others.
    watchdog = stack.enter_context(watching(log, 'opening the workdir'))
    stack.enter_context(agreement.naming_the_lost())
    agreement.on_first(
        'lock', lambda: stack.enter_context(lock.hold(workdir)))
    saved = stack.enter_context(
        manager.Checkpoints(workdir, experiment.config.checkpoint))
    # And within: who is lost, the checkpoints do not wait for.
    stack.enter_context(agreement.naming_the_lost())
    multihost.join(experiment.mesh)
    run = _Run(experiment, workdir, saved, stop, watchdog, title=title)
    free_bytes = free_bytes or parts_lib.free_bytes(experiment.mesh)
    summary = run.train(source, profile_steps, show_parameters, free_bytes)
    run.write_card(summary, source)
    return summary


def watching(
    log: config_lib.LogConfig, doing: str) -> watchdog_lib.Watchdog:
  """Returns what ends this process where a part of its start hangs.

  Args:
    log: the section that says after how long.
    doing: the first part.
  """
  return watchdog_lib.Watchdog(
      report_secs=log.stalled_secs, end_secs=log.hung_secs,
      start_secs=log.start_secs, doing=doing)


def find_source(
    origin: epath.PathLike, which: str, heads: int | None,
) -> manager.Source | loading.Weights:
  """Finds what a run starts from.

  Args:
    origin: a workdir, a checkpoint, or weights of another codebase.
    which: 'latest' or 'best' of a workdir's.
    heads: of the run's model, for weights that do not tell them; None of a
      ResNet.
  """
  known = {} if heads is None else {'num_heads': heads}
  return loading.find(origin, which=which, **known)


class _Run:
  """The mutable side of a run: the state, the counters, the open files."""

  def __init__(
      self, experiment: experiment_lib.Experiment, workdir: epath.Path,
      saved: manager.Checkpoints, stop: signals.Stop,
      watchdog: watchdog_lib.Watchdog, *, title: str):
    self._experiment = experiment
    self._config = experiment.config
    self._workdir = workdir
    self._saved = saved
    self._stop = stop
    self._watchdog = watchdog
    self._title = title
    self._active = jax.process_index() == 0
    self._counters = counters_lib.Counters()
    self._device_kind = announcement.device_kind(experiment.mesh)
    self._flops_per_image = experiment.training_flops_per_image
    self._state: types.TrainState
    self._clock: clock_lib.Clock
    self._writer: writer_lib.MetricWriter
    self._progress: progress_lib.Progress
    self._keeps_patience = True  # As it was at the checkpoint.
    self._earlier_parts: int | None = None  # Of a batch, until now.
    self._step = 0  # Updates made.
    self._logged = 0  # Of these, those already logged.
    # What earlier starts of the run took.
    self._tally: data.Tally | None = None
    self._named = 0  # Unreadable examples that are written down.
    self._secs = 0.0
    self._device_secs_by_kind: dict[str, float] = {}

  def train(
      self, source: manager.Source | loading.Weights | None,
      profile_steps: int,
      show_parameters: bool,
      free_bytes: int | None,
  ) -> dict[str, Any]:
    """See `train`."""
    total = self._experiment.total_steps
    parts_lib.check_state(self._experiment, free_bytes=free_bytes)
    # May take long, of a large model over a slow network.
    self._doing('restoring or starting the state', is_start=True)
    notes = self._start(source)
    self._doing('compiling', is_start=True)
    # The first one's word: a file system may show each another state.
    summary = agreement.on_first('finished', self._finished_before)
    if summary:
      early = ', early' * summary.get('stopped_early', False)
      print(f'{self._title or self._workdir}: finished before, at step '
            f'{self._step:,}{early}.', flush=True)
      return summary
    fitted = self._fit(free_bytes)
    if self._active:
      with self._writes(CONFIG):
        writer_lib.write_json(
            self._workdir / CONFIG, config_lib.to_plain(self._config))
      print(announcement.describe(
          self._experiment, fitted.memory, self._title,
          show_parameters=show_parameters), flush=True)
      print(*filter(None, [fitted.note, notes]), sep='\n', flush=True)
    self._clock = clock_lib.Clock(devices=self._experiment.mesh.size)
    with self._writes(writer_lib.FILENAME):
      self._writer = writer_lib.MetricWriter(
          self._workdir, resume_step=self._step, active=self._active)
    self._progress = progress_lib.Progress(
        total, start_step=self._step, title=self._title, active=self._active)
    profiler = profiler_lib.Profiler(
        self._workdir / 'profile', first=self._step, last=total,
        steps=profile_steps)
    try:
      with self._progress:
        with parts_lib.explained('The training', advice=(
            f'Compute a batch in more than {self._config.parts} part(s): '
            '--config.accumulation.')):
          self._loop(fitted.step, profiler)
        self._doing('finishing a checkpoint')
        self._saved.wait()
    except signals.Stopped as stopped:
      self._doing('saving, as it was asked to stop')
      self._save()
      self._saved.wait()
      print(f'{stopped}: saved at step {self._step:,}. The same command goes '
            'on from there.', flush=True)
      raise
    finally:
      profiler.stop()
      self._writer.close()
      self._name_unreadable()  # An end for too many says which.
    if self._counters.unreadable:
      print(f'{self._counters.unreadable:,} of {self._counters.images:,} '
            'images could not be read, and others took their places: '
            f'{unreadable_file(0)}', flush=True)
    summary = self._finish()
    self._stop.check()  # A signal during the last save stops what follows.
    return summary

  def _loop(
      self, step_function: Callable, profiler: profiler_lib.Profiler,
  ) -> None:
    if self._counters.evaluated != self._step:
      self._evaluate()  # Was cut off by the end of the process.
    in_flight: collections.deque[jax.Array] = collections.deque()
    self._tally = self._new_tally()
    with contextlib.closing(self._experiment.batches(
        start_step=self._step, tally=self._tally)) as batches:
      while not self._is_over():
        self._stop.check()
        self._saved.check()
        self._doing('waiting for the input')
        with self._clock.waiting():
          batch = next(batches)
        self._doing('in a step')
        self._state, loss = step_function(self._state, batch)
        self._step += 1
        self._counters.images += self._config.batch_size
        self._counters.flops += (
            self._config.batch_size * self._flops_per_image)
        self._progress.advance(self._step)
        in_flight.append(loss)
        if len(in_flight) > IN_FLIGHT:
          in_flight.popleft().block_until_ready()
        profiler.step(self._step, loss)
        if self._is_due(self._config.log.every):
          self._log()
        self._evaluate()
        if self._is_over() and self._logged < self._step:
          self._log()  # An early end is the last step as any other.
        if self._is_due(self._config.checkpoint.every):
          with self._clock.paused():
            self._save()

  def _new_tally(self) -> data.Tally | None:
    """Returns what goes on counting what this process cannot read."""
    section = self._config.data
    if section.unreadable == 'error':
      return None
    parts, num_parts = multihost.batch_parts(self._experiment.mesh)
    return data.Tally(
        max_share=section.max_unreadable, log=self._experiment.unreadable,
        rows=self._counters.images * len(parts) // num_parts,
        count=self._counters.unreadable * len(parts) // num_parts)

  def _count_unreadable(self) -> None:
    """Takes over what all processes have counted, and writes down which."""
    if self._tally is not None:
      self._counters.unreadable = multihost.sum_of_shares(
          self._tally.count, self._tally.rows, total=self._counters.images)
    self._name_unreadable()

  def _name_unreadable(self) -> None:
    found = self._experiment.unreadable.found.values()
    if len(found) > self._named:
      name = unreadable_file(jax.process_index())
      with self._writes(name):
        writer_lib.add_rows(
            self._workdir / name, map(dataclasses.asdict, found),
            step=self._step)
      self._named = len(found)

  def _is_due(self, every: records.Duration | None) -> bool:
    """Whether this step ends an interval; the last step ends every one."""
    if self._is_over():
      return True
    if every is None or not self._step:
      return False
    return self._experiment.is_due(every, self._step)

  def _is_over(self) -> bool:
    """Whether there is no step left to make."""
    return (self._step == self._experiment.total_steps
            or self._is_out_of_patience(self._counters))

  def _is_out_of_patience(self, counters: counters_lib.Counters) -> bool:
    """Whether the metric of the best checkpoint has long not improved."""
    patience = self._config.checkpoint.patience
    if not isinstance(patience, records.Duration):
      return counters.is_out_of_patience(evaluations=patience)
    return counters.is_out_of_patience(steps=patience.exact_steps(
        batch_size=self._config.batch_size,
        num_examples=self._experiment.dataset.num_examples,
        total_steps=self._experiment.total_steps))

  def _start(self, source: manager.Source | loading.Weights | None) -> str:
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
    return (f'Starts from the {source.item} of {folders.shown(source.path)}:\n'
            f'{pretrained.report(rows)}')

  def _go_on(
      self, restored: manager.Restored,
      source: manager.Source | loading.Weights | None,
  ) -> str:
    """Takes over a checkpoint of this run; returns what it says, in words."""
    total = self._experiment.total_steps
    self._state = restored.state
    self._counters = counters_lib.Counters.restore(
        restored.progress, flops_per_image=self._flops_per_image)
    self._step = self._logged = int(self._state.step)
    self._secs = self._counters.secs
    self._device_secs_by_kind = self._counters.device_secs_by_kind
    # Read anew: what a newer version added was then at its default.
    earlier = config_lib.resolve(restored.config)
    self._earlier_parts = earlier.parts
    changes = config_lib.differences(config_lib.to_plain(earlier), {
        **config_lib.to_plain(self._config),
        **({'accumulation': self._earlier_parts}
           if self._config.accumulation == 'auto' else {})})
    self._keeps_patience = not any(
        line.startswith('checkpoint.patience') for line in changes)
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
    if self._is_over() and _concern_the_result(changes):
      longer = 'total' if self._step == total else 'checkpoint.patience'
      raise ValueError(
          f'The run in {self._workdir} is finished, with another config than '
          f'this one. Use another --workdir, or a longer {longer}.{changed}')
    old_grid = experiment_lib.grid(earlier)
    new_grid = experiment_lib.grid(self._config)
    if old_grid != new_grid:
      raise ValueError(
          f'The run in {self._workdir} has position embeddings of '
          f'{old_grid[0]}x{old_grid[1]} patches, but the config asks for '
          f'{new_grid[0]}x{new_grid[1]}. Start another run from it: '
          '--config.init.checkpoint.')
    return '\n'.join([
        *restored.damaged,
        f'Goes on from step {self._step:,} of {self._workdir}.{changed}'])

  def _finished_before(self) -> dict[str, Any] | None:
    """Returns the summary of a run that has nothing left to do."""
    try:
      summary = json.loads((self._workdir / SUMMARY).read_text())
    except (OSError, ValueError):  # Not written yet, or damaged: made again.
      return None
    # Where a signal cut the last evaluation off, and the next start made it
    # again, the checkpoint does not know that patience has ended.
    early = summary.get('stopped_early') and self._keeps_patience
    is_over = self._is_over() or early
    return summary if is_over and summary.get('steps') == self._step else None

  def _written_parts(self) -> int | None:
    """Returns the parts of a batch that the same run's config.json says."""
    try:
      written = config_lib.resolve(
          json.loads((self._workdir / CONFIG).read_text()))
    except (OSError, ValueError):  # Not written yet, or damaged.
      return None
    same = {**config_lib.to_plain(written),
            'accumulation': self._config.accumulation}
    changes = config_lib.differences(same, config_lib.to_plain(self._config))
    return None if _concern_the_result(changes) else written.parts

  def _fit(self, free_bytes: int | None) -> parts_lib.Fitted:
    """Compiles the step, in as few parts as fit, and takes these over."""
    # A run that was killed before its first checkpoint has said its parts too.
    earlier = self._earlier_parts or agreement.on_first(
        'parts', self._written_parts)
    fitted = parts_lib.fit(
        self._experiment, free_bytes=free_bytes, earlier=earlier,
        batches_ahead=IN_FLIGHT)
    self._experiment = fitted.experiment
    # Saved with every checkpoint: the run goes on in the same parts.
    self._config = fitted.experiment.config
    return fitted

  def _log(self) -> None:
    """Writes the averages since the last log line, and starts new ones."""
    measured = jax.device_get(self._state.metrics)
    health.assert_finite(measured.pop('non_finite'), self._state.params)
    batch_size = self._config.batch_size
    speed = self._clock.interval(
        images=(self._step - self._logged) * batch_size)
    self._logged = self._step
    self._count_unreadable()
    cost = self._cost()
    utilisation = cost_lib.utilisation(
        speed.images_per_sec * self._flops_per_image, kind=self._device_kind,
        devices=self._experiment.mesh.size)
    row = {
        **{name: float(value.compute()) for name, value in measured.items()},
        'learning_rate': float(self._experiment.schedule(self._step - 1)),
        'epoch': self._step / self._experiment.steps_per_epoch,
        'images_seen': cost.images,
        'exaflops': cost.exaflops,
        'images_per_sec': speed.images_per_sec,
        'wait_share': speed.wait_share,
        **({} if self._tally is None else {
            'unreadable': self._counters.unreadable}),
        **({} if utilisation is None else {'mfu': utilisation}),
        'device_hours': cost.device_hours,
        'core_hours': cost.core_hours,
        'host_memory_bytes': profiler_lib.host_memory_bytes()}
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
    row = self._measure(due, self._state.eval_params)
    counters = self._judged(row)
    if self._is_out_of_patience(counters):  # Just now: all ends, and is due.
      row |= self._measure([name for name, _ in evaluators if name not in due],
                           self._state.eval_params)
    if self._is_over() or self._is_out_of_patience(counters):
      counters.best_evals = self._best_evals(counters, row)
    self._write_row(row)
    self._progress.print(
        f'step {self._step:,}: ' + progress_lib.format_metrics(row))
    if self._is_out_of_patience(counters):
      self._progress.print(_early_end(self._config.checkpoint.best, counters))
    # All at once: a signal before leaves the evaluation to be done again.
    self._counters = dataclasses.replace(
        counters, evaluated=self._step, evals=self._counters.evals | row)
    if counters.best_step == self._step:
      self._write(self._saved.save_best)

  def _best_evals(
      self, counters: counters_lib.Counters, row: Mapping[str, float],
  ) -> dict[str, float]:
    """Returns what all evaluators say of the best checkpoint, at the end."""
    if counters.best is None:
      return {}
    if counters.best_step == self._step:
      return dict(row)
    self._saved.wait()
    params = multihost.put(
        manager.find(self._workdir, which=manager.BEST).load(),
        self._experiment.shardings.params)
    return self._measure(list(self._config.evals), params)

  def _measure(
      self, names: Sequence[str], params: types.Params) -> dict[str, float]:
    row: dict[str, float] = {}
    with self._clock.paused():
      for name in names:
        doing = f'evaluating {name}'
        self._doing(doing)
        with parts_lib.explained_evaluation(self._config, name):
          measured = self._experiment.evaluators[name](
              params, between=functools.partial(self._between, doing))
        row |= {f'{name}/{key}': value for key, value in measured.items()}
    return row

  def _doing(self, what: str, *, is_start: bool = False) -> None:
    self._watchdog.beat(what, step=self._step, is_start=is_start)

  def _between(self, doing: str) -> None:
    """What is done between two batches of an evaluation."""
    self._doing(doing)
    self._stop.check()

  def _judged(self, row: Mapping[str, float]) -> counters_lib.Counters:
    """Returns the counters with what a row says of the best checkpoint."""
    section = self._config.checkpoint
    counters = dataclasses.replace(self._counters)
    if section.best in row:
      counters.judge(row[section.best], step=self._step,
                     mode=config_lib.best_mode(self._config))
    elif section.best.split('/')[0] in {key.split('/')[0] for key in row}:
      # Not for want of a name, which the config's check knows, but of a
      # metric that this data set has no use for. The state is not lost.
      self._save()
      self._saved.wait()
      raise ValueError(
          f'checkpoint.best is {section.best!r}, which is not measured on '
          f'this data. Measured: {", ".join(row)}.')
    return counters

  def _save(self) -> None:
    self._write(self._saved.save)

  def _writes(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Explains a failure to write a file of the workdir."""
    return storage.explained(
        what, self._workdir, resume=self._saved.what_is_safe)

  def _write_row(self, row: Mapping[str, float]) -> None:
    with self._writes(f'a row of {writer_lib.FILENAME}'):
      self._writer.write(self._step, row)

  def _write(self, save: Callable[..., None]) -> None:
    self._doing('starting a checkpoint')
    self._count_unreadable()
    health.assert_finite(
        self._state.metrics['non_finite'], self._state.params)
    self._counters.secs = self._secs + self._clock.secs
    self._counters.device_secs_by_kind = dict(self._cost().device_secs_by_kind)
    save(self._state, config=config_lib.to_plain(self._config),
         progress=dataclasses.asdict(self._counters),
         labels=(self._experiment.dataset.targets
                 or self._experiment.dataset.class_names or ()))

  def _cost(self) -> cost_lib.Cost:
    """Returns what the run has cost until now."""
    return dataclasses.replace(
        self._counters.cost, device_secs_by_kind=cost_lib.spent(
            self._device_secs_by_kind, kind=self._device_kind,
            device_secs=self._clock.device_secs))

  def _finish(self) -> dict[str, Any]:
    counters = self._counters
    summary = {
        'steps': self._step,
        'stopped_early': self._step < self._experiment.total_steps,
        'secs': counters.secs,
        **counters.cost.figures(),
        'devices': self._experiment.mesh.size,
        'device_kind': self._device_kind,
        **({} if self._config.data.unreadable == 'error' else {
            'unreadable': counters.unreadable}),
        'parameters': tree.num_elements(self._experiment.abstract_state.params),
        'metrics': {
            **{f'train/{name}': counters.train[name]
               for name in counters.train if name in (
                   'loss', 'accuracy', 'precision_at_1')},
            **counters.evals},
        'best': None if counters.best is None else {
            'metric': self._config.checkpoint.best, 'value': counters.best,
            'step': counters.best_step, 'metrics': counters.best_evals}}
    if self._active:
      with self._writes(f'{SUMMARY} or {CURVES}'):
        writer_lib.write_json(self._workdir / SUMMARY, summary)
        plots.curves({self._title or self._workdir.name: writer_lib.read_rows(
            self._workdir)}, self._workdir / CURVES)
    return summary


  def write_card(
      self, summary: Mapping[str, Any],
      source: manager.Source | loading.Weights | None,
  ) -> None:
    """Writes what the finished run says of its model."""
    if self._active:
      with self._writes(model_card.FILENAME):
        model_card.write(self._workdir / model_card.FILENAME, model_card.of_run(
            self._experiment, summary, workdir=self._workdir,
            title=self._title, origin=model_card.Origin(
                self._counters.origin, source.config if source else {})))


def _early_end(metric: str, counters: counters_lib.Counters) -> str:
  best = 'was never a number' if counters.best is None else (
      f'is not better than at step {counters.best_step:,}, '
      f'{progress_lib.format_number(counters.best)}')
  return (f'{metric} {best}, {counters.unimproved} evaluation(s) and '
          f'{counters.unimproved_steps:,} steps ago: training ends here '
          '(checkpoint.patience).')


def unreadable_file(process: int) -> str:
  """Returns where a process names what it could not read, in the workdir."""
  return f'unreadable.{process}.jsonl' if process else 'unreadable.jsonl'


def _concern_the_result(changes: Sequence[str]) -> list[str]:
  """Returns the changes of a config that make another result of a run."""
  return [line for line in changes if not line.startswith(WITHOUT_RESULT)]
