"""Saves and restores the checkpoints of a run.

    WORKDIR/checkpoints/latest/1200/
        {params,average,training,config,labels,examples,progress,checksums}
    WORKDIR/checkpoints/best/900/{params,average,config,labels,...}

`latest` is complete, to resume training; `best` holds the model only, a third
of the size with Adam, which is why it has its own Orbax manager. Parameters,
their average and the rest of the state are separate items, so that inference
reads the model only. Orbax writes in the background and renames complete
checkpoints; the next run deletes partial ones.

Why not `orbax.checkpoint.v1` (tried on 2026-11-26 with Orbax 0.11.36, which
ONNX export needs, and 0.12.8): it reads these checkpoints, whole and in part,
and saves in the background, but its `training.Checkpointer` has two drawbacks:
  - It creates a v0 manager that asks JAX for preemption notices at each save.
    JAX counts these calls, and `signals` makes one per step. `_Manager` makes
    none, but cannot be used there.
  - In 0.11.36, it cannot delete a step. A resumed run deletes best checkpoints
    of later steps.
Only this package uses Orbax, so a later move changes no other.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import time
from typing import Any

from etils import epath
import jax
import orbax.checkpoint as ocp

from vit_jax import atomic_files
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items as items_lib
from vit_jax.checkpoints import paths
from vit_jax.exceptions import UserError
from vit_jax.parallel import coordination

# Saving a large model over a slow network takes long. Heartbeats find lost
# processes, and the watchdog finds hanging ones.
_SAVE_SECS = 24 * 3600
# NFS clients cache the content of a folder for up to a minute by default.
_VISIBLE_SECS = 60
# JSON items that a run resumes from.
_PLAIN = ('config', 'progress')
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
    examples: what it was trained on and evaluated; {} if unknown.
    damaged: messages about newer, damaged checkpoints.
  """
  state: types.TrainState
  progress: dict[str, Any]
  config: dict[str, Any]
  examples: dict[str, Any]
  damaged: tuple[str, ...] = ()


