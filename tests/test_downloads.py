"""Weights are downloaded once, and never kept partially."""

import hashlib
from http import server
import threading

import pytest

from tests import random_models
import vit_jax
from vit_jax.weights import download

pytest.importorskip('aiohttp', reason='aiohttp reads https')


@pytest.fixture
def site(monkeypatch, tmp_path):
  """Serves a dict of files by path, and records the GET requests."""
  files, requests = {}, []

  class Handler(server.BaseHTTPRequestHandler):
    """Sends a file; below /half, only its first half."""

    def do_GET(self):
      body = files.get(self.path.removeprefix('/half'))
      if body is None:
        self.send_error(404)
        return
      requests.append(self.path)
      self.send_response(200)
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      self.wfile.write(body[:len(body) // 2] if self.path.startswith('/half')
                       else body)
      self.close_connection = True

    def do_HEAD(self):
      self.send_error(405)

    def log_message(self, *args):
      """Suppresses log lines."""

  monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / 'cache'))
  with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as running:
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{running.server_port}', files, requests
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


def test_incomplete_downloads_are_errors_and_not_cached(
    site, model, tmp_path):
  address, files, _ = site
  model.save(tmp_path / 'x.npz', form='npz')
  files['/x.npz'] = (tmp_path / 'x.npz').read_bytes()
  with pytest.raises(OSError, match='/half/x.npz could not be fetched'):
    vit_jax.load(f'{address}/half/x.npz', log=None)
  assert not cached_files(tmp_path)
  assert vit_jax.load(f'{address}/x.npz', log=None).config.depth == 2


def test_html_pages_are_errors_and_not_cached(site, tmp_path):
  address, files, _ = site
  files['/x.npz'] = b'<html>Please log in</html>'
  with pytest.raises(ValueError, match='not a file of weights.*<html>'):
    vit_jax.load(f'{address}/x.npz', log=None)
  assert not cached_files(tmp_path)
