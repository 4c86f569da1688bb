"""Downloads weights into a cache on this machine, and checks their SHA-256.

Local paths are used in place. huggingface_hub downloads hf://user/model into
its own cache, and https:// into ours; it resumes lost connections. fsspec reads
gs:// and other addresses.
"""

from collections.abc import Callable, Generator, Mapping
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile

from etils import epath
import huggingface_hub
from huggingface_hub import file_download

from vit_jax import atomic_files
from vit_jax import schema
from vit_jax.checkpoints import errors
from vit_jax.weights import declared
from vit_jax.weights.formats import array_file

CACHE = '~/.cache/vit_jax/weights'
CACHE_VARIABLE = 'VIT_JAX_CACHE'
Log = Callable[[str], None]

_CHUNK_BYTES = 2**20
_HASH = '#sha256='
_HUB_PATTERNS = ('*.safetensors', '*.npz', '*.bin')  # In order of preference.

# Its logger prints. The root logger, which Orbax configures, would print again.
huggingface_hub.logging.disable_propagation()


def fetch(address: str | os.PathLike, *, log: Log = print) -> epath.Path:
  """Returns a readable path of the file or folder at an address.

  Args:
    address: a name in `bundled`, a path, gs://bucket/file, https://host/file,
      optionally followed by #sha256=HEX, or hf://user/model[@revision][/file].
    log: receives a line for each download, with its SHA-256.

  Raises:
    FileNotFoundError: if nothing is at the address.
    ValueError: if the address is empty or of an unsupported kind, or the file
      has another hash.
    OSError: if there is no connection.
    errors.StorageError: if a bucket denies access.
  """
  text = os.fspath(address)
  if text in bundled():
    return bundled()[text]
  if not text:
    raise ValueError('The path of the weights is empty. Name a file, a folder '
                     'or an address.')
  scheme, rest = atomic_files.split_address(text)
  if scheme in ('', 'file'):
    path = epath.Path(os.path.abspath(os.path.expanduser(rest)))
    if not path.exists():
      names = ([sibling.name for sibling in path.parent.iterdir()]
               if path.parent.is_dir() else [])
      raise FileNotFoundError(
          f'There is nothing at {path}.{schema.nearest(path.name, names)} '
          'Expected a run, a checkpoint or a file of weights.')
    return path
  if scheme == 'hf':
    return _fetch_hub(rest, log)
  if scheme in atomic_files.SCHEMES:
    with _explained(text):
      if epath.Path(text).is_dir():
        return epath.Path(text)
  return _fetch_file(text, log)


@functools.cache
def bundled() -> Mapping[str, epath.Path]:
  """Returns the weights that are part of the package, by name.

  A file or folder of the same name is addressed as ./NAME.
  """
  folder = epath.resource_path('vit_jax') / 'weights' / 'bundled'
  return {file.stem: file for file in sorted(folder.glob('*.npz'))}


def local(path: epath.Path, *, log: Log = print) -> pathlib.Path:
  """Returns a local folder or file with the content of `path`."""
  if not atomic_files.is_remote(path):
    return pathlib.Path(path)
  target = _cache_folder(os.fspath(path))
  for file in filter(epath.Path.is_file, path.iterdir()):
    _fetch_once(os.fspath(file), target / file.name, log)
  return target


def _fetch_file(url: str, log: Log) -> epath.Path:
  url, _, expected = url.partition(_HASH)
  name = re.sub(r'[^\w.+=-]', '_', url.split('?')[0].rstrip('/').split('/')[-1])
  target = _cache_folder(url) / name
  if name.endswith('.npz') and '?' not in url and not target.exists():
    # `weights.save` writes a .json file for an .npz file. Other weights have
    # none, and hosts report that in many ways.
    with contextlib.suppress(OSError, ValueError, errors.StorageError):
      _fetch_once(
          declared.json_path(url),
          pathlib.Path(declared.json_path(str(target))), log,
          check=lambda file, _: json.loads(file.read_text()))
  # A server may have sent something else, such as a login page.
  _fetch_once(url, target, log, check=array_file.format_of, expected=expected)
  return epath.Path(target)


