"""Weights are downloaded once, completely, with their checksum."""

import hashlib
import io

import fsspec
import numpy as np
import pytest

from tests import random_models
import vit_jax
from vit_jax.weights import download


@pytest.fixture
def declared(site, tmp_path):
  """Serves weights whose settings differ from all defaults."""
  model = random_models.make_tiny(gelu='exact')
  model.save(tmp_path / 'm.npz', form='npz')
  for path in tmp_path.glob('m.*'):
    site.files[f'/{path.name}'] = path.read_bytes()
  return model


def test_weights_and_their_settings_are_downloaded_once(
    site, declared, cached_files):
  digest = hashlib.sha256(site.files['/m.npz']).hexdigest()
  counts = []
  for word in ('fetched', 'cached'):
    lines = []
    found = vit_jax.load(f'{site.address}/m.npz', log=lines.append)
    assert any(line.startswith(word) for line in lines)
    assert any(f'sha256 {digest}' in line for line in lines)
    random_models.assert_same(found.params, declared.params)
    assert found.config == declared.config
    counts.append(len(site.requests))
  assert counts[0] == counts[1] > 0
  assert len(cached_files()) == len(site.files)


def npz_bytes(value=1.0):
  content = io.BytesIO()
  np.savez(content, a=np.full(3, value, np.float32))
  return content.getvalue()


@pytest.mark.parametrize(('address', 'error', 'words'), [
    ('{site}/x.npz', FileNotFoundError, 'There is nothing at'),
    ('memory://bucket/none.npz', FileNotFoundError, 'nothing at .*none'),
    ('{folder}/run2', FileNotFoundError, "nothing at .* Did you mean 'run1'"),
    ('x::y://z', FileNotFoundError, 'There is nothing at .*/x::y:/z'),
    # Nothing listens there, so that the file may exist.
    ('http://127.0.0.1:9/x.npz', OSError, 'could not be fetched: '),
    ('nosuch://x/y', (ValueError, OSError), 'nosuch://x'),
    ('', ValueError, 'path of the weights is empty'),
    *((f'{{site}}/x.npz#sha256={digest}', ValueError, 'HEX has 64 digits')
      for digest in ('', 'abc', f'{64 * "0"},'))])
def test_addresses_without_a_file_are_errors(
    address, error, words, site, tmp_path, cached_files):
  (tmp_path / 'run1').mkdir()
  with pytest.raises(error, match=words) as caught:
    download.fetch(address.format(site=site.address, folder=tmp_path))
  assert isinstance(caught.value, FileNotFoundError) == (
      error is FileNotFoundError)
  assert not cached_files()


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


def test_a_local_path_is_used_where_it_is(tmp_path):
  (tmp_path / 'x').write_bytes(b'abc')
  lines = []
  assert str(download.fetch(tmp_path / 'x', log=lines.append)) == str(
      tmp_path / 'x')
  assert str(download.fetch(f'file://{tmp_path}/x', log=lines.append)) == str(
      tmp_path / 'x')
  assert not lines


def test_other_addresses_are_read_by_fsspec():
  with fsspec.open('memory://bucket/weights.npz', 'wb') as file:
    file.write(npz_bytes())
  assert download.fetch('memory://bucket/weights.npz').read_bytes() == (
      npz_bytes())
