"""Checkpoints are complete, bitwise exact and independent of the devices."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import threading
import time
from unittest import mock

from etils import epath
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tests import random_models
from vit_jax import metrics
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.training import health

CONFIG = {'model': {'width': 4, 'patch': [2, 3]}, 'averaging': None}
PROGRESS = {'device_secs': 1.5, 'evals': {'val/loss': 0.25}, 'best': None}
TX = optax.adam(1e-3, mu_dtype=jnp.bfloat16)


def new_state(step, *, devices=1, average=True, width=4):
  """Returns a state with several shapes and dtypes, sharded over `devices`."""
  rng = np.random.default_rng(step)
  params = {'encoder': {'kernel': jnp.zeros((8, width))},
            'head': {'bias': jnp.zeros(3)}}
  state = types.TrainState(
      step=jnp.zeros((), jnp.int32), params=params, opt_state=TX.init(params),
      average=params if average else None,
      metrics={'loss': metrics.Mean.empty(),
               'non_finite': health.NonFinite.none(params)})
  state = jax.tree.map(lambda leaf: jnp.asarray(
      rng.normal(size=leaf.shape) * 100, leaf.dtype), state)
  mesh = jax.make_mesh((devices,), ('d',), devices=jax.devices()[:devices])
  return jax.tree.map(
      lambda leaf: jax.device_put(leaf, NamedSharding(
          mesh, P('d') if leaf.ndim == 2 else P())),
      state.replace(step=jnp.asarray(step, jnp.int32)))


def abstract(state):
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=leaf.sharding), state)


def open_checkpoints(workdir, **section):
  return manager.Checkpoints(
      workdir, checkpoint_config.CheckpointConfig(**section))


def save(checkpoints, state, *, best=False):
  checkpoints.save(state, config=CONFIG, progress=PROGRESS,
                   which='best' if best else 'latest')


def restore(workdir, target, **options):
  with open_checkpoints(workdir, keep=2) as checkpoints:
    return checkpoints.restore(target, **options)


def assert_same_bits(have, want):
  assert jax.tree.structure(have) == jax.tree.structure(want)
  random_models.assert_same(have, want)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A run that saved steps 1 to 5; the best step was 2, then 3."""
  path = tmp_path_factory.mktemp('run')
  with open_checkpoints(path, keep=2, best='val/loss') as checkpoints:
    for step in range(1, 6):
      save(checkpoints, new_state(step, devices=2))
      if step in (2, 3):
        save(checkpoints, new_state(step, devices=2), best=True)
  return epath.Path(path)


def steps(folder):
  return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize('devices', [1, 2, 8])
def test_restore_is_bitwise_exact_on_any_number_of_devices(workdir, devices):
  target = abstract(new_state(0, devices=devices))
  restored = restore(workdir, target)
  state = restored.state
  assert restored.progress == PROGRESS
  assert_same_bits(state, new_state(5))
  assert state.opt_state[0].mu['encoder']['kernel'].dtype == jnp.bfloat16
  for leaf, want in zip(jax.tree.leaves(state), jax.tree.leaves(target)):
    assert leaf.sharding == want.sharding


def test_best_holds_the_model_only(workdir):
  assert steps(workdir / 'checkpoints/latest') == ['4', '5']
  assert steps(workdir / 'checkpoints/best') == ['3']
  assert_same_bits(items.read_params(paths.find(workdir, which='best')),
                   jax.device_get(new_state(3).average))
  assert not (workdir / 'checkpoints/best/3/training').exists()


@pytest.mark.parametrize('place', [
    '', 'checkpoints', 'checkpoints/latest', 'checkpoints/latest/5'])
def test_a_checkpoint_is_found_by_workdir_folder_or_step(workdir, place):
  step = paths.find(workdir / place)
  assert step == workdir / 'checkpoints/latest/5'
  assert items.read_config(step / 'config') == CONFIG
  assert {name: (leaf.shape, leaf.dtype) for name, leaf in
          tree.flatten(items.read_shapes(step / 'average')).items()} == {
      'encoder/kernel': ((8, 4), np.float32), 'head/bias': ((3,), np.float32)}
  loaded = items.read_params(step)
  assert_same_bits(loaded, jax.device_get(new_state(5).average))
  assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(loaded))


