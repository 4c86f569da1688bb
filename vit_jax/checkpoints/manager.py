"""Saves and restores the checkpoints of a run.

    WORKDIR/checkpoints/latest/1200/
        {params,average,training,config,labels,progress}
    WORKDIR/checkpoints/best/900/{params,average,config,labels,progress}

`latest` is complete, to resume training; `best` holds the model only, a third
of the size with Adam, which is why it has its own Orbax manager. Parameters,
their average and the rest of the state are separate items, so that inference
reads the model only. Orbax writes in the background and renames complete
checkpoints; the next run deletes partial ones.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
from typing import Any

from etils import epath
import jax
import orbax.checkpoint as ocp

from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import config as config_lib
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items as items_lib
from vit_jax.checkpoints import paths
from vit_jax.checkpoints import saved_config
from vit_jax.parallel import coordination

# Large models over slow networks take long. Heartbeats find lost processes and
# the watchdog those that hang.
_SAVE_SECS = 24 * 3600
# Items with arrays, as named in errors.
_CONTENT = {'params': 'model', 'average': 'average (averaging)',
            'training': 'optimizer or objective'}


@dataclasses.dataclass(frozen=True)
class Restored:
  """A restored checkpoint.

  Attributes:
    state: the training state, with the requested shardings.
    progress: counters of the run.
    config: resolved config that wrote it.
  """
  state: types.TrainState
  progress: dict[str, Any]
  config: dict[str, Any]


class Checkpoints:
  """Saves and restores the state of one run; use as a context manager."""

  def __init__(
      self, workdir: epath.PathLike, config: config_lib.CheckpointConfig):
    self._root = paths.absolute(workdir) / paths.FOLDER
    with errors.explained('checkpoints', self._root):
      self._latest = _manager(self._root / paths.LATEST, keep=config.keep)
      self._best = _manager(self._root / paths.BEST, keep=1)
    self._needed_bytes = 0

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
    """Waits for writes in the background and raises their errors."""
    if kind is not None and issubclass(kind, coordination.LostError):
      return  # Closing would wait for the lost process.
    # An earlier error is not hidden by those of closing.
    suppressed = () if kind is None else (Exception,)
    with contextlib.suppress(*suppressed), self._explained('a checkpoint'):
      try:
        self._latest.close()
      finally:
        self._best.close()

  @property
  def latest_step(self) -> int | None:
    """Step of the newest complete checkpoint, or None."""
    return self._latest.latest_step()

  def save(
      self, state: types.TrainState, *, config: Mapping[str, Any],
      progress: Mapping[str, Any], labels: Sequence[str] = (),
  ) -> None:
    """Starts writing `state`; returns once it is copied from the devices.

    Args:
      state: the state; its step names the checkpoint.
      config: resolved config as plain data.
      progress: counters of the run as plain data.
      labels: class names, if known.

    Raises:
      errors.StorageError: if this or the previous save failed.
    """
    if int(state.step) not in self._latest.all_steps():
      # The end of the run and a signal may save the same step.
      self._write(
          self._latest, state, after=self._best,
          training=ocp.args.StandardSave(_training(state)),
          **_model(state, config, progress, labels))

  def save_best(
      self, state: types.TrainState, *, config: Mapping[str, Any],
      progress: Mapping[str, Any], labels: Sequence[str] = (),
  ) -> None:
    """Like `save`, but writes the model only and replaces the previous best."""
    # Left by a killed run that was further than the checkpoint it resumes
    # from. The run finds its best again.
    for stale in [s for s in self._best.all_steps() if s >= int(state.step)]:
      self._best.wait_until_finished()
      self._best.delete(stale)
    self._write(self._best, state, after=self._latest,
                **_model(state, config, progress, labels))

  def _write(
      self, manager: ocp.CheckpointManager, state: types.TrainState, *,
      after: ocp.CheckpointManager, **items: Any,
  ) -> None:
    """Starts a save, after that of the other manager if barriers are shared."""
    step, self._needed_bytes = int(state.step), tree.num_bytes(state)
    with self._explained(f'the checkpoint of step {step:,} or the previous'):
      if jax.process_count() > 1:
        after.wait_until_finished()
      manager.save(step, force=True, args=ocp.args.Composite(**items))

  def restore(self, abstract: types.TrainState) -> Restored | None:
    """Returns the newest checkpoint, or None if there is none.

    Args:
      abstract: shapes, types and shardings; the devices may differ from those
        that wrote the checkpoint.

    Raises:
      ValueError: if the checkpoint holds another state than `abstract`.
      items.DamagedError: if the checkpoint is damaged.
    """
    step = self.latest_step
    if step is None:
      return None
    path = epath.Path(self._latest.directory) / str(step)
    expected = {'params': abstract.params, 'training': _training(abstract)}
    if abstract.average is not None:
      expected['average'] = abstract.average
    with items_lib.explained(path, paths.others(path)):
      found = self._latest.item_metadata(step)
    for item, tree_of_item in expected.items():
      _check_same(_CONTENT[item], tree_of_item, found.get(item), path)
    with items_lib.explained(path, paths.others(path)):
      restored = self._latest.restore(step, args=ocp.args.Composite(
          config=ocp.args.JsonRestore(), progress=ocp.args.JsonRestore(),
          **{item: ocp.args.StandardRestore(target)
             for item, target in expected.items()}))
    saved_config.check_resumable(restored['config'])
    state = types.TrainState(
        params=restored['params'], average=restored.get('average'),
        **restored['training'])
    return Restored(state, restored['progress'],
                    saved_config.upgrade(restored['config']))

  def load_best(self, abstract: types.TrainState) -> types.Params:
    """Returns the parameters for evaluation of the best checkpoint."""
    item = 'params' if abstract.average is None else 'average'
    return self._best.restore(
        self._best.latest_step(), args=ocp.args.Composite(
            **{item: ocp.args.StandardRestore(abstract.eval_params)}))[item]

  def check(self) -> None:
    """Raises the error of a failed save in the background."""
    with self._explained('a checkpoint'):
      self._latest.check_for_errors()
      self._best.check_for_errors()

  def wait(self) -> None:
    """Waits until all saves are written; raises their errors."""
    with self._explained('a checkpoint'):
      self._latest.wait_until_finished()
      self._best.wait_until_finished()

  def describe_latest(self) -> str:
    """Returns a sentence on where the run can resume."""
    newest = paths.newest(self._root / paths.LATEST)
    if newest is None:
      return 'No checkpoint has been completed yet.'
    return (f'The checkpoint of step {int(newest.name):,} is complete; the '
            'same command resumes from it.')

  def _explained(self, what: str) -> contextlib.AbstractContextManager[None]:
    return errors.explained(
        what, self._root, needed_bytes=self._needed_bytes,
        resume=self.describe_latest)


def _check_same(
    what: str, expected: Any, found: Any, path: epath.Path) -> None:
  # Empty nodes of an optimizer state have no shape.
  arrays = {name: leaf for name, leaf in tree.flatten(found).items()
            if hasattr(leaf, 'shape')}
  difference = tree.differences(expected, arrays)
  if difference:
    raise ValueError(
        f'The checkpoint {path} holds another {what} than the config '
        'describes. Use another --workdir, or the config that wrote it. '
        'Differences:\n  ' + '\n  '.join(difference[:20]))


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


class _Manager(ocp.CheckpointManager):

  def reached_preemption(self, step: int) -> bool:
    """Returns False: `signals` asks JAX, and counts its own calls."""
    del step
    return False


def _manager(directory: epath.Path, *, keep: int) -> ocp.CheckpointManager:
  options = ocp.CheckpointManagerOptions(
      max_to_keep=keep, cleanup_tmp_directories=True,
      enable_async_checkpointing=True, async_options=ocp.AsyncOptions(
          timeout_secs=_SAVE_SECS),
      multiprocessing_options=ocp.options.MultiprocessingOptions(
          barrier_sync_key_prefix=directory.name))
  return _Manager(directory, options=options, item_handlers={
      **{name: ocp.StandardCheckpointHandler() for name in _CONTENT},
      **{name: ocp.JsonCheckpointHandler()
         for name in ('config', 'labels', 'progress')}})
