"""Checkpoints: whole or not there, bit for bit, on any devices."""

import errno
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from etils import epath
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from vit_jax import metrics
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import items
from vit_jax.checkpoints import manager
from vit_jax.training import health

CONFIG = {'model': {'width': 4, 'patch': [2, 3]}, 'averaging': None}
PROGRESS = {'device_secs': 1.5, 'evals': {'val/loss': 0.25}, 'best': None}
TX = optax.adam(1e-3, mu_dtype=jnp.bfloat16)


def new_state(step, *, devices=1, average=True, width=4):
  """A state in which no two leaves are alike, split over `devices`."""
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
  return manager.Checkpoints(workdir, manager.parse(section))


def save(checkpoints, state, *, best=False):
  write = checkpoints.save_best if best else checkpoints.save
  write(state, config=CONFIG, progress=PROGRESS)


def assert_same_bits(have, want):
  assert jax.tree.structure(have) == jax.tree.structure(want)
  for name, value in tree.flatten(want).items():
    got = tree.flatten(have)[name]
    assert got.dtype == value.dtype, name
    assert np.asarray(got).tobytes() == np.asarray(value).tobytes(), name


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A run that saved steps 1 to 5, with the best at 2 and then at 3."""
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
def test_restored_bit_for_bit_onto_any_number_of_devices(workdir, devices):
  target = abstract(new_state(0, devices=devices))
  with open_checkpoints(workdir, keep=2) as checkpoints:
    assert checkpoints.latest_step == 5
    restored = checkpoints.restore(target)
    state, progress = restored.state, restored.progress
  assert progress == PROGRESS
  assert_same_bits(state, new_state(5))
  assert state.opt_state[0].mu['encoder']['kernel'].dtype == jnp.bfloat16
  for leaf, want in zip(jax.tree.leaves(state), jax.tree.leaves(target)):
    assert leaf.sharding == want.sharding


def test_latest_and_best_are_kept_apart(workdir):
  assert steps(workdir / 'checkpoints/latest') == ['4', '5']
  assert steps(workdir / 'checkpoints/best') == ['3']
  assert_same_bits(manager.find(workdir, which='best').load(),
                   jax.device_get(new_state(3).average))
  # Whoever wants the model alone finds no optimizer there.
  assert not (workdir / 'checkpoints/best/3/training').exists()


@pytest.mark.parametrize('place', [
    '', 'checkpoints', 'checkpoints/latest', 'checkpoints/latest/5'])
def test_found_by_workdir_folder_or_step(workdir, place):
  source = manager.find(workdir / place)
  assert source.path == workdir / 'checkpoints/latest/5'
  assert source.config == CONFIG
  assert {name: (leaf.shape, leaf.dtype) for name, leaf in
          tree.flatten(source.shapes).items()} == {
      'encoder/kernel': ((8, 4), np.float32), 'head/bias': ((3,), np.float32)}
  loaded = source.load()
  assert_same_bits(loaded, jax.device_get(new_state(5).average))
  assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(loaded))


def test_earlier_step_is_found_by_its_folder(workdir):
  source = manager.find(workdir / 'checkpoints/latest/4')
  assert_same_bits(source.load(), jax.device_get(new_state(4).average))


def test_average_is_preferred_where_there_is_one(workdir, tmp_path):
  assert manager.find(workdir).item == 'average'
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(1, average=False))
  source = manager.find(tmp_path)
  assert source.item == 'params'
  assert_same_bits(source.load(), jax.device_get(new_state(1).params))
  with open_checkpoints(tmp_path) as checkpoints:
    state = checkpoints.restore(abstract(new_state(0, average=False))).state
  assert_same_bits(state, new_state(1, average=False))


def test_numbers_of_steps_are_compared_as_numbers(tmp_path):
  with open_checkpoints(tmp_path, keep=3) as checkpoints:
    for step in (9, 10):
      save(checkpoints, new_state(step))
  assert manager.find(tmp_path).path.name == '10'


def test_nothing_to_restore_is_none(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    assert checkpoints.latest_step is None
    assert checkpoints.restore(abstract(new_state(0))) is None


def test_nothing_to_find_is_an_error_that_says_what_is_there(tmp_path):
  with pytest.raises(FileNotFoundError, match='There is nothing at .*/gone'):
    manager.find(tmp_path / 'gone')
  words = ('holds no latest checkpoint: expected a workdir with '
           'checkpoints/latest/STEP, or the folder of one step. Found: ')
  with pytest.raises(FileNotFoundError, match=re.escape(words + 'nothing.')):
    manager.find(tmp_path)
  (tmp_path / 'notes.txt').write_text('')
  with pytest.raises(FileNotFoundError, match=re.escape(words + 'notes.txt.')):
    manager.find(tmp_path)


def test_run_without_a_best_has_none_to_find(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(1))
  with pytest.raises(FileNotFoundError, match='holds no best checkpoint'):
    manager.find(tmp_path, which='best')


def test_half_written_checkpoint_is_ignored_and_does_not_block(
    workdir, tmp_path):
  run = tmp_path / 'run'
  shutil.copytree(workdir, run)
  latest = epath.Path(run) / 'checkpoints/latest'
  # What a kill leaves: the folder under its temporary name, a part of it in it.
  half = latest / '6.orbax-checkpoint-tmp'
  shutil.copytree(latest / '5', half)
  shutil.rmtree(half / 'training')
  assert manager.find(run).path.name == '5'
  with pytest.raises(FileNotFoundError):
    manager.find(half)
  with open_checkpoints(run, keep=2) as checkpoints:
    assert checkpoints.latest_step == 5
    state = checkpoints.restore(abstract(new_state(0))).state
    assert_same_bits(state, new_state(5))
    assert not half.exists()  # Swept away.
    save(checkpoints, new_state(6))
  assert steps(latest) == ['5', '6']
  assert_same_bits(
      manager.find(run).load(), jax.device_get(new_state(6).average))


def test_checkpoint_killed_before_its_rename_is_never_seen(
    tmp_path, monkeypatch):
  # As a kill while Orbax writes: everything is there but the last rename.
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(1))
    checkpoints.wait()

  def killed(*_, **__):
    raise OSError('killed')

  with monkeypatch.context() as patch, pytest.raises(Exception, match='killed'):
    patch.setattr('os.rename', killed)
    patch.setattr('os.replace', killed)
    patch.setattr('pathlib.Path.rename', killed)
    with open_checkpoints(tmp_path) as checkpoints:
      save(checkpoints, new_state(2))
  assert len(steps(epath.Path(tmp_path) / 'checkpoints/latest')) == 2
  assert manager.find(tmp_path).path.name == '1'
  with open_checkpoints(tmp_path) as checkpoints:
    assert checkpoints.latest_step == 1
    save(checkpoints, new_state(2))
  assert manager.find(tmp_path).path.name == '2'


def test_save_that_fails_raises(tmp_path):
  # Whichever is noticed first: Orbax names the folder, we what stands there.
  with (pytest.raises(Exception, match='latest|a file is where a folder'),
        open_checkpoints(tmp_path) as checkpoints):
    latest = epath.Path(tmp_path) / 'checkpoints/latest'
    latest.rmtree()
    latest.write_text('a file where a folder was')
    save(checkpoints, new_state(1))
    checkpoints.wait()


def test_failure_in_the_background_shows_at_the_next_check(
    tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  checkpoints = open_checkpoints(tmp_path)
  monkeypatch.setattr('orbax.checkpoint.checkpoint_manager.CheckpointManager.'
                      '_finalize', full)
  save(checkpoints, new_state(1))
  with pytest.raises(
      errors.StorageError, match='could not be written to .* the disk is full '
      r'\(.* free, up to .* needed\). Make room there, or use another '
      '--workdir. No checkpoint has been finished yet.'):
    checkpoints.wait()
    checkpoints.check()


def test_saved_twice_at_one_step_is_saved_once(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    for _ in range(2):
      save(checkpoints, new_state(1))
      save(checkpoints, new_state(1), best=True)
  assert manager.find(tmp_path).path.name == '1'
  assert manager.find(tmp_path, which='best').path.name == '1'


@pytest.mark.parametrize('step', [3, 4, 5])
def test_best_of_a_lost_future_gives_way(tmp_path, step):
  # Killed after the best of step 4 was written: the run goes on from before,
  # and may find its best at an earlier or the same step.
  with open_checkpoints(tmp_path) as checkpoints:
    checkpoints.save_best(new_state(4), config={'from': 'the lost future'},
                          progress=PROGRESS)
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(step), best=True)
  source = manager.find(tmp_path, which='best')
  assert source.config == CONFIG
  assert steps(epath.Path(tmp_path) / 'checkpoints/best') == [str(step)]


@pytest.mark.parametrize('step', [3, 4])
def test_there_is_a_best_whenever_its_replacement_is_killed(
    tmp_path, monkeypatch, step):
  folder = epath.Path(tmp_path) / 'checkpoints/best'

  def best():
    return manager.find(tmp_path, which='best').config['from']

  def killed(*_, **__):
    raise KeyboardInterrupt

  def save_best(text):
    with open_checkpoints(tmp_path) as checkpoints:
      checkpoints.save_best(
          new_state(step), config={'from': text}, progress=PROGRESS)

  with open_checkpoints(tmp_path) as checkpoints:
    checkpoints.save_best(
        new_state(4), config={'from': 'the lost future'}, progress=PROGRESS)
  # Before the new one is written; a second time, over what that left.
  for _ in range(2):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
      patch.setattr(ocp.CheckpointManager, 'save', killed)
      save_best('never')
    assert best() == 'the lost future'
  # Before the old one is removed: the next start does that.
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(type(folder), 'rmtree', killed)
    save_best('the new run')
  assert best() == 'the new run'
  assert steps(folder) == [str(step), '4.replaced']
  with open_checkpoints(tmp_path):
    assert steps(folder) == [str(step)]
  save_best('a newer run')
  assert best() == 'a newer run'
  assert steps(folder) == [str(step)]


def test_saved_state_may_be_donated_at_once(tmp_path):
  state = new_state(1)
  want = jax.device_get(state)
  overwrite = jax.jit(
      lambda s: jax.tree.map(lambda x: x * 0, s), donate_argnums=0)
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, state)
    jax.block_until_ready(overwrite(state))
  with open_checkpoints(tmp_path) as checkpoints:
    restored = checkpoints.restore(abstract(new_state(0))).state
  assert_same_bits(restored, want)


def test_other_model_is_an_error_with_the_differences(workdir):
  target = new_state(0, width=5)
  target.params['new'] = target.params.pop('head')
  with open_checkpoints(workdir, keep=2) as checkpoints, pytest.raises(
      ValueError, match=re.escape(
          'holds another model than the config asks for. Use another --workdir,'
          ' or the config it was written with. Differences:\n'
          '  encoder/kernel: expected (8, 5), found (8, 4)\n'
          '  head/bias: expected nothing, found (3,)\n'
          '  new/bias: expected (3,), found nothing')) as caught:
    checkpoints.restore(abstract(target))
  assert 'step 5' in str(caught.value)


def test_average_that_was_never_kept_is_an_error_that_says_so(tmp_path):
  with open_checkpoints(tmp_path) as checkpoints:
    save(checkpoints, new_state(1, average=False))
  with open_checkpoints(tmp_path) as checkpoints, pytest.raises(
      ValueError, match='another average.*averaging'):
    checkpoints.restore(abstract(new_state(0)))


def test_section_has_defaults_and_names_mistakes():
  config = manager.parse({})
  assert (config.every, config.keep) == (schema.Duration(percent=10), 1)
  with pytest.raises(ValueError, match='keep must be at least 1, but is 0.'):
    manager.parse({'keep': 0})
  with pytest.raises(ValueError, match='best_mode'):
    manager.parse({'best_mod': 'min'})


def test_a_relative_path_is_as_good_as_an_absolute_one(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  config = manager.parse({'every': {'steps': 1}})
  with manager.Checkpoints('runs/one', config) as checkpoints:
    checkpoints.save(new_state(1), config={'a': 1}, progress={})
  assert manager.find('runs/one').path == tmp_path / 'runs/one' / (
      'checkpoints/latest/1')
  assert manager.find('runs/one/checkpoints/latest/1').config == {'a': 1}


@pytest.mark.parametrize(('section', 'words'), [
    ({'patience': 3}, "best is not set. Name one, for example best='val/"),
    ({'best': 'val/loss', 'patience': 0}, 'at least 1 evaluation, but is 0'),
    ({'best': 'val/loss', 'patience': {'epoch': 1}},
     "Did you mean 'epochs'?"),
    ({'best': 'val/loss', 'patience': 'long'}, 'patience must be a duration'),
])
def test_patience_without_sense_is_an_error(section, words):
  with pytest.raises(ValueError) as error:
    manager.parse(section)
  assert words in str(error.value)


def test_patience_is_a_duration_or_a_number_of_evaluations():
  assert manager.parse({'best': 'a/b', 'patience': 3}).patience == 3
  assert manager.parse({'best': 'a/b', 'patience': {'epochs': 2}}).patience == (
      schema.Duration(epochs=2))
  assert manager.parse({'best': 'a/b'}).patience is None


def test_another_optimizer_in_the_workdir_is_an_error(tmp_path):
  config = manager.parse({'every': {'steps': 1}})
  with manager.Checkpoints(tmp_path, config) as checkpoints:
    checkpoints.save(new_state(1), config={}, progress={})
  target = new_state(0)
  target = target.replace(opt_state=optax.sgd(0.1, momentum=0.9).init(
      target.params))
  with (manager.Checkpoints(tmp_path, config) as checkpoints,
        pytest.raises(ValueError, match='another optimizer')):
    checkpoints.restore(abstract(target))


# ------------------------------------------------------------------- damaged


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  """A run with steps 1 and 2, and a best at 1, of few files."""
  path = tmp_path_factory.mktemp('small')
  with open_checkpoints(path, keep=2, best='val/loss') as checkpoints:
    for step in (1, 2):
      save(checkpoints, new_state(step, average=False))
    save(checkpoints, new_state(1, average=False), best=True)
  return epath.Path(path)


def files_of(step):
  """Files of the items that a model is read from."""
  return sorted(
      path.relative_to(step).as_posix() for item in ('params', 'config')
      for path in pathlib.Path(step / item).rglob('*') if path.is_file())


def test_a_file_cut_anywhere_is_one_clear_error_or_changes_nothing(
    small, tmp_path, capfd):
  want = jax.device_get(new_state(2, average=False).params)
  told = set()
  for name in files_of(small / 'checkpoints/latest/2'):
    size = (small / 'checkpoints/latest/2' / name).stat().length
    for cut in sorted({0, size // 2, size - 1, None}, key=str):
      run = epath.Path(tmp_path) / f'{len(told)}-{name.replace("/", "_")}-{cut}'
      shutil.copytree(small, run)
      file = run / 'checkpoints/latest/2' / name
      if cut is None:
        file.unlink()
      else:
        file.write_bytes(file.read_bytes()[:cut])
      try:
        got = manager.find(run).load()
      except ValueError as error:
        assert type(error) is items.DamagedError
        text = str(error)
        assert text.startswith(
            f'The checkpoint {run}/checkpoints/latest/2 is damaged, or none: ')
        assert text.endswith(
            'Copy it again from where it was written, or use another of this '
            f'run: {run}/checkpoints/latest/1, {run}/checkpoints/best/1.')
        assert len(text.splitlines()) == 1
        told.add(name)
      else:
        assert_same_bits(got, want)
      shutil.rmtree(run)
  assert 'config/metadata' in told and 'params/_METADATA' in told
  assert any('/d/' in name for name in told)  # Where the values are.
  assert 'Traceback' not in capfd.readouterr().err


@pytest.mark.parametrize('item', ['params', 'config'])
def test_a_missing_item_is_named(item, small, tmp_path):
  run = epath.Path(tmp_path) / 'run'
  shutil.copytree(small, run)
  (run / 'checkpoints/latest/2' / item).rmtree()
  with pytest.raises(ValueError, match=f'latest/2 is damaged.*lacks {item}.*'
                     'run: .*latest/1, .*best/1'):
    manager.find(run)


def test_a_lonely_checkpoint_has_no_other(small, tmp_path):
  shutil.copytree(small / 'checkpoints/latest/2', tmp_path / 'step')
  (tmp_path / 'step/config/metadata').write_text('{')
  with pytest.raises(ValueError, match='step is damaged.*what should be JSON '
                     'is not.*there is no other beside it'):
    manager.find(tmp_path / 'step')


def test_folders_called_by_numbers_are_no_checkpoints(tmp_path):
  for label in ('0', '1'):
    (tmp_path / label).mkdir()
    (tmp_path / label / 'image.png').write_bytes(b'PNG')
  with pytest.raises(FileNotFoundError, match='holds no latest checkpoint'):
    manager.find(tmp_path)
  (tmp_path / '0/params').mkdir()  # Nor is this one.
  with pytest.raises(ValueError, match='0 is damaged, or none: it lacks conf'):
    manager.find(tmp_path)


@pytest.fixture
def damaged(small, tmp_path):
  """A run whose newest checkpoint has lost a half of its values."""
  run = epath.Path(tmp_path) / 'run'
  shutil.copytree(small, run)
  for item in ('params', 'training'):
    values = max(
        pathlib.Path(run / 'checkpoints/latest/2' / item).rglob('d/*'),
        key=lambda path: path.stat().st_size)
    values.write_bytes(values.read_bytes()[:values.stat().st_size // 2])
  return run


def test_a_damaged_newest_is_put_aside_for_the_one_before(damaged):
  target = abstract(new_state(0, average=False))
  with open_checkpoints(damaged, keep=2) as checkpoints:
    restored = checkpoints.restore(target)
    assert_same_bits(restored.state, new_state(1, average=False))
    assert checkpoints.latest_step == 1
    words, = restored.damaged
    assert words.startswith('The checkpoint of step 2 cannot be read, and is '
                            f'now {damaged}/checkpoints/latest/2.damaged: ')
    save(checkpoints, new_state(2, average=False))  # Its place is free again.
  assert steps(damaged / 'checkpoints/latest') == ['1', '2', '2.damaged']
  with open_checkpoints(damaged, keep=2) as checkpoints:
    restored = checkpoints.restore(target)
  assert restored.damaged == ()
  assert_same_bits(restored.state, new_state(2, average=False))


@pytest.mark.parametrize('error', [
    ValueError('RESOURCE_EXHAUSTED: out of memory'), MemoryError(),
    ValueError('UNAVAILABLE: 503')])
def test_a_checkpoint_that_could_not_be_reached_is_not_put_aside(
    damaged, monkeypatch, error):
  def fail(*_, **__):
    raise error
  with open_checkpoints(damaged, keep=2) as checkpoints:
    monkeypatch.setattr(ocp.CheckpointManager, 'restore', fail)
    with pytest.raises(type(error)) as raised:
      checkpoints.restore(abstract(new_state(0, average=False)))
  assert raised.value is error
  assert steps(damaged / 'checkpoints/latest') == ['1', '2']


def test_a_damaged_one_alone_is_an_error_and_stays(damaged):
  (damaged / 'checkpoints/latest/1').rmtree()
  with (open_checkpoints(damaged, keep=2) as checkpoints,
        pytest.raises(items.DamagedError, match='latest/2 is damaged.*best/1')):
    checkpoints.restore(abstract(new_state(0, average=False)))
  assert steps(damaged / 'checkpoints/latest') == ['2']


def contents(folder):
  return {path.relative_to(folder): path.read_bytes()
          for path in pathlib.Path(folder).rglob('*') if path.is_file()}


@pytest.mark.parametrize(('processes', 'error'), [
    (2, ValueError('torn')), (1, OSError(errno.EIO, os.strerror(errno.EIO)))])
def test_what_one_process_cannot_judge_is_left_to_a_person(
    small, tmp_path, monkeypatch, processes, error):
  run = tmp_path / 'my run'
  shutil.copytree(small, run)
  before = contents(run)
  target = abstract(new_state(0, average=False))

  def fail(*_, **__):
    raise error

  with open_checkpoints(run, keep=2) as checkpoints:
    with monkeypatch.context() as patch, pytest.raises(
        items.DamagedError, match=re.escape(str(error))) as caught:
      patch.setattr(checkpoints._latest, 'restore', fail)
      patch.setattr(jax, 'process_count', lambda: processes)
      checkpoints.restore(target)
  assert contents(run) == before
  # Its way out is one.
  command, = re.findall(
      'To go on from step 1: (mv .*), and start again', str(caught.value))
  subprocess.run(shlex.split(command), check=True)
  with open_checkpoints(run, keep=2) as checkpoints:
    restored = checkpoints.restore(target)
  assert_same_bits(restored.state, new_state(1, average=False))
