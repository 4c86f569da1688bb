"""PyTorch files are read completely by its safe loader, or refused."""

import pathlib
import pickle
import sys
import zipfile

import numpy as np
import pytest

from vit_jax.extras.zoo import pytorch
from vit_jax.weights.formats import array_file


def test_a_pickle_needs_torch(tmp_path, monkeypatch):
  (tmp_path / 'x.pth').write_bytes(pickle.dumps({'a': 1}, protocol=2))
  assert array_file.format_of(tmp_path / 'x.pth') == 'pytorch'
  monkeypatch.setitem(sys.modules, 'torch', None)
  with pytest.raises(ValueError, match='torch is not installed. Install it'):
    pytorch.open_file(tmp_path / 'x.pth')


def test_a_changed_byte_is_found_without_torch(tmp_path):
  with zipfile.ZipFile(tmp_path / 'x.pth', 'w') as archive:
    archive.writestr('x/data/0', bytes(range(256)))
  data = bytearray((tmp_path / 'x.pth').read_bytes())
  data[100] ^= 1
  (tmp_path / 'x.pth').write_bytes(data)
  with pytest.raises(ValueError, match='the checksum of x/data/0 differs'):
    pytorch.open_file(tmp_path / 'x.pth')


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