def _fetch_once(
    url: str, target: pathlib.Path, log: Log,
    check: Callable[[pathlib.Path, str], object] = lambda file, url: None,
    expected: str = '',
) -> None:
  """Copies a file unless it is there; `target` is complete and checked."""
  if target.exists():
    log(f'cached  {url}\n        {target}, sha256 '
        + _check_hash(target, expected, f'{target}, downloaded from {url},'))
    return
  target.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=target.parent) as folder:
    part = pathlib.Path(folder) / target.name
    with part.open('wb') as sink, _explained(url):
      if url.startswith(('http://', 'https://')):
        file_download.http_get(url, sink)
      else:
        import fsspec
        with fsspec.open(url, 'rb') as stream:
          shutil.copyfileobj(stream, sink, _CHUNK_BYTES)
    check(part, url)
    found = _check_hash(part, expected, f'{url} was discarded: it')
    os.replace(part, target)
  log(f'fetched {url}\n        {target}, {target.stat().st_size:,} bytes, '
      f'sha256 {found}')


def _check_hash(
    path: pathlib.Path, expected: str, subject: str) -> str:
  """Returns the SHA-256 of a file; raises if another one is expected."""
  with path.open('rb') as file:
    found = hashlib.file_digest(file, 'sha256').hexdigest()
  if expected and found != expected.lower():
    raise ValueError(
        f'{subject} has SHA-256 {found}, but {expected} was expected. '
        'Delete any copy, and load it again; if the hash still differs, '
        'do not use the file.')
  return found


@contextlib.contextmanager
def _explained(url: str) -> Generator[None, None, None]:
  """Explains the exceptions of remote file systems."""
  try:
    yield
  except ImportError as error:
    raise ValueError(
        f'{url} cannot be read: {error}. Install the library for such '
        'addresses (etils[epath-gcs] and gcsfs for gs://), or download the '
        'file and name its path.') from error
  except Exception as error:
    response = getattr(error, 'response', None)
    if isinstance(error, FileNotFoundError) or getattr(
        response, 'status_code', None) in (404, 410):
      raise FileNotFoundError(f'There is nothing at {url}.') from error
    is_network = response is not None or isinstance(error, ConnectionError)
    if not is_network and (
        storage := errors.storage_error(error, 'Cannot read', url)):
      raise storage from error
    raise OSError(f'{url} could not be fetched: {type(error).__name__}: {error}'
                  ) from error


def _fetch_hub(text: str, log: Log) -> epath.Path:
  """Downloads a file, or the weights and JSON files of a repository."""
  match = re.fullmatch(r'([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?', text)
  if not match:
    raise ValueError(
        'The address of a model on the Hugging Face hub is hf://user/model'
        f'[@revision][/file], but is hf://{text}.')
  repository, revision, file = match.groups()
  try:
    names = huggingface_hub.list_repo_files(repository, revision=revision)
    if file:
      folder_of_file = file[:file.rfind('/') + 1]
      wanted = [file, declared.json_path(file), *(
          folder_of_file + name
          for name in declared.CONFIG_FILES)]
    else:
      wanted = [next((p for p in _HUB_PATTERNS
                      if any(name.endswith(p[1:]) for name in names)),
                     _HUB_PATTERNS[0]), '*.json', 'LICENSE*']
    if file and file not in names:
      raise FileNotFoundError(f'There is nothing at hf://{text}.')
    folder = pathlib.Path(huggingface_hub.snapshot_download(
        repository, revision=revision, allow_patterns=wanted))
  except FileNotFoundError:
    raise
  except Exception as error:  # Of its HTTP client, too.
    raise OSError(
        f'hf://{text} could not be fetched: {type(error).__name__}: {error}'
    ) from error
  for path in sorted(folder.glob(wanted[0])):
    # huggingface_hub compares sizes only. It names large files by their hash.
    blob = path.resolve().name
    found = _check_hash(path, blob if len(blob) == 64 else '', str(path))
    log(f'fetched hf://{text}\n        {path}, sha256 {found}')
  return epath.Path(folder / file if file else folder)


def _cache_folder(url: str) -> pathlib.Path:
  root = pathlib.Path(os.environ.get(CACHE_VARIABLE, CACHE)).expanduser()
  return root / hashlib.sha256(url.encode()).hexdigest()[:16]
