"""A damaged file is an error that names it, and is never loaded in part."""

import errno
import json
from unittest import mock
import zipfile

from etils import epath
import pytest

from tests import random_models
from tests.extras.zoo import zoo_models
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import open_file
from vit_jax.weights import download


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


@pytest.mark.parametrize(('content', 'expected'), [
    (b'PK\x03\x04', 'npz'), (b'PK\x05\x06', 'npz'),
    (b'\x80\x02\x8a\x0a', 'pytorch'),
    (b'PK\x03\x04' + bytes(22) + b'\x0a\x00\x00\x00x/data.pkl', 'pytorch'),
    ((20).to_bytes(8, 'little') + b'{"a": 1}', 'safetensors')])
def test_the_content_determines_the_format(content, expected, tmp_path):
  (tmp_path / 'x.npz').write_bytes(content)
  assert open_file.format_of(tmp_path / 'x.npz') == expected


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
  with pytest.raises(OSError, match='Input/output error'):
    download.fetch(f'{site.address}/x')
  assert cached_files() == held


@pytest.mark.parametrize(('form', 'name'), [
    ('npz', 'x.json'), ('timm', 'config.json'),
    ('timm', 'preprocessor_config.json')])
def test_damaged_settings_are_an_error(form, name, tmp_path):
  saved = tmp_path / 'saved'
  random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32).save(
      saved / 'x.npz' if form == 'npz' else saved, form=form)
  if form != 'npz':  # Without our own metadata, config.json is read.
    zoo_models.write(saved / 'model.safetensors', form)
  foreign.load(saved)
  for damaged in (b'', b'{"mean": [0.', b'<html>Log in</html>', b'\xff\xfe{'):
    (saved / name).write_bytes(damaged)
    with pytest.raises(ValueError, match=f'{name} is (malformed|not|JSON|UTF)'):
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


def test_a_remote_folder_is_copied_once_for_each_version(tmp_path, monkeypatch):
  monkeypatch.setattr(open_file.atomic_files, 'is_remote', lambda path: True)
  folder = tmp_path / 'model'
  folder.mkdir()
  copies = []
  for text in ('{}', 'another'):
    (folder / 'config.json').write_text(text)
    copies += [open_file.local(epath.Path(folder)) for _ in range(2)]
    assert (copies[-1] / 'config.json').read_text() == text
  assert copies[0] == copies[1] != copies[2] == copies[3]


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
