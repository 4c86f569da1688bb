"""A damaged file is an error that names it, and is never loaded in part."""

import errno
import json
from unittest import mock
import zipfile

from etils import epath
import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from tests.weights.test_download import npz_bytes
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import open_file
from vit_jax.extras.zoo import safetensors
from vit_jax.weights import download
from vit_jax.weights.formats import npz


@pytest.fixture
def arrays():
  return zoo_models.arrays('npz')


def refused(path, words, **overrides):
  with pytest.raises(ValueError, match=words) as error:
    foreign.load(path, overrides)
  assert str(path) in str(error.value)


def header(data, change):
  """Returns a .safetensors file that declares another length of its header."""
  length = int.from_bytes(data[:8], 'little')
  return change(length).to_bytes(8, 'little') + data[8:]


TRUNCATED = 'x is truncated or damaged'
NO_WEIGHTS = 'x is not a file of weights, or truncated'
DAMAGE = {
    'npz of 9 bytes': ('npz', lambda x: x[:9], TRUNCATED),
    'npz of 200 bytes': ('npz', lambda x: x[:200], TRUNCATED),
    'half an npz': ('npz', lambda x: x[:len(x) // 2], TRUNCATED),
    'npz without its last byte': ('npz', lambda x: x[:-1], TRUNCATED),
    'npz without bytes inside': (
        'npz', lambda x: x[:300] + x[400:], TRUNCATED),
    'safetensors of 9 bytes': ('timm', lambda x: x[:9], TRUNCATED),
    'safetensors of 200 bytes': ('timm', lambda x: x[:200], TRUNCATED),
    'half a safetensors': ('timm', lambda x: x[:len(x) // 2], TRUNCATED),
    'safetensors without its last byte': ('timm', lambda x: x[:-1], TRUNCATED),
    'safetensors with more bytes': ('timm', lambda x: x + b'0', TRUNCATED),
    'shorter header': (
        'timm', lambda x: header(x, lambda n: n - 8), TRUNCATED),
    'longer header': ('timm', lambda x: header(x, lambda n: n + 8), TRUNCATED),
    'header beyond the file': (
        'timm', lambda x: header(x, lambda n: len(x)), TRUNCATED),
    'header of any length': (
        'timm', lambda x: header(x, lambda n: 2**63), NO_WEIGHTS),
    'truncated state dict, with or without torch': (
        'pytorch', lambda x: x[:-30], TRUNCATED),
    'empty file': ('npz', lambda x: b'', NO_WEIGHTS + ': 0 bytes'),
    'web page': ('npz', lambda x: b'<!DOCTYPE html><html>Please log in</html>',
                 f'{NO_WEIGHTS}: .*html'),
    'web page for safetensors': (
        'timm', lambda x: b'<html>404</html>', f'{NO_WEIGHTS}: .*html')}


def content(family, path):
  """Returns a complete file."""
  if family == 'pytorch':
    with zipfile.ZipFile(path, 'w') as archive:
      archive.writestr('x/data.pkl', bytes(100))
  else:
    module = {'npz': npz, 'timm': safetensors}[family]
    module.write(path, zoo_models.arrays(family))
  return path.read_bytes()


@pytest.mark.parametrize(('content', 'expected'), [
    (b'', None), (b'\x00' * 9, None), (b'<html>not found</html>', None),
    (b'PK\x03\x04', 'npz'), (b'PK\x05\x06', 'npz'),
    (b'\x80\x02\x8a\x0a', 'pytorch'),
    (b'PK\x03\x04' + bytes(22) + b'\x0a\x00\x00\x00x/data.pkl', 'pytorch'),
    ((20).to_bytes(8, 'little') + b'{"a": 1}', 'safetensors')])
def test_the_content_determines_the_format(content, expected, tmp_path):
  (tmp_path / 'x.npz').write_bytes(content)
  if expected is None:
    with pytest.raises(ValueError, match='x.npz is not a file of weights'):
      open_file.format_of(tmp_path / 'x.npz')
  else:
    assert open_file.format_of(tmp_path / 'x.npz') == expected


@pytest.mark.parametrize('kind', DAMAGE)
def test_a_damaged_file_is_an_error(kind, tmp_path):
  family, damage, words = DAMAGE[kind]
  data = content(family, tmp_path / 'x')
  (tmp_path / 'x').write_bytes(damage(data))
  refused(tmp_path / 'x', words, num_heads=2)


@pytest.mark.parametrize('kind', DAMAGE)
def test_a_damaged_download_is_fetched_again(
    kind, site, tmp_path, cached_files):
  family, damage, words = DAMAGE[kind]
  data = content(family, tmp_path / 'x')
  address = f'{site.address}/x'
  words = f'{address} was discarded, and the next call downloads .*: {words}'
  site.files['/x'] = damage(data)
  with pytest.raises(ValueError, match=words):
    download.fetch(address)
  assert not cached_files()
  site.files['/x'] = data
  path = download.fetch(address, log=lambda _: None)
  assert path.read_bytes() == data
  path.write_bytes(damage(data))  # A damaged disk.
  with pytest.raises(ValueError, match=words):
    download.fetch(address)
  assert not cached_files()
  assert download.fetch(address, log=lambda _: None).read_bytes() == data


def test_a_disk_that_fails_is_not_taken_for_a_damaged_file(
    site, tmp_path, monkeypatch, cached_files):
  site.files['/x'] = content('npz', tmp_path / 'x')
  download.fetch(f'{site.address}/x', log=lambda _: None)
  held = cached_files()
  monkeypatch.setattr(zipfile, 'ZipFile', mock.Mock(
      side_effect=OSError(errno.EIO, 'Input/output error')))
  with pytest.raises(OSError, match='Input/output error'):
    download.fetch(f'{site.address}/x')
  assert cached_files() == held


@pytest.mark.parametrize('content', [
    b'', b'{"mean": [0.', b'<html>Please log in</html>', b'\xff\xfe{'])
@pytest.mark.parametrize(('form', 'name'), [
    ('npz', 'x.json'), ('timm', 'config.json'),
    ('timm', 'preprocessor_config.json')])
def test_damaged_settings_are_an_error(form, name, content, tmp_path):
  random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32).save(
      tmp_path / 'saved' / 'x.npz' if form == 'npz' else tmp_path / 'saved',
      form=form)
  if form != 'npz':  # Without our own metadata, config.json is read.
    safetensors.write(tmp_path / 'saved/model.safetensors',
                      zoo_models.arrays(form))
  foreign.load(tmp_path / 'saved')
  (tmp_path / 'saved' / name).write_bytes(content)
  with pytest.raises(ValueError, match=rf'{name} is (malformed|not|JSON|UTF)'):
    foreign.load(tmp_path / 'saved')


def test_a_damaged_shard_is_an_error(tmp_path):
  arrays = zoo_models.arrays('timm')
  first = sorted(arrays)[0]
  shards = {'a.safetensors': {first: arrays.pop(first)},
            'b.safetensors': arrays}
  for name, content in shards.items():
    safetensors.write(tmp_path / name, content)
  (tmp_path / 'm.safetensors.index.json').write_text(json.dumps({
      'weight_map': {array: name for name, content in shards.items()
                     for array in content}}))
  foreign.load(tmp_path, {'num_heads': 2})
  whole = (tmp_path / 'b.safetensors').read_bytes()
  (tmp_path / 'b.safetensors').write_bytes(whole[:-1])
  with pytest.raises(ValueError, match='b.safetensors is truncated or damaged'):
    foreign.load(tmp_path, {'num_heads': 2})


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
  refused(tmp_path / 'x', 'cls.npy is an array of Python objects')
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


def test_a_remote_folder_is_copied_once(tmp_path, monkeypatch, cached_files):
  monkeypatch.setattr(open_file.atomic_files, 'is_remote', lambda path: True)
  folder = tmp_path / 'model'
  folder.mkdir()
  for text in ('{}', 'another'):
    (folder / 'config.json').write_text(text)
    copy = open_file.local(epath.Path(folder))
    assert (copy / 'config.json').read_text() == '{}'
  assert cached_files() == [copy / 'config.json']


def test_a_damaged_file_of_a_folder_is_not_kept(
    tmp_path, monkeypatch, cached_files):
  monkeypatch.setattr(open_file.atomic_files, 'is_remote', lambda path: True)
  folder = tmp_path / 'model'
  folder.mkdir()
  (folder / 'notes.txt').write_text('not weights')
  (folder / 'x.npz').write_bytes(npz_bytes()[:-9])
  with pytest.raises(ValueError, match='x.npz was discarded, and the next'):
    open_file.local(epath.Path(folder))
  assert 'x.npz' not in [path.name for path in cached_files()]
  (folder / 'x.npz').write_bytes(npz_bytes())
  copy = open_file.local(epath.Path(folder))
  assert (copy / 'x.npz').read_bytes() == npz_bytes()


def test_a_file_of_a_folder_that_cannot_be_read_is_not_left_out(
    tmp_path, monkeypatch):
  monkeypatch.setattr(open_file.atomic_files, 'is_remote', lambda path: True)
  (tmp_path / 'config.json').write_text('{}')
  folder = epath.Path(tmp_path)
  # As a bucket that fails: fsspec then says that there is no such file.
  monkeypatch.setattr(type(folder), 'exists', lambda path: False)
  monkeypatch.setattr(type(folder), 'stat', mock.Mock(
      side_effect=ConnectionError('503')))
  with pytest.raises(OSError, match='503'):
    open_file.local(folder)