def test_the_average_is_loaded_if_there_is_one(workdir, tmp_path):
  assert items.params_item(paths.find(workdir)) == 'average'
  target = abstract(new_state(0, average=False))
  with open_checkpoints(tmp_path) as checkpoints:
    assert checkpoints.restore(target) is None
    save(checkpoints, new_state(1, average=False))
  step = paths.find(tmp_path)
  assert items.params_item(step) == 'params'
  assert_same_bits(items.read_params(step), jax.device_get(new_state(1).params))
  assert_same_bits(restore(tmp_path, target).state, new_state(1, average=False))
  with pytest.raises(ValueError, match='not hold the average.*averaging'):
    restore(tmp_path, abstract(new_state(0)))


def test_a_missing_checkpoint_is_an_error_that_lists_the_folder(tmp_path):
  def fails(words, folder=tmp_path):
    with pytest.raises((FileNotFoundError, ValueError), match=words):
      paths.find(folder)

  fails('/gone does not exist', tmp_path / 'gone')
  (tmp_path / 'notes.txt').write_text('')
  # The label of a class folder is no step.
  (tmp_path / '0').mkdir()
  (tmp_path / '0/image.png').write_text('')
  fails('holds no latest checkpoint: expected a workdir with checkpoints/latest'
        '/STEP, or the folder of one step. Found: 0, notes.txt.')
  for stage in ('pretrain', 'finetune'):
    (tmp_path / stage / 'checkpoints').mkdir(parents=True)
  fails('several runs. Name one of them: .*finetune, .*pretrain')
  (tmp_path / 'finetune' / 'checkpoints').rmdir()
  fails('/pretrain holds no latest')  # The only run is meant.


def test_a_partial_checkpoint_is_ignored_and_removed(workdir, tmp_path):
  run = tmp_path / 'run'
  shutil.copytree(workdir, run)
  latest = epath.Path(run) / 'checkpoints/latest'
  # A killed run leaves some of the items under a temporary name.
  half = latest / '6.orbax-checkpoint-tmp'
  shutil.copytree(latest / '5', half)
  shutil.rmtree(half / 'training')
  assert paths.find(run).name == '5'
  with pytest.raises(FileNotFoundError):
    paths.find(half)
  with open_checkpoints(run, keep=2) as checkpoints:
    state = checkpoints.restore(abstract(new_state(0))).state
    assert_same_bits(state, new_state(5))
    assert not half.exists()
    save(checkpoints, new_state(6))
  assert steps(latest) == ['5', '6']
  assert_same_bits(
      items.read_params(paths.find(run)), jax.device_get(new_state(6).average))


@pytest.mark.parametrize('method', [
    '_wait_for_checkpointers', '_finalize_checkpoint'])
