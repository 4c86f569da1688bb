"""A Hugging Face hub in this process.

Uploads replace methods of the client; downloads use it.
"""

import contextlib
import hashlib
from http import server
import json
import pathlib
import re
import threading
import types
from unittest import mock

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub import hf_api

_LFS = ('.safetensors', '.npz')


class Hub:
  """Repositories.

  Attributes:
    address: of the server.
    files: content by 'USER/NAME' and file name.
    visibility: by 'USER/NAME'.
    denied: whether uploads are denied.
    failing: names of files that are answered with the status 503.
  """

  def __init__(self):
    self.address = ''
    self.files, self.visibility = {}, {}
    self.denied = False
    self.failing = set()

  def listing(self, repository):
    """Returns the files of a repository as the hub lists them."""
    return [{'type': 'file', 'path': name, 'size': len(content),
             'oid': 40 * '0', **({'lfs': {
                 'oid': hashlib.sha256(content).hexdigest(),
                 'size': len(content), 'pointerSize': 100}}
                                 if name.endswith(_LFS) else {})}
            for name, content in sorted(self.files[repository].items())]

  def create_repo(self, api, repo_id, *, private, exist_ok):
    """Replaces the method of HfApi."""
    del api, exist_ok
    if self.denied:
      raise PermissionError('403 Forbidden')
    self.files.setdefault(repo_id, {})
    self.visibility[repo_id] = 'private' if private else 'public'

  def upload_folder(self, api, *, repo_id, folder_path, commit_message):
    """Replaces the method of HfApi."""
    del api, commit_message
    self.files[repo_id] |= {path.name: path.read_bytes() for path in
                            pathlib.Path(folder_path).iterdir()}
    return types.SimpleNamespace(
        commit_url=f'{self.address}/{repo_id}/commit/{40 * "a"}')


def _handler(hub):
  class Handler(server.BaseHTTPRequestHandler):
    """Serves `hub`."""
    protocol_version = 'HTTP/1.1'

    def _send(self, content, status=200, headers=()):
      self.send_response(status)
      for name, value in headers:
        self.send_header(name, value)
      self.send_header('Content-Length', str(len(content)))
      self.end_headers()
      if self.command != 'HEAD':
        self.wfile.write(content)

    def do_GET(self):
      path = self.path.split('?')[0]
      match = re.fullmatch(
          r'/api/models/([^/]+/[^/]+)(/tree/.*|/revision/.*)?', path)
      if match and match[1] in hub.files:
        listing = hub.listing(match[1])
        self._send(json.dumps(
            listing if '/tree/' in path else
            {'id': match[1], 'sha': 40 * 'a', 'siblings': [
                {'rfilename': file['path']} for file in listing]}).encode())
        return
      match = re.fullmatch(r'/([^/]+/[^/]+)/resolve/[^/]+/(.+)', path)
      content = hub.files.get(match[1], {}).get(match[2]) if match else None
      if content is None:
        self._send(b'', 404)
        return
      if match[2] in hub.failing:
        self._send(b'', 503)
        return
      digest = hashlib.sha256(content).hexdigest()
      headers = [('X-Repo-Commit', 40 * 'a'), ('ETag', f'"{digest}"')]
      self._send(content, headers=headers)

    do_HEAD = do_GET

    def log_message(self, *args):
      """Suppresses log lines."""

  return Handler


@contextlib.contextmanager
def serve(monkeypatch, cache):
  """Yields a `Hub` that huggingface_hub uses, with files cached in `cache`."""
  hub = Hub()
  with server.ThreadingHTTPServer(
      ('127.0.0.1', 0), _handler(hub)) as running:
    hub.address = f'http://127.0.0.1:{running.server_port}'
    monkeypatch.setattr(constants, 'ENDPOINT', hub.address)
    monkeypatch.setattr(
        constants, 'HUGGINGFACE_CO_URL_TEMPLATE',
        hub.address + '/{repo_id}/resolve/{revision}/{filename}')
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(cache))
    monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)
    monkeypatch.setattr(hf_api.api, 'endpoint', hub.address)
    for name in ('create_repo', 'upload_folder'):
      monkeypatch.setattr(huggingface_hub.HfApi, name, mock.create_autospec(
          getattr(huggingface_hub.HfApi, name), side_effect=getattr(hub, name)))
    monkeypatch.setenv('HF_TOKEN', 'hf_test')
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
      yield hub
    finally:
      running.shutdown()
      thread.join()
      huggingface_hub.close_session()
