"""Files of other codebases are opened as one file, and only safely."""

import json
import pathlib

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vit_jax.extras.zoo import open_file
from vit_jax.extras.zoo import pytorch
from vit_jax.extras.zoo import safetensors as ours
from vit_jax.extras.zoo.arrays import matching

TABLE = {'a': 'm-1-of-2.safetensors', 'b': 'm-1-of-2.safetensors',
         'c': 'm-2-of-2.safetensors'}


@pytest.fixture
def shards(tmp_path):
  def write(table):
    (tmp_path / 'm.safetensors.index.json').write_text(
        json.dumps({'weight_map': table}))
    return tmp_path

  one = np.ones(1, np.float32)
  ours.write(tmp_path / 'm-1-of-2.safetensors', {'a': one, 'b': 2 * one})
  ours.write(tmp_path / 'm-2-of-2.safetensors', {'c': 3 * one})
  return write


def test_shards_are_one_file(shards):
  opened = open_file.open_weights(shards(TABLE))
  assert {name: opened.read(name).item() for name in opened.shapes} == {
      'a': 1, 'b': 2, 'c': 3}


def test_names_of_tied_arrays_in_shards_are_known(shards, tmp_path):
  ours.write(tmp_path / 'm-2-of-2.safetensors', {
      'c': np.full(1, 3, np.float32)}, metadata={'d': 'c', 'a': 'c'})
  opened = open_file.open_weights(shards(TABLE))
  assert opened.tied == {'d': 'c'}
  assert [opened.read(name).item() for name in 'ad'] == [1, 3]


def test_two_indices_need_a_choice_unless_one_has_the_usual_name(shards):
  folder = shards(TABLE)
  opened = open_file.open_weights(folder / 'm.safetensors.index.json')
  assert set(opened.shapes) == set(TABLE)
  text = (folder / 'm.safetensors.index.json').read_text()
  (folder / 'n.safetensors.index.json').write_text(text)
  with pytest.raises(ValueError, match='several .*m.safetensors.index.json, n'):
    open_file.open_weights(folder)
  (folder / 'model.safetensors.index.json').write_text(text)
  assert open_file.open_weights(folder).path == str(
      folder / 'model.safetensors.index.json')


def test_shards_of_pytorch_are_one_file(tmp_path):
  torch = pytest.importorskip('torch', reason='torch is not installed')
  table = {name: file.replace('safetensors', 'bin')
           for name, file in TABLE.items()}
  for file in set(table.values()):
    torch.save({name: torch.full((1,), float(ord(name))) for name in table
                if table[name] == file}, tmp_path / file)
  (tmp_path / 'pytorch_model.bin.index.json').write_text(
      json.dumps({'weight_map': table}))
  opened = open_file.open_weights(tmp_path)
  assert opened.format == 'pytorch'
  assert {name: opened.read(name).item() for name in opened.shapes} == {
      name: ord(name) for name in 'abc'}
  # The same weights in a safe format come first.
  ours.write(tmp_path / 'model.safetensors', {'d': np.ones(1)})
  assert set(open_file.open_weights(tmp_path).shapes) == {'d'}


def test_the_library_reads_what_is_written(tmp_path):
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  ours.write(tmp_path / 'x', {'a.weight': array, 'b': array.T},
             metadata={'vit_jax': '{}'})
  (tmp_path / 'new').touch()  # Of the default permissions.
  assert (tmp_path / 'x').stat().st_mode == (tmp_path / 'new').stat().st_mode
  found = safetensors.numpy.load_file(tmp_path / 'x')
  np.testing.assert_array_equal(found['a.weight'], array)
  np.testing.assert_array_equal(found['b'], array.T)
  opened = ours.open_file(tmp_path / 'x')
  np.testing.assert_array_equal(opened.read('b'), array.T)
  assert opened.metadata == {'format': 'pt', 'vit_jax': '{}'}


