"""A damaged file is an error that names it, and is never loaded in part."""

import errno
import json
from unittest import mock
import zipfile

import numpy as np
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.extras.zoo import foreign
from vit_jax.weights import download


def refused(path, words, **overrides):
  with pytest.raises(ValueError, match=words) as error:
    foreign.load(path, overrides)
  assert str(path) in str(error.value)


def header(change):
  """Returns a change of the length of its header that a file declares."""
  def damage(data):
    length = int.from_bytes(data[:8], 'little')
    return change(length, data).to_bytes(8, 'little') + data[8:]
  return damage


CUTS = [lambda x: x[:9], lambda x: x[:200], lambda x: x[:len(x) // 2],
        lambda x: x[:-1]]
TRUNCATED = 'x is truncated or damaged'
NO_WEIGHTS = 'x is not a file of weights, or truncated'
PAGE = b'<!DOCTYPE html><html>Please log in</html>'
DAMAGE = [
    *(('npz', cut, TRUNCATED) for cut in CUTS),
    ('npz', lambda x: x[:300] + x[400:], TRUNCATED),
    ('npz', lambda x: b'', NO_WEIGHTS + ': 0 bytes'),
    ('npz', lambda x: PAGE, f'{NO_WEIGHTS}: .*html'),
    *(('timm', cut, TRUNCATED) for cut in CUTS),
    ('timm', lambda x: x + b'0', TRUNCATED),
    *(('timm', header(change), TRUNCATED) for change in (
        lambda n, data: n - 8, lambda n, data: n + 8,
        lambda n, data: len(data))),
    ('timm', header(lambda n, data: 2**63), NO_WEIGHTS),
    ('timm', lambda x: PAGE, f'{NO_WEIGHTS}: .*html'),
    # With or without torch.
    ('pytorch', lambda x: x[:-30], TRUNCATED)]


def content(family, path):
  """Returns a complete file."""
  if family != 'pytorch':
    return zoo_models.write(path, family).read_bytes()
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('x/data.pkl', bytes(100))
  return path.read_bytes()


@pytest.mark.parametrize(('family', 'damage', 'words'), DAMAGE)
def test_a_damaged_file_is_an_error(family, damage, words, tmp_path):
  data = content(family, tmp_path / 'x')
  (tmp_path / 'x').write_bytes(damage(data))
  refused(tmp_path / 'x', words, num_heads=2)


@pytest.mark.parametrize(('family', 'damage', 'words'), DAMAGE[3::4])
def test_a_damaged_download_is_fetched_again(
    family, damage, words, site, tmp_path, cached_files):
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
  with pytest.raises(OSError, match='x could not be read: Input/output error'):
    download.fetch(f'{site.address}/x')
  assert cached_files() == held


@pytest.mark.parametrize('damaged', [
    b'', b'{"mean": [0.', b'<html>Please log in</html>', b'\xff\xfe{'])
@pytest.mark.parametrize(('form', 'name'), [
    ('npz', 'x.json'), ('timm', 'config.json'),
    ('timm', 'preprocessor_config.json')])
def test_damaged_settings_are_an_error(form, name, damaged, tmp_path):
  saved = tmp_path / 'saved'
  random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32).save(
      saved / 'x.npz' if form == 'npz' else saved, form=form)
  if form != 'npz':  # Without our own metadata, config.json is read.
    zoo_models.write(saved / 'model.safetensors', form)
  foreign.load(saved)
  (saved / name).write_bytes(damaged)
  with pytest.raises(ValueError, match=rf'{name} is (malformed|not|JSON|UTF)'):
    foreign.load(saved)


def test_a_damaged_shard_is_an_error(tmp_path):
  arrays = zoo_models.arrays('timm')
  first = sorted(arrays)[0]
  shards = {'a.safetensors': {first: arrays.pop(first)},
            'b.safetensors': arrays}
  for name, found in shards.items():
    zoo_models.write(tmp_path / name, 'timm', found)
  (tmp_path / 'm.safetensors.index.json').write_text(json.dumps({
      'weight_map': {array: name for name, found in shards.items()
                     for array in found}}))
  foreign.load(tmp_path, {'num_heads': 2})
  whole = (tmp_path / 'b.safetensors').read_bytes()
  (tmp_path / 'b.safetensors').write_bytes(whole[:-1])
  with pytest.raises(ValueError, match='b.safetensors is truncated or damaged'):
    foreign.load(tmp_path, {'num_heads': 2})


@pytest.mark.parametrize(('held', 'words'), [
    ({}, 'Found: nothing'), ({'cat.jpg': '?'}, 'Found: cat.jpg'),
    ({'config.json': '{}', 'notes.txt': 'x'}, 'Found: config.json, notes'),
    ({'model.safetensors': ''}, 'neither weights'),
    *(({'m.safetensors.index.json': index}, r'm\.safetensors\.index\.json')
      for index in ('{}', '{"weight_map": {"a": []}}', '{', '[]'))])
def test_a_folder_without_weights_or_with_a_malformed_index_is_an_error(
    held, words, tmp_path):
  for name, text in held.items():
    (tmp_path / name).write_text(text)
  refused(tmp_path, words)


def test_an_object_array_is_never_unpickled(tmp_path):
  class Program:
    def __reduce__(self):
      return (tmp_path.joinpath('ran').touch, ())

  with (tmp_path / 'x').open('wb') as file:
    np.savez(file, **{
        **zoo_models.arrays('npz'), 'cls': np.array([Program()], object)})
  refused(tmp_path / 'x', 'cls is an array of Python objects')
  assert not (tmp_path / 'ran').exists()
