"""Weights are downloaded once, completely, with their checksum."""

import collections
import hashlib
from http import server
import logging
import threading
import time
from unittest import mock

from etils import epath
import fsspec
import huggingface_hub
import pytest

from tests import random_models
import vit_jax
from vit_jax.weights import download

Site = collections.namedtuple('Site', 'address files requests')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / 'cache'))


@pytest.fixture
def site(monkeypatch):
  """Serves files by path, and records the paths of GET requests."""
  files, requests = {}, []

  class Handler(server.BaseHTTPRequestHandler):
    """Sends files."""

    def do_GET(self):
      body = files.get(self.path)
      if body is None:
        self.send_error(404)
        return
      requests.append(self.path)
      self.send_response(200)
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def do_HEAD(self):
      self.send_error(405)

    def log_message(self, *args):
      """Suppresses log lines."""

  monkeypatch.setattr(time, 'sleep', lambda _: None)  # Before another attempt.
  with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as running:
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield Site(f'http://127.0.0.1:{running.server_port}', files, requests)
    running.shutdown()
    thread.join()


@pytest.fixture
def model():
  return random_models.make({**random_models.TINY, 'gelu': 'exact'}, side=32)


def cached_files(tmp_path):
  return [path for path in (tmp_path / 'cache').rglob('*') if path.is_file()]


@pytest.mark.parametrize(('form', 'name'), [
    ('npz', 'x.npz'), ('timm', 'x.safetensors')])
def test_weights_and_their_settings_are_downloaded_once(
    form, name, site, model, tmp_path):
  address, files, requests = site
  model.save(tmp_path / name, form=form)
  for path in tmp_path.glob('x.*'):
    files[f'/models/{path.name}'] = path.read_bytes()
  digest = hashlib.sha256(files[f'/models/{name}']).hexdigest()
  counts = []
  for word in ('fetched', 'cached'):
    lines = []
    found = vit_jax.load(f'{address}/models/{name}', log=lines.append)
    assert any(line.startswith(word) and f'sha256 {digest}' in line
               for line in lines)
    random_models.assert_same(found.params, model.params)
    assert found.config == model.config
    counts.append(len(requests))
  assert counts[0] == counts[1] > 0
  assert len(cached_files(tmp_path)) == len(files)


BODY = b'PK\x03\x04' + bytes(range(256)) * 40


def test_only_a_404_is_a_missing_file(site):
  with pytest.raises(FileNotFoundError, match='There is nothing at'):
    download.fetch(f'{site.address}/x.npz')
  with pytest.raises(OSError, match='could not be fetched: ') as error:
    download.fetch('http://127.0.0.1:9/x.npz')  # Nothing listens there.
  assert not isinstance(error.value, FileNotFoundError)


def test_a_hub_without_network_is_an_error_that_names_the_model(monkeypatch):
  class ConnectError(Exception):  # As of its HTTP client: not an OSError.
    pass

  monkeypatch.setattr(
      huggingface_hub, 'list_repo_files', mock.Mock(side_effect=ConnectError))
  with pytest.raises(OSError, match='hf://user/model could not be fetched'):
    download.fetch('hf://user/model')


def test_hashes_of_addresses_are_checked(site, tmp_path):
  site.files['/x.npz'] = BODY
  digest = hashlib.sha256(BODY).hexdigest()
  with pytest.raises(ValueError, match=(
      f'x.npz was discarded: it has SHA-256 {digest}, but 00')):
    download.fetch(f'{site.address}/x.npz#sha256={64 * "0"}')
  assert not cached_files(tmp_path)
  address = f'{site.address}/x.npz#sha256={digest.upper()}'
  path = download.fetch(address, log=lambda _: None)
  assert path.read_bytes() == BODY
  assert download.fetch(address, log=lambda _: None) == path
  path.write_bytes(BODY[1:])  # A damaged disk.
  with pytest.raises(ValueError, match='x.npz, downloaded from .* has SHA-256'):
    download.fetch(address)


def test_html_pages_are_errors_and_not_cached(site, tmp_path):
  address, files, *_ = site
  files['/x.npz'] = b'<html>Please log in</html>'
  with pytest.raises(ValueError, match='not a file of weights.*<html>'):
    vit_jax.load(f'{address}/x.npz', log=None)
  assert not cached_files(tmp_path)


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


def test_use_of_a_cached_folder_is_logged(tmp_path, monkeypatch):
  monkeypatch.setattr(download.atomic_files, 'is_remote', lambda path: True)
  folder = tmp_path / 'model'
  folder.mkdir()
  (folder / 'config.json').write_text('{}')
  lines = []
  for _ in range(2):
    copy = download.local(epath.Path(folder), log=lines.append)
    assert (copy / 'config.json').read_text() == '{}'
  assert [line.split()[0] for line in lines] == ['fetched', 'cached']


def test_a_missing_file_leaves_nothing_in_the_cache(tmp_path):
  for address in (tmp_path / 'none', 'memory://bucket/none.npz'):
    with pytest.raises(FileNotFoundError, match='nothing at .*none'):
      download.fetch(address)
  assert not cached_files(tmp_path)


@pytest.mark.parametrize(('address', 'words'), [
    ('nosuch://x/y', 'nosuch://x'), ('', 'path of the weights is empty'),
    ('hf://model', 'hf://user/model.*but is hf://model')])
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
