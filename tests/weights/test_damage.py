"""A damaged file is an error that names it, and is never loaded in part."""

import io
import zipfile

import numpy as np
import pytest

from tests import random_models
from vit_jax.extras.zoo import foreign
from vit_jax.weights.formats import npz
from vit_jax.weights.formats import safetensors


@pytest.fixture
def arrays():
  return random_models.arrays('npz')


def refused(path, words, **overrides):
  with pytest.raises(ValueError, match=words) as error:
    foreign.load(path, overrides)
  assert str(path) in str(error.value)


def truncate(path, cut):
  data = path.read_bytes()
  path.write_bytes(
      data[:int(cut * len(data))] if isinstance(cut, float) else data[:cut])


@pytest.mark.parametrize('cut', [9, 200, 0.5, -1])
@pytest.mark.parametrize(('module', 'family'), [
    (npz, 'npz'), (safetensors, 'timm')])
def test_a_truncated_file_is_an_error(module, family, cut, tmp_path):
  module.write(tmp_path / 'x', random_models.arrays(family))
  truncate(tmp_path / 'x', cut)
  refused(tmp_path / 'x', 'truncated', num_heads=2)


def test_a_truncated_state_dict_is_recognised_without_torch(tmp_path):
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w') as archive:
    archive.writestr('x/data.pkl', bytes(100))
  (tmp_path / 'x.pth').write_bytes(content.getvalue()[:-30])
  refused(tmp_path / 'x.pth', 'truncated or damaged')


def test_an_empty_file_is_an_error(tmp_path):
  (tmp_path / 'x.npz').write_bytes(b'')
  refused(tmp_path / 'x.npz', 'not a file of weights, or truncated: 0 bytes')


@pytest.mark.parametrize(('held', 'words'), [
    ({}, 'Found: nothing'), ({'cat.jpg': b'\xff\xd8'}, 'Found: cat.jpg'),
    ({'config.json': b'{}', 'notes.txt': b'x'}, 'Found: config.json, notes'),
    ({'model.safetensors': b''}, 'neither weights')])
def test_a_folder_without_weights_is_an_error(held, words, tmp_path):
  for name, content in held.items():
    (tmp_path / name).write_bytes(content)
  refused(tmp_path, words)


def test_an_object_array_is_never_unpickled(arrays, tmp_path):
  class Program:
    def __reduce__(self):
      return (tmp_path.joinpath('ran').touch, ())

  with (tmp_path / 'x').open('wb') as file:
    np.savez(file, **{**arrays, 'cls': np.array([Program()], object)})
  refused(tmp_path / 'x', 'cls is an array of Python objects')
  assert not (tmp_path / 'ran').exists()


@pytest.mark.parametrize('shape', [(), (3, 4)])
@pytest.mark.parametrize('name', [
    'embedding/kernel', 'head/bias',
    'Transformer/posembed_input/pos_embedding',
    'Transformer/encoderblock_0/LayerNorm_0/scale'])
def test_an_array_with_another_number_of_axes_is_an_error(
    name, shape, arrays, tmp_path):
  if len(shape) == arrays[name].ndim:
    shape = (5, *shape)
  npz.write(tmp_path / 'x', {**arrays, name: np.ones(shape, np.float32)})
  with pytest.raises(ValueError, match=f'{name}.*expected|expected.*{name}'):
    foreign.load(tmp_path / 'x')


@pytest.mark.parametrize('index', [
    '{}', '{"weight_map": {"a": []}}', '{', '[]'])
def test_a_malformed_index_of_shards_is_an_error(index, tmp_path):
  file = tmp_path / 'm.safetensors.index.json'
  file.write_text(index)
  with pytest.raises(ValueError, match=r'm\.safetensors\.index\.json'):
    foreign.load(tmp_path)