def test_a_failed_save_is_raised_by_a_check_before_the_next_save(
    tmp_path, monkeypatch, method):
  monkeypatch.setattr(ocp.CheckpointManager, method, mock.Mock(
      side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
  with pytest.raises(
      errors.StorageError, match=r'No space left on device.* \(.* free\)'
  ), open_checkpoints(tmp_path) as checkpoints:
    # If it were not closed, a thread of Orbax could wait for itself forever.
    save(checkpoints, new_state(1))
    end = time.monotonic() + 60
    while time.monotonic() < end:
      checkpoints.check()
      time.sleep(0.1)
  assert time.monotonic() < end  # Not raised by the end of the context.


@pytest.mark.parametrize('step', [3, 4, 5])
def test_a_best_checkpoint_of_a_later_step_is_replaced(tmp_path, step):
  # The run was killed after it wrote the best of step 4, resumed before it, and
  # finds a best at an earlier, the same or a later step.
  with open_checkpoints(tmp_path) as checkpoints:
    checkpoints.save(new_state(4), config={'from': 'the killed run'},
                     progress=PROGRESS, which='best')
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(step), best=True)
  best = paths.find(tmp_path, which='best')
  assert paths.find(tmp_path, which='auto') == best
  assert items.read_config(best / 'config') == CONFIG
  assert steps(epath.Path(tmp_path) / 'checkpoints/best') == [str(step)]


def test_saving_a_step_twice_keeps_one_checkpoint_in_a_relative_path(
    tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with open_checkpoints('runs/one') as checkpoints:
    for _ in range(2):
      save(checkpoints, new_state(1, average=False))
  assert paths.find('runs/one', which='auto') == paths.find(
      'runs/one') == tmp_path / 'runs/one/checkpoints/latest/1'
  with pytest.raises(FileNotFoundError, match='holds no best checkpoint'):
    paths.find('runs/one', which='best')


def test_another_model_or_optimizer_is_an_error_with_the_differences(workdir):
  target = new_state(0, width=5)
  target.params['new'] = target.params.pop('head')
  with pytest.raises(ValueError, match=re.escape(
      'does not hold the model of the config. Use another --workdir, or '
      'the config that wrote it. Differences:\n'
      '  encoder/kernel: expected (8, 5), found (8, 4)\n'
      '  head/bias: expected nothing, found (3,)\n'
      '  new/bias: expected (3,), found nothing')) as caught:
    restore(workdir, abstract(target))
  assert 'latest/5' in str(caught.value)
  target = new_state(0)
  target = target.replace(opt_state=optax.sgd(0.1, momentum=0.9).init(
      target.params))
  with pytest.raises(ValueError, match='not hold the optimizer'):
    restore(workdir, abstract(target))
  target = target.replace(opt_state=optax.adam(0.1).init(target.params))
  with pytest.raises(ValueError, match='kernel: expected float32, found bfloa'):
    restore(workdir, abstract(target))
  with pytest.raises(ValueError, match='(?s)average.*expected nothing'):
    restore(workdir, abstract(new_state(0, average=False)))


def test_class_names_are_checked_before_the_shapes_of_the_model(tmp_path):
  def refuse(names):
    raise ValueError(f'not {names}')

  with open_checkpoints(tmp_path) as checkpoints:
    checkpoints.save(new_state(1), config=CONFIG, progress=PROGRESS,
                     labels=('cat', 'dog'))
  with pytest.raises(ValueError, match=r"not \('cat', 'dog'\)"):
    restore(tmp_path, abstract(new_state(0, width=5)), check_labels=refuse)


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """A run with few files: steps 1 and 2; the best step is 1."""
  path = tmp_path_factory.mktemp('small')
  with open_checkpoints(path, keep=2, best='val/loss') as checkpoints:
    for step in (1, 2):
      save(checkpoints, new_state(step, average=False))
    save(checkpoints, new_state(1, average=False), best=True)
  return epath.Path(path)


@pytest.fixture
def run(small, tmp_path):
  """A copy of that run."""
  return epath.Path(shutil.copytree(small, tmp_path / 'run'))


def flip(path, bit):
  data = bytearray(path.read_bytes())
  data[bit // 8 % len(data)] ^= 1 << bit % 8
  path.write_bytes(data)


@pytest.mark.slow
def test_no_flipped_bit_of_a_checkpoint_is_restored(small, tmp_path):
  """Flips one random bit of a random file, 30 times."""
  rng = np.random.default_rng(0)
  want = new_state(2, average=False)
  target = abstract(new_state(0, average=False))
  run = epath.Path(tmp_path) / 'run'
  files = sorted(path.relative_to(small) for path in pathlib.Path(
      small / 'checkpoints/latest/2').rglob('*') if path.is_file())
  found = 0
  for _ in range(30):
    shutil.copytree(small, run)
    file = files[rng.integers(len(files))]
    flip(pathlib.Path(run / file), int(rng.integers(2**40)))
    restored = restore(run, target)
    if restored.damaged:
      found += 1
      assert_same_bits(restored.state, new_state(1, average=False))
    else:  # Not part of the state.
      assert_same_bits(restored.state, want)
      assert restored.progress == PROGRESS
    with contextlib.suppress(items.DamagedError):
      assert_same_bits(items.read_params(paths.find(run)), jax.device_get(
          want.params))
    shutil.rmtree(run)
  assert found > 5  # Most bits belong to metadata that is not needed.


@pytest.mark.parametrize('missing', [
    'params', 'progress', 'checksums', '_CHECKPOINT_METADATA',
    'training/_METADATA'])
def test_a_damaged_checkpoint_is_skipped_and_replaced(missing, run):
  lost = run / 'checkpoints/latest/2' / missing
  lost.rmtree() if lost.is_dir() else lost.unlink()
  target = abstract(new_state(0, average=False))
  with open_checkpoints(run, keep=2) as checkpoints:
    restored = checkpoints.restore(target)
    assert_same_bits(restored.state, new_state(1, average=False))
    message, = restored.damaged
    assert message == (
        f'The checkpoint {run}/checkpoints/latest/2 is damaged and was skipped;'
        f' the next one replaces it: it lacks {missing}')
    save(checkpoints, new_state(2, average=False))
  assert steps(run / 'checkpoints/latest') == ['1', '2']
  restored = restore(run, target)
  assert restored.damaged == ()
  assert_same_bits(restored.state, new_state(2, average=False))


def test_the_only_checkpoint_is_not_skipped(run):
  (run / 'checkpoints/latest/1').rmtree()
  (run / 'checkpoints/latest/2/training').rmtree()
  with pytest.raises(items.DamagedError, match=(
      'latest/2 is damaged.*best/1. --config.init.checkpoint starts a')):
    restore(run, abstract(new_state(0, average=False)))
  assert steps(run / 'checkpoints/latest') == ['2']


def test_the_best_checkpoint_is_complete_before_the_latest(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints, mock.patch.object(
      checkpoints._best, 'wait_until_finished') as wait:
    save(checkpoints, new_state(1))
  assert wait.called


@pytest.mark.parametrize(('processes', 'error', 'damaged'), [
    (2, ValueError('torn'), True),
    (1, OSError(errno.EIO, os.strerror(errno.EIO)), False),
    (1, MemoryError(), False), (1, jax.errors.JaxRuntimeError('full'), False)])
def test_damage_is_an_error_of_several_processes_and_no_error_of_the_system(
    small, monkeypatch, processes, error, damaged):
  monkeypatch.setattr(
      ocp.CheckpointManager, 'restore', mock.Mock(side_effect=error))
  with open_checkpoints(small, keep=2) as checkpoints:
    monkeypatch.setattr(jax, 'process_count', lambda: processes)
    with pytest.raises(
        items.DamagedError if damaged else type(error)) as raised:
      checkpoints.restore(abstract(new_state(0, average=False)))
  assert ('this folder is deleted' in str(raised.value) if damaged else
          raised.value is error)


def test_a_checkpoint_that_a_network_drive_shows_late_is_awaited(
    run, tmp_path, monkeypatch):
  newest = run / 'checkpoints/latest/2'
  newest.rename(tmp_path / 'hidden')
  # Process 0 sees both checkpoints.
  monkeypatch.setattr(
      manager.coordination, 'run_on_first', lambda name, function: [2, 1])
  with open_checkpoints(run, keep=2) as checkpoints:
    threading.Timer(0.5, lambda: (tmp_path / 'hidden').rename(newest)).start()
    restored = checkpoints.restore(abstract(new_state(0, average=False)))
  assert_same_bits(restored.state, new_state(2, average=False))


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_after_a_storage_error_no_process_waits_for_the_saves_of_others(
    tmp_path, monkeypatch):
  closed = []
  monkeypatch.setattr(
      ocp.CheckpointManager, 'close', lambda self: closed.append(self))
  for distributed in (False, True):
    monkeypatch.setattr(
        manager.coordination, 'is_distributed', lambda x=distributed: x)
    with pytest.raises(errors.StorageError), open_checkpoints(tmp_path):
      raise errors.StorageError('disk full')
    assert len(closed) == 2  # The latest and the best.


def test_a_deleted_best_checkpoint_is_an_error_with_advice(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints, pytest.raises(
      ValueError, match='no checkpoint of step 1,.*checkpoint.best= to finish'):
    checkpoints.load_best(abstract(new_state(1)), step=1)
