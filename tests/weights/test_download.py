"""An address becomes a file on this machine, once, with its checksum."""

import hashlib

import fsspec
import pytest

from vit_jax.weights import download


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / 'cache'))


def test_a_local_path_is_used_where_it_is(tmp_path):
  (tmp_path / 'x').write_bytes(b'abc')
  lines = []
  assert str(download.fetch(tmp_path / 'x', log=lines.append)) == str(
      tmp_path / 'x')
  assert str(download.fetch(f'file://{tmp_path}/x', log=lines.append)) == str(
      tmp_path / 'x')
  assert not lines


def test_a_remote_file_is_copied_once_and_its_checksum_logged():
  weights = b'PK\x03\x04 and so on'  # As an .npz begins.
  with fsspec.open('memory://bucket/weights.npz', 'wb') as file:
    file.write(weights)
  lines = []
  first = download.fetch('memory://bucket/weights.npz', log=lines.append)
  assert first.read_bytes() == weights
  with fsspec.open('memory://bucket/weights.npz', 'wb') as file:
    file.write(b'another')
  second = download.fetch('memory://bucket/weights.npz', log=lines.append)
  assert (second, second.read_bytes()) == (first, weights)
  assert [line.split()[0] for line in lines] == ['fetched', 'cached']
  assert all(hashlib.sha256(weights).hexdigest() in line for line in lines)


def test_a_missing_file_leaves_nothing_in_the_cache(tmp_path):
  for address in (tmp_path / 'none', 'memory://bucket/none.npz'):
    with pytest.raises(FileNotFoundError, match='nothing at .*none'):
      download.fetch(address)
  assert not [p for p in (tmp_path / 'cache').rglob('*') if p.is_file()]


def test_an_address_that_no_library_reads_is_an_error():
  with pytest.raises((ValueError, OSError), match='nosuch://x'):
    download.fetch('nosuch://x/y')


def test_a_model_of_the_hub_is_written_user_and_model():
  with pytest.raises(ValueError, match='hf://user/model.*but is hf://model'):
    download.fetch('hf://model')


def test_an_empty_path_is_an_error(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match='path of the weights is empty'):
    download.fetch('')
