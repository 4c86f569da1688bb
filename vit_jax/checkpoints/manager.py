"""Checkpoints of a run: `latest`, to go on from, and `best`, to use.

    WORKDIR/checkpoints/latest/1200/
        {params,average,training,config,labels,progress}
    WORKDIR/checkpoints/best/900/{params,average,config,labels,progress}

Parameters, their average, and the rest of the state (optimizer, step, running
metrics) are items of their own, so that whoever wants the model alone reads
the model alone. Orbax writes in the background and renames a checkpoint into
place once it is whole; what is half-written is never seen, and is swept away
by the next run. A checkpoint that cannot be read is put aside, never deleted.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import logging
import os
import re
import shlex
import time
from typing import Any, Literal

from etils import epath
import jax
import orbax.checkpoint as ocp

from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items as items_lib
from vit_jax.checkpoints import paths
from vit_jax.parallel import coordination

FOLDER = 'checkpoints'
LATEST, BEST = paths.LATEST, paths.BEST
WHICH = (LATEST, BEST)
# A failure in the background is raised by the next call here. Orbax logs it as
# well, from each of its threads, with pages of tracebacks around our error.
logging.getLogger('absl').addFilter(
    lambda record: not (record.exc_info and 'orbax' in record.pathname))
_MAX_NAMES = 12
RELOAD_SECS = 1.0  # Between looks whether a network drive shows new names.


# A large model over a slow network takes long; a process that is lost in it is
# missed by its heartbeat, and one that hangs by the watchdog.
_SAVE_SECS = 24 * 3600
# What stops a reader, and says nothing against the files.
_ELSEWHERE = re.compile(
    'RESOURCE_EXHAUSTED|UNAVAILABLE|UNAUTHENTICATED|PERMISSION_DENIED'
    '|DEADLINE_EXCEEDED')


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
  """Section `checkpoint` of a config.

  Attributes:
    every: how often to save; the end and a signal save always.
    keep: how many of the latest to keep.
    best: metric that chooses the best, such as 'val/accuracy'; '' for none.
    best_mode: whether the best is the largest ('max') or the smallest ('min');
      'auto' is what its evaluator says: of a loss, the smallest.
    patience: the run ends when `best` has not improved for so long: a duration
      such as {'epochs': 5}, or a number of evaluations; None trains to the end.
  """
  every: schema.Duration = schema.Duration(percent=10)
  keep: int = 1
  best: str = ''
  best_mode: Literal['auto', 'max', 'min'] = 'auto'
  patience: schema.Duration | int | None = None

  def __post_init__(self):
    if self.keep < 1:
      raise ValueError(f'keep must be at least 1, but is {self.keep}.')
    if self.patience is not None and not self.best:
      raise ValueError(
          'patience waits for the metric `best` to improve, but best is not '
          "set. Name one, for example best='val/accuracy'.")
    if isinstance(self.patience, int) and self.patience < 1:
      raise ValueError(
          'patience must be at least 1 evaluation, but is '
          f'{self.patience}. Use none to train to the end.')


def parse(section: Mapping[str, Any]) -> CheckpointConfig:
  """Returns the typed record of the section `checkpoint`."""
  return schema.parse(CheckpointConfig, section, where='checkpoint')


@dataclasses.dataclass(frozen=True)
class Restored:
  """A checkpoint of a run, read whole.

  Attributes:
    state: the state, laid out as asked for.
    progress: what the run had counted.
    config: the resolved config that it ran with.
    damaged: what was wrong with newer ones, and where they were put.
  """
  state: types.TrainState
  progress: dict[str, Any]
  config: dict[str, Any]
  damaged: tuple[str, ...] = ()


class Checkpoints:
  """Saves and restores the state of one run; use as a context manager."""

  def __init__(self, workdir: epath.PathLike, config: CheckpointConfig):
    self._config = config
    self._root = _absolute(workdir) / FOLDER
    with errors.explained('checkpoints', self._root):
      self._latest = _manager(self._root / LATEST, keep=config.keep)
      self._best = _manager(self._root / BEST, keep=1)
      self._sweep()
    self._needed_bytes = 0

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
    # Waits for what is being written; raises if it could not be. An error that
    # is on its way already is not replaced by what follows from it.
    if kind is not None and issubclass(kind, coordination.LostError):
      return  # It would wait for the lost.
    with contextlib.ExitStack() as stack:
      if kind is not None:
        stack.enter_context(contextlib.suppress(Exception))
      with self._explained('what was being saved'):
        try:
          self._latest.close()
        finally:
          self._best.close()
        self._sweep()

  @property
  def latest_step(self) -> int | None:
    """Step of the newest whole checkpoint, or None."""
    return self._latest.latest_step()

  def save(
      self, state: types.TrainState, *, config: Mapping[str, Any],
      progress: Mapping[str, Any], labels: Sequence[str] = (),
  ) -> None:
    """Starts writing `state`; returns as soon as it is copied.

    Args:
      state: the state; its step names the checkpoint.
      config: resolved config, as plain data.
      progress: what the run counts beside the state, as plain data.
      labels: names of the classes, where known.

    Raises:
      storage.StorageError: if this or the save before it could not be written.
      Exception: if it failed for another reason; never just a log line.
    """
    step = int(state.step)
    if step in self._latest.all_steps():
      return  # The end of a run and a signal may ask for the same one.
    training = ocp.args.StandardSave(_training(state))
    self._needed_bytes = tree.num_bytes(state)
    with self._explained(f'the checkpoint of step {step:,} or the last one'):
      self._wait_for(self._best)
      self._latest.save(step, args=ocp.args.Composite(
          **_model(state, config, progress, labels), training=training))

  def save_best(
      self, state: types.TrainState, *, config: Mapping[str, Any],
      progress: Mapping[str, Any], labels: Sequence[str] = (),
  ) -> None:
    """As `save`, but keeps the model alone, in place of the best so far."""
    step = int(state.step)
    self._needed_bytes = max(self._needed_bytes, tree.num_bytes(state.params))
    with self._explained(f'the best checkpoint, of step {step:,}'):
      self._sweep()
      # Best ones of this step or a later are of a run that was killed, and that
      # this one goes over again. Orbax takes neither beside the new one.
      replaced = [s for s in self._best.all_steps() if s >= step]
      if replaced:
        self._best.wait_until_finished()  # It may still be being written.
        self._make_way(replaced)
      self._wait_for(self._latest)
      self._best.save(step, args=ocp.args.Composite(
          **_model(state, config, progress, labels)))

  def restore(self, abstract: types.TrainState) -> Restored | None:
    """Returns the newest checkpoint, or None if there is none.

    Where the newest is damaged and an older one is whole, that is the newest,
    and the damaged are put aside: the run computes again what they held.

    Args:
      abstract: shapes, types and shardings of the state; the devices may be
        others, and other in number, than those that wrote it.

    Raises:
      ValueError: if the checkpoint holds another state than `abstract`: other
        parameters, another optimizer, no average.
      items.DamagedError: if all are damaged.
    """
    damaged: dict[int, items_lib.DamagedError] = {}
    for step in sorted(self._latest.all_steps(), reverse=True):
      try:
        restored = self._restore(step, abstract)
      except items_lib.DamagedError as error:
        # A person has to say what is damaged where only one of several
        # processes may have seen it, and the others wait for it; and where the
        # files may be whole, and only the way to them is not.
        cause = error.__cause__
        if cause and (isinstance(cause, MemoryError)
                      or _ELSEWHERE.search(str(cause))):
          raise cause from None
        if jax.process_count() > 1 or errors.reason(error):
          raise _with_way_out(error, self._latest.directory, step) from error
        damaged[step] = error
      else:
        return dataclasses.replace(restored, damaged=tuple(
            self._put_aside(step, error) for step, error in damaged.items()))
    if damaged:
      raise damaged[max(damaged)]
    return None

  def _restore(self, step: int, abstract: types.TrainState) -> Restored:
    path = epath.Path(self._latest.directory) / str(step)
    with items_lib.explained(path, paths.others(path)):
      found = self._latest.item_metadata(step)
    for what, want, have in (
        ('model', abstract.params, found.get('params')),
        ('average (averaging)', abstract.average or {}, found.get('average')),
        ('optimizer or objective', _training(abstract), found.get('training'))):
      difference = tree.differences(want, _with_shapes(have)) if want else []
      if difference:
        raise ValueError(
            f'The checkpoint of step {step} in {self._latest.directory} holds '
            f'another {what} than the config asks for. Use another --workdir, '
            'or the config it was written with. Differences:\n  '
            + '\n  '.join(difference[:20])
            + f'\n  and {len(difference) - 20} more' * (len(difference) > 20))
    items = {'params': ocp.args.StandardRestore(abstract.params),
             'training': ocp.args.StandardRestore(_training(abstract)),
             'progress': ocp.args.JsonRestore(),
             'config': ocp.args.JsonRestore()}
    if abstract.average is not None:
      items['average'] = ocp.args.StandardRestore(abstract.average)
    with items_lib.explained(path, paths.others(path)):
      restored = self._latest.restore(step, args=ocp.args.Composite(**items))
    state = types.TrainState(
        params=restored['params'],
        average=restored['average'] if abstract.average is not None else None,
        **restored['training'])
    return Restored(state, restored['progress'], restored['config'])

  def check(self) -> None:
    """Raises if a save in the background has failed."""
    with self._explained('a checkpoint'):
      self._latest.check_for_errors()
      self._best.check_for_errors()

  def wait(self) -> None:
    """Waits until everything is written; raises if it could not be."""
    with self._explained('a checkpoint'):
      self._latest.wait_until_finished()
      self._best.wait_until_finished()

  def _wait_for(self, other: ocp.CheckpointManager) -> None:
    """Waits for the other manager's save, where processes must agree on it.

    Their barriers are told apart by the number of the save that was begun last.
    """
    if jax.process_count() > 1:
      other.wait_until_finished()

  def _make_way(self, steps: Sequence[int]) -> None:
    """Frees the names of best checkpoints, which stay till another is whole."""
    coordination.run_on_first(
        'best',
        lambda: paths.replace(epath.Path(self._best.directory), steps))
    self._best.reload()
    # A network drive may show another process the old names for a while.
    while set(steps) & set(self._best.all_steps()):
      time.sleep(RELOAD_SECS)
      self._best.reload()

  def _sweep(self) -> None:
    """Removes best checkpoints that were replaced, if another is whole."""
    if jax.process_index() == 0:
      paths.sweep(epath.Path(self._best.directory))

  def _put_aside(self, step: int, error: items_lib.DamagedError) -> str:
    """Renames a checkpoint; returns what was wrong with it, in words."""
    path = epath.Path(self._latest.directory) / str(step)
    aside = path.with_name(path.name + paths.DAMAGED)
    while aside.exists():
      aside = aside.with_name(aside.name + paths.DAMAGED)
    with self._explained('the name of a damaged checkpoint'):
      path.rename(aside)
    self._latest.reload()
    return (f'The checkpoint of step {step:,} cannot be read, and is now '
            f'{aside}: {items_lib.reason(error)}')

  def _explained(self, what: str) -> contextlib.AbstractContextManager[None]:
    return errors.explained(
        what, self._root, needed_bytes=self._needed_bytes,
        resume=self.what_is_safe)

  def what_is_safe(self) -> str:
    """Returns what the run can go on from, in words."""
    newest = paths.newest(self._root / LATEST)
    if newest is None:
      return 'No checkpoint has been finished yet.'
    return (f'The checkpoint of step {int(newest.name):,} is whole: the same '
            'command goes on from there.')


def _with_way_out(
    error: items_lib.DamagedError, folder: epath.PathLike, step: int,
) -> items_lib.DamagedError:
  path = epath.Path(folder) / str(step)
  older = [int(other.name) for other in paths.others(path)
           if other.parent == path.parent and int(other.name) < step]
  aside = path.with_name(path.name + paths.DAMAGED)
  move = (f'rename {path} to {aside}' if '://' in os.fspath(path) else
          shlex.join(['mv', os.fspath(path), os.fspath(aside)]))
  way_out = (f'To go on from step {max(older):,}: {move}, and start again.'
             if older else '')
  return items_lib.DamagedError(f'{error} {way_out}'.rstrip())


def _absolute(path: epath.PathLike) -> epath.Path:
  """Orbax takes absolute paths alone."""
  path = epath.Path(path).expanduser()
  is_remote = '://' in os.fspath(path)
  return path if is_remote else epath.Path(os.path.abspath(path))


def _with_shapes(metadata: Any) -> dict[str, Any]:
  """Returns the leaves that are arrays; empty nodes of a state have none."""
  return {name: leaf for name, leaf in tree.flatten(metadata).items()
          if hasattr(leaf, 'shape')}


def _model(
    state: types.TrainState, config: Mapping[str, Any],
    progress: Mapping[str, Any], labels: Sequence[str],
) -> dict[str, Any]:
  items = {
      'params': ocp.args.StandardSave(state.params),
      'config': ocp.args.JsonSave(dict(config)),
      'progress': ocp.args.JsonSave(dict(progress))}
  if labels:
    items['labels'] = ocp.args.JsonSave({'names': list(labels)})
  if state.average is not None:
    items['average'] = ocp.args.StandardSave(state.average)
  return items


def _training(state: types.TrainState) -> dict[str, Any]:
  return {'step': state.step, 'opt_state': state.opt_state,
          'metrics': state.metrics}


def _manager(directory: epath.Path, *, keep: int) -> ocp.CheckpointManager:
  options = ocp.CheckpointManagerOptions(
      max_to_keep=keep, cleanup_tmp_directories=True,
      enable_async_checkpointing=True, async_options=ocp.AsyncOptions(
          timeout_secs=_SAVE_SECS),
      multiprocessing_options=ocp.options.MultiprocessingOptions(
          barrier_sync_key_prefix=directory.name))
  return ocp.CheckpointManager(
      directory, options=options, item_handlers={
          'params': ocp.StandardCheckpointHandler(),
          'average': ocp.StandardCheckpointHandler(),
          'training': ocp.StandardCheckpointHandler(),
          'config': ocp.JsonCheckpointHandler(),
          'labels': ocp.JsonCheckpointHandler(),
          'progress': ocp.JsonCheckpointHandler()})


@dataclasses.dataclass(frozen=True)
class Source:
  """A checkpoint found on disk, to read a model from."""
  path: epath.Path
  config: dict[str, Any]
  shapes: Any  # Tree of metadata with `shape` and `dtype`.
  item: str  # 'average' where the run kept one, else 'params'.
  labels: tuple[str, ...] = ()  # Names of the classes, where known.

  def load(self) -> types.Params:
    """Reads the parameters to host memory, as NumPy arrays.

    Raises:
      ValueError: if the checkpoint is damaged.
    """
    with items_lib.explained(self.path, paths.others(self.path)):
      return items_lib.read_arrays(self.path / self.item, self.shapes)


def find(path: epath.PathLike, *, which: str = LATEST) -> Source:
  """Finds a checkpoint to start from or to evaluate.

  Args:
    path: a workdir, a folder of checkpoints, or one checkpoint.
    which: 'latest' or 'best', where `path` is a workdir.

  Raises:
    FileNotFoundError: if there is no checkpoint at `path`.
    ValueError: if the checkpoint is damaged, with the others that there are;
      or for another `which`.
  """
  schema.check_name(which, WHICH, what='which checkpoint')
  path = _absolute(path)
  if not path.exists():
    raise FileNotFoundError(f'There is nothing at {path}.')
  for folder in (path / FOLDER / which, path / which, path):
    step = paths.newest(folder)
    if step is not None:
      return _source(step)
  if paths.is_checkpoint(path):
    return _source(path)
  held = (', '.join(sorted(p.name for p in path.iterdir())[:_MAX_NAMES])
          if path.is_dir() else 'a file')
  raise FileNotFoundError(
      f'{path} holds no {which} checkpoint: expected a workdir with '
      f'{FOLDER}/{which}/STEP, or the folder of one step. '
      f'Found: {held or "nothing"}.')


def _source(path: epath.Path) -> Source:
  item = 'average' if (path / 'average').exists() else 'params'
  with items_lib.explained(path, paths.others(path)):
    lacking = [name for name in ('params', 'config')
               if not (path / name).is_dir()]
    if lacking:
      raise ValueError(f'it lacks {" and ".join(lacking)}')
    labels = (items_lib.read_config(path / 'labels')['names']
              if (path / 'labels').is_dir() else ())
    return Source(
        path=path, config=items_lib.read_config(path / 'config'),
        shapes=items_lib.read_shapes(path / item), item=item,
        labels=tuple(map(str, labels)))
