"""A web server in this process, and a cache of downloads for each test."""

import collections
from http import server
import threading
import time

import pytest

from vit_jax.weights import download

Site = collections.namedtuple('Site', 'address files requests')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  """Returns the folder of the cache, which does not exist yet."""
  monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path / 'cache'))
  return tmp_path / 'cache'


@pytest.fixture
def cached_files(cache):
  """Returns a function that lists the files in the cache."""
  return lambda: [path for path in cache.rglob('*') if path.is_file()]


@pytest.fixture
def site(monkeypatch):
  """Serves files by path, and records the paths of GET requests.

  The content of a file is bytes, the status of an error, or None for a
  connection that is closed before an answer.
  """
  files, requests = {}, []

  class Handler(server.BaseHTTPRequestHandler):
    """Sends files."""

    def do_GET(self):
      body = files.get(self.path, 404)
      if body is None:
        self.close_connection = True
        return
      if isinstance(body, int):
        self.send_error(body)
        return
      requests.append(self.path)
      self.send_response(200)
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, *args):
      """Suppresses log lines."""

  monkeypatch.setattr(time, 'sleep', lambda _: None)  # Before another attempt.
  with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as running:
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield Site(f'http://127.0.0.1:{running.server_port}', files, requests)
    running.shutdown()
    thread.join()
