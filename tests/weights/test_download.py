"""Weights are downloaded once, completely, with their checksum."""

import hashlib
import io
import logging

import fsspec
import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.weights import download


@pytest.fixture
def model():
  return random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32)


def test_weights_and_their_settings_are_downloaded_once(
    site, model, tmp_path, cached_files):
  address, files, requests = site
  model.save(tmp_path / 'x.npz', form='npz')
  for path in tmp_path.glob('x.*'):
    files[f'/models/{path.name}'] = path.read_bytes()
  digest = hashlib.sha256(files['/models/x.npz']).hexdigest()
  counts = []
  for word in ('fetched', 'cached'):
    lines = []
    found = vit_jax.load(f'{address}/models/x.npz', log=lines.append)
    assert any(line.startswith(word) for line in lines)
    assert any(f'sha256 {digest}' in line for line in lines)
    random_models.assert_same(found.params, model.params)
    assert found.config == model.config
    counts.append(len(requests))
  assert counts[0] == counts[1] > 0
  assert len(cached_files()) == len(files)


def npz_bytes(value=1.0):
  content = io.BytesIO()
  np.savez(content, a=np.full(3, value, np.float32))
  return content.getvalue()


def test_only_a_404_is_a_missing_file(site):
  with pytest.raises(FileNotFoundError, match='There is nothing at'):
    download.fetch(f'{site.address}/x.npz')
  with pytest.raises(OSError, match='could not be fetched: ') as error:
    download.fetch('http://127.0.0.1:9/x.npz')  # Nothing listens there.
  assert not isinstance(error.value, FileNotFoundError)


def test_hashes_of_addresses_are_checked(site, cached_files):
  site.files['/x.npz'] = body = npz_bytes()
  digest = hashlib.sha256(body).hexdigest()
  with pytest.raises(ValueError, match=(
      f'x.npz was discarded, .* has SHA-256 {digest}, but 00')):
    download.fetch(f'{site.address}/x.npz#sha256={64 * "0"}')
  assert not cached_files()
  address = f'{site.address}/x.npz#sha256={digest.upper()}'
  path = download.fetch(address, log=lambda _: None)
  assert path.read_bytes() == body
  assert download.fetch(address, log=lambda _: None) == path
  path.write_bytes(npz_bytes(2.0))  # Another version of the file.
  with pytest.raises(ValueError, match='x.npz was discarded, .* has SHA-256'):
    download.fetch(address)
  assert download.fetch(address, log=lambda _: None).read_bytes() == body


@pytest.mark.parametrize('digest', ['', 'abc', f'{64 * "0"},'])
def test_hashes_that_cannot_be_checked_are_errors(digest, site):
  with pytest.raises(ValueError, match='HEX has 64 digits'):
    download.fetch(f'{site.address}/x.npz#sha256={digest}')


@pytest.fixture
def declared(site, tmp_path):
  """Serves weights whose settings differ from all defaults."""
  model = random_models.make_tiny()
  model.save(tmp_path / 'm.npz', form='npz')
  for path in tmp_path.glob('m.*'):
    site.files[f'/{path.name}'] = path.read_bytes()
  return model


@pytest.mark.parametrize('failure', [
    500, 503, 401, 403, 429, None, b'<html>Please log in</html>', b'{"model":',
    b''])
def test_settings_that_cannot_be_read_are_not_taken_for_none(
    failure, site, declared, cached_files):
  kept = site.files['/m.json']
  site.files['/m.json'] = failure
  with pytest.raises((OSError, ValueError), match=(
      r'(?s)m\.json .*404 and 410 .*download the \.npz file')) as error:
    vit_jax.load(f'{site.address}/m.npz', log=None)
  assert not isinstance(error.value, FileNotFoundError)
  assert not cached_files()
  site.files['/m.json'] = kept
  loaded = vit_jax.load(f'{site.address}/m.npz', log=None)
  assert loaded.preprocess == declared.preprocess


@pytest.mark.parametrize('status', [404, 410])
def test_weights_may_have_no_settings(status, site, declared, cached_files):
  site.files['/m.json'] = status
  loaded = vit_jax.load(f'{site.address}/m.npz', log=None)
  assert loaded.preprocess.mean == (0.5,) * 3
  assert 'no m.json beside it' in '\n'.join(loaded.summary)
  assert [path.name for path in cached_files()] == ['m.npz']


def test_settings_of_other_weights_are_not_kept(site, declared):
  weights = site.files['/m.npz']
  site.files['/m.npz'] = npz_bytes()  # As while a new version is uploaded.
  with pytest.raises(ValueError, match='m.json was written for other weights'):
    vit_jax.load(f'{site.address}/m.npz', log=None)
  site.files['/m.npz'] = weights
  assert vit_jax.load(
      f'{site.address}/m.npz', log=None).preprocess == declared.preprocess


def test_a_missing_path_suggests_the_nearest_one(tmp_path):
  (tmp_path / 'run1').mkdir()
  with pytest.raises(FileNotFoundError, match="Did you mean 'run1'"):
    download.fetch(tmp_path / 'run2')


def test_a_chain_of_addresses_is_a_local_path():
  with pytest.raises(FileNotFoundError, match='There is nothing at .*/x::y:/z'):
    download.fetch('x::y://z')


def test_a_local_path_is_used_where_it_is(tmp_path):
  (tmp_path / 'x').write_bytes(b'abc')
  lines = []
  assert str(download.fetch(tmp_path / 'x', log=lines.append)) == str(
      tmp_path / 'x')
  assert str(download.fetch(f'file://{tmp_path}/x', log=lines.append)) == str(
      tmp_path / 'x')
  assert not lines


def test_a_remote_file_is_copied_once_and_its_checksum_logged():
  weights = npz_bytes()
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


def test_a_missing_file_leaves_nothing_in_the_cache(tmp_path, cached_files):
  for address in (tmp_path / 'none', 'memory://bucket/none.npz'):
    with pytest.raises(FileNotFoundError, match='nothing at .*none'):
      download.fetch(address)
  assert not cached_files()


@pytest.mark.parametrize(('address', 'words'), [
    ('nosuch://x/y', 'nosuch://x'), ('', 'path of the weights is empty')])
def test_an_invalid_address_is_an_error(address, words):
  with pytest.raises((ValueError, OSError), match=words):
    download.fetch(address)


def test_messages_of_the_hub_are_printed_once(monkeypatch):
  printed = []
  for name in ('huggingface_hub', None):
    handler = logging.Handler()
    handler.emit = printed.append
    monkeypatch.setattr(logging.getLogger(name), 'handlers', [handler])
  logging.getLogger('huggingface_hub.utils._http').warning('Retrying in 1s')
  assert len(printed) == 1