def test_tied_arrays_are_read_by_each_of_their_names(tmp_path):
  """As written by `safetensors.torch.save_model`."""
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  safetensors.numpy.save_file(
      {'embed.weight': array, 'bias': array[0]}, tmp_path / 'x',
      metadata={'format': 'pt', 'head.weight': 'embed.weight',
                'bias': 'embed.weight', 'other.weight': 'missing.weight'})
  opened = ours.open_file(tmp_path / 'x')
  assert opened.tied == {'head.weight': 'embed.weight'}
  np.testing.assert_array_equal(opened.read('head.weight'), array)
  np.testing.assert_array_equal(opened.read('bias'), array[0])
  every, renamed = matching.with_tied_names(opened)
  assert set(every.shapes) == {'embed.weight', 'bias', 'head.weight'}
  assert renamed.shapes == {'bias': (3,), 'head.weight': (2, 3)}


@pytest.fixture
def torch():
  return pytest.importorskip('torch', reason='torch is not installed')


def saved(torch, path, content, **options):
  torch.save(content, path, **options)
  return path


def named(found):
  return list(pytorch.named_tensors(pathlib.Path('x'), found, np.ndarray))


def test_tensors_are_named_by_the_keys_that_lead_to_them():
  one = np.ones(1)
  assert named({
      'teacher': {'backbone': {'a.b': one}}, 'epoch': 3, 'center': one,
      'optimizer': {'state': {0: {'exp_avg': one}}, 'groups': [{'a': one}]},
  }) == ['teacher.backbone.a.b', 'center']
  with pytest.raises(ValueError, match='two tensors of the name a.b'):
    named({'a': {'b': one}, 'a.b': one})


def test_dicts_that_contain_themselves_or_repeat_are_read_once():
  found = {'a': np.ones(1)}
  for _ in range(12):
    found = {'x': found, 'y': found}
  found['loop'] = found
  assert named(found) == [12 * 'x.' + 'a']


@pytest.mark.parametrize('zipped', [True, False])
@pytest.mark.parametrize(('nest', 'prefix'), [
    (dict, ''),
    (lambda d: {'model': d, 'optimizer': {'state': {0: 1}}, 'epoch': 3},
     'model.'),
    (lambda d: {'state_dict': {f'module.{n}': t for n, t in d.items()}},
     'state_dict.module.')])
def test_a_state_dict_is_found_where_training_scripts_put_it(
    nest, prefix, zipped, torch, tmp_path):
  tensors = {'a.weight': torch.arange(6.0).reshape(2, 3).T,
             'b': torch.tensor([1.5, -2]).bfloat16()}
  path = saved(torch, tmp_path / 'x', nest(tensors),
               _use_new_zipfile_serialization=zipped)
  opened = pytorch.open_file(path)
  assert opened.shapes == {f'{prefix}a.weight': (3, 2), f'{prefix}b': (2,)}
  np.testing.assert_array_equal(
      opened.read(f'{prefix}a.weight'), np.arange(6).reshape(2, 3).T)
  np.testing.assert_array_equal(opened.read(f'{prefix}b'), [1.5, -2])


def test_a_tensor_of_stride_0_may_be_a_zip_bomb(torch, tmp_path):
  path = saved(
      torch, tmp_path / 'x', {'a': torch.zeros(1).expand(10**6, 10**6)})
  assert path.stat().st_size < 10_000
  with pytest.raises(ValueError, match='zip bomb'):
    pytorch.open_file(path)


def test_pickled_code_is_not_run(torch, tmp_path):
  class Program:
    def __reduce__(self):
      return (tmp_path.joinpath('ran').touch, ())

  for zipped in (True, False):
    path = saved(torch, tmp_path / 'x', {'a': Program()},
                 _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match='more than tensors') as error:
      pytorch.open_file(path)
    # torch advises to trust the file.
    assert not any(word in str(error.value) for word in (
        'False', 'trust', 'allowlist', 'add_safe_globals'))
  assert not (tmp_path / 'ran').exists()


@pytest.mark.parametrize(('content', 'words'), [
    ({}, 'found dict'), ([1, 2], 'found list'),
    ({'model': {'epoch': 3}}, 'found dict')])
def test_another_object_is_an_error(content, words, torch, tmp_path):
  with pytest.raises(ValueError, match=words):
    pytorch.open_file(saved(torch, tmp_path / 'x', content))