class Checkpoints:
  """Saves and restores the state of one run; use as a context manager."""

  def __init__(
      self, workdir: epath.PathLike,
      config: checkpoint_config.CheckpointConfig):
    paths.check_writable(workdir)
    # Orbax requires absolute paths.
    self._root = epath.Path(atomic_files.absolute(workdir)) / paths.FOLDER
    with errors.explain_errors('checkpoints', self._root):
      self._latest = _manager(self._root / paths.LATEST, keep=config.keep)
      self._best = _manager(self._root / paths.BEST, keep=1)
    self._step: int | None = None  # Of the newest intact checkpoint.

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
    """Waits for writes in the background and raises their errors."""
    if kind is not None and coordination.is_distributed() and issubclass(
        kind, (coordination.LostError, errors.StorageError)):
      return  # Closing would wait for processes that are lost or cannot save.
    # Errors of closing must not hide an earlier one.
    suppressed = () if kind is None else (Exception,)
    with contextlib.suppress(*suppressed), self._explain_errors('a checkpoint'):
      try:
        self._latest.close()
      finally:
        self._best.close()

  def save(
      self, state: types.TrainState, *, config: Mapping[str, Any],
      progress: Mapping[str, Any], labels: Sequence[str] = (),
      examples: Mapping[str, Any] | None = None, which: str = paths.LATEST,
  ) -> None:
    """Starts writing `state`; returns once it is copied from the devices.

    Args:
      state: the state; its step names the checkpoint.
      config: resolved config as plain data.
      progress: counters of the run as plain data.
      labels: class names, if known.
      examples: the examples that it was trained on, if known, as plain data.
      which: 'latest', or 'best' for the model only, which replaces the previous
        best.

    Raises:
      errors.StorageError: if this or the previous save failed.
    """
    step, arrays = int(state.step), _content(state)
    manager, other = self._latest, self._best
    if which == paths.LATEST:
      if step == self._step:
        return  # The end of the run and a signal may save the same step.
      self._step = step
    else:
      manager, other = other, manager
      del arrays['training']
    plain = {'config': dict(config), 'progress': dict(progress)}
    if labels:
      plain['labels'] = {'names': list(labels)}
    if examples:
      plain[items_lib.EXAMPLES] = dict(examples)
    with self._explain_errors(
        f'the checkpoint of step {step:,} or the previous one'):
      # Damaged ones, or of a killed run, which may have saved a best one after
      # the step that it resumes from. The resumed run saves them again.
      for stale in [s for s in manager.all_steps() if s >= step]:
        manager.wait_until_finished()
        manager.delete(stale)
      # `latest` names the best step, so it must not be complete before it.
      if jax.process_count() > 1 or which == paths.LATEST:
        other.wait_until_finished()
      manager.save(step, force=True, args=items_lib.composite(arrays, plain))

  def restore(
      self, abstract: types.TrainState, *,
      check_labels: Callable[[Sequence[str]], None] = lambda names: None,
  ) -> Restored | None:
    """Returns the newest intact checkpoint, or None if there is none.

    Damaged ones are skipped if an older one is intact; the next save replaces
    them.

    Args:
      abstract: shapes, types and shardings; the devices may differ from those
        that wrote the checkpoint.
      check_labels: raises a UserError unless the class names of the
        checkpoint fit; called before the arrays are compared or read.

    Raises:
      UserError: if the checkpoint does not hold a state like `abstract`.
      items.DamagedError: if all checkpoints are damaged; with several
        processes, if any is, because one cannot decide for the others.
    """
    damaged: dict[int, items_lib.DamagedError] = {}
    # Network file systems may show another process an older state.
    steps = coordination.run_on_first(
        'steps', lambda: sorted(self._latest.all_steps(), reverse=True))
    for step in steps or ():
      try:
        restored = self._restore(step, abstract, check_labels)
      except items_lib.DamagedError as error:
        if jax.process_count() > 1:
          raise
        damaged[step] = error
      else:
        self._step = step
        return dataclasses.replace(restored, damaged=tuple(
            f'The checkpoint {self._path(step)} is damaged and was skipped; '
            f'the next one replaces it: {items_lib.reason(error)}'
            for step, error in damaged.items()))
    if damaged:
      raise damaged[max(damaged)]
    return None

  def _restore(
      self, step: int, abstract: types.TrainState,
      check_labels: Callable[[Sequence[str]], None],
  ) -> Restored:
    path = self._path(step)
    deadline = time.monotonic() + _VISIBLE_SECS
    while not path.exists() and time.monotonic() < deadline:
      time.sleep(1)
    expected = _content(abstract)
    with items_lib.explain_errors(path):
      sums = items_lib.read_checksums(path)
      found = self._latest.item_metadata(step)
      labels = items_lib.read_labels(path, sums)
      examples = items_lib.read_optional(path, items_lib.EXAMPLES, sums)
    check_labels(labels)
    for item, what in _CONTENT.items():
      _check_same(what, expected.get(item, {}), found.get(item), path)
    with items_lib.explain_errors(path):
      restored = self._latest.restore(step, args=ocp.args.Composite(
          **{name: ocp.args.JsonRestore() for name in _PLAIN},
          **{item: ocp.args.StandardRestore(target)
             for item, target in expected.items()}))
      checksums.check(
          sums, {item: restored[item] for item in (*expected, *_PLAIN)})
    state = types.TrainState(
        params=restored['params'], average=restored.get('average'),
        **restored['training'])
    return Restored(state, restored['progress'], restored['config'], examples)

  def holds_another_best(self, step: int) -> bool:
    """Whether the best checkpoint is of another step."""
    return bool({*self._best.all_steps()} - {step})

  def delete_best(self) -> None:
    """Deletes the best checkpoint, if there is one."""
    for step in self._best.all_steps():
      self._best.delete(step)

  def load_best(
      self, abstract: types.TrainState, *, step: int) -> types.Params:
    """Returns the parameters for evaluation of the best checkpoint."""
    item = 'params' if abstract.average is None else 'average'
    if step not in self._best.all_steps():
      raise UserError(
          f'{self._best.directory} holds no checkpoint of step {step}, the '
          'best one of this run. Restore it, or set --config.checkpoint.best= '
          'to finish without it.')
    path = epath.Path(self._best.directory) / str(step)
    with items_lib.explain_errors(path):
      sums = items_lib.read_checksums(path)
      restored = self._best.restore(step, args=ocp.args.Composite(
          **{item: ocp.args.StandardRestore(abstract.eval_params)}))
      checksums.check(sums, {item: restored[item]})
    return restored[item]

  def check(self) -> None:
    """Raises the error of a failed save in the background."""
    with self._explain_errors('a checkpoint'):
      for manager in (self._latest, self._best):
        # `check_for_errors` misses an error that its last thread received.
        if not manager.is_saving_in_progress():
          manager.wait_until_finished()

  def wait(self) -> None:
    """Waits until all saves are written; raises their errors."""
    with self._explain_errors('a checkpoint'):
      self._latest.wait_until_finished()
      self._best.wait_until_finished()

  def _path(self, step: int) -> epath.Path:
    return epath.Path(self._latest.directory) / str(step)

  def _explain_errors(
      self, what: str) -> contextlib.AbstractContextManager[None]:
    return errors.explain_errors(what, self._root, kind=Exception)


def _check_same(
    what: str, expected: Any, found: Any, path: epath.Path) -> None:
  # Empty nodes of an optimizer state have no shape.
  arrays = {name: leaf for name, leaf in tree.flatten(found).items()
            if hasattr(leaf, 'shape')}
  difference = tree.differences(expected, arrays) or tree.differences(
      expected, arrays, of='dtype')
  if difference:
    raise UserError(
        f'The checkpoint {path} does not hold the {what} of the config. '
        'Use another --workdir, or the config that wrote it. '
        'Differences:\n  ' + '\n  '.join(difference[:20]))


def _content(state: types.TrainState) -> dict[str, Any]:
  average = {} if state.average is None else {'average': state.average}
  return {'params': state.params, **average, 'training': {
      'step': state.step, 'opt_state': state.opt_state,
      'metrics': state.metrics}}


class _Manager(ocp.CheckpointManager):

  def reached_preemption(self, step: int) -> bool:
    """Returns False, because `signals` asks JAX and counts the calls."""
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
         for name in ('config', 'labels', 'progress', items_lib.EXAMPLES,
                      items_lib.CHECKSUMS)}})
