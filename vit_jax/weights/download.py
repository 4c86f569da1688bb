"""Downloads weights into a cache on this machine, and checks their SHA-256.

Local paths are used in place. huggingface_hub downloads hf://user/model into
its own cache, and https:// into ours; it resumes lost connections. fsspec reads
gs:// and other addresses.

Our cache holds complete files only. An .npz file enters it together with the
.json file of its settings, or after the server has said that there is none:
without them, the weights would load with assumed settings, now and later.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import shutil
import tempfile

from etils import epath
import huggingface_hub
from huggingface_hub import file_download

from vit_jax import atomic_files
from vit_jax import exceptions
from vit_jax import schema
from vit_jax import spelling
from vit_jax import untrusted
from vit_jax.weights import declared
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import open_file

CACHE = '~/.cache/vit_jax/weights'
CACHE_VARIABLE = 'VIT_JAX_CACHE'
Log = Callable[[str], None]

_CHUNK_BYTES = 2**20
_HASH = '#sha256='
_HASHES = re.compile(r'([0-9a-fA-F]{64})(?:,([0-9a-fA-F]{64}))?')
_NO_JSON = ('Only the statuses 404 and 410 say that an .npz file has no .json '
            'file of settings. Try again; if it has none, download the .npz '
            'file and name its path.')
_HUB_PATTERNS = ('*.safetensors', '*.npz', '*.bin')  # In order of preference.

# Its logger prints. The root logger, which Orbax configures, would print again.
huggingface_hub.logging.disable_propagation()


@dataclasses.dataclass(frozen=True)
class _File:
  """A file to download.

  Attributes:
    url: its address.
    path: its place on this machine.
    check: raises a ValueError if it is incomplete.
    sha256: its expected hash; '' for any.
  """
  url: str
  path: pathlib.Path
  check: Callable[[pathlib.Path], object]
  sha256: str = ''

  def moved(self, folder: str | pathlib.Path) -> '_File':
    return dataclasses.replace(self, path=pathlib.Path(folder) / self.path.name)


def fetch(address: str | os.PathLike, *, log: Log = print) -> epath.Path:
  """Returns a readable path of the file or folder at an address.

  Args:
    address: a name in `bundled`, a path, gs://bucket/file, https://host/file,
      optionally followed by #sha256=HEX, or hf://user/model[@revision][/file].
      #sha256=HEX,HEX also names the hash of the .json file of an .npz file.
    log: receives a line for each download, with its SHA-256.

  Raises:
    FileNotFoundError: if nothing is at the address.
    ValueError: if the address is empty or of an unsupported kind, or the file
      is damaged or has another hash; the next call downloads it again.
    OSError: if there is no connection.
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
          f'There is nothing at {path}.'
          f'{spelling.hint(rest) or schema.nearest(path.name, names)} '
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
  with _explained(os.fspath(path)):
    # `is_file` would also be False, and leave a file out, if a bucket fails.
    files = [file for file in path.iterdir() if not file.stat().is_directory]
  for file in files:
    _fetch_once(_File(os.fspath(file), target / file.name, _check_any), log)
  return target


def _fetch_file(address: str, log: Log) -> epath.Path:
  url, marker, hashes = address.partition(_HASH)
  name = re.sub(r'[^\w.+=-]', '_', url.split('?')[0].rstrip('/').split('/')[-1])
  match = _HASHES.fullmatch(hashes)
  if marker and not match:
    raise ValueError(
        f'{address} must end with {_HASH}HEX or, for an .npz file and its '
        f'.json file, {_HASH}HEX,HEX. HEX has 64 digits.')
  sha256, json_sha256 = match.groups('') if match else ('', '')
  # A server may have sent something else, such as a login page.
  file = _File(
      url, _cache_folder(url) / name, open_file.check_complete, sha256)
  settings = None
  if name.endswith('.npz') and '?' not in url:
    settings = _File(
        declared.json_path(url),
        pathlib.Path(declared.json_path(str(file.path))), _check_json,
        json_sha256)
  elif json_sha256:
    raise ValueError(
        f'{address} names two hashes, but only the address of an .npz file '
        'without a query (?) has a second file, its .json. Name one hash.')
  _fetch_once(file, log, settings=settings)
  return epath.Path(file.path)


def _fetch_once(
    file: _File, log: Log, *, settings: _File | None = None) -> None:
  """Copies a file and its settings unless they are there, complete."""
  if file.path.exists() and not (
      settings and settings.sha256 and not settings.path.exists()):
    held = [each for each in (settings, file) if each and each.path.exists()]
    for each, found in zip(held, _check(held), strict=True):
      log(f'cached  {each.url}\n        {each.path}, sha256 {found}')
    return
  folder = file.path.parent
  folder.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=folder) as temporary:
    parts = [file.moved(temporary)]
    if settings and _download_settings(settings.moved(temporary), of=file):
      parts.insert(0, settings.moved(temporary))
    _download(parts[-1])
    hashes = _check(parts)
    if settings and len(parts) == 1:  # It has none any more.
      settings.path.unlink(missing_ok=True)
    for part in parts:  # The weights last: they stand for both.
      os.replace(part.path, folder / part.path.name)
  for part, found in zip(parts, hashes, strict=True):
    path = folder / part.path.name
    log(f'fetched {part.url}\n        {path}, {path.stat().st_size:,} bytes, '
        f'sha256 {found}')


def _download(file: _File) -> None:
  with file.path.open('wb') as sink, _explained(file.url):
    if file.url.startswith(('http://', 'https://')):
      file_download.http_get(file.url, sink)
    else:
      import fsspec
      with fsspec.open(file.url, 'rb') as stream:
        shutil.copyfileobj(stream, sink, _CHUNK_BYTES)


def _download_settings(settings: _File, *, of: _File) -> bool:
  """Downloads the settings of an .npz file; returns whether it has any.

  Buckets that deny the right to list answer 403 for a missing object, but also
  for one that may not be read, so that 403 is an error as well.
  """
  def rewrite(error: Exception) -> Exception | None:
    if isinstance(error, FileNotFoundError):
      return None
    return OSError(f'{error} It may hold the settings of {of.url}. {_NO_JSON}')

  try:
    with exceptions.replaced_by(rewrite):
      _download(settings)
  except FileNotFoundError:
    settings.path.unlink()
    if settings.sha256:
      raise
    return False
  return True


def _check(files: Sequence[_File]) -> list[str]:
  """Returns the hashes of files that belong together.

  Raises:
    ValueError: if one is damaged or has another hash, or the settings are of
      other weights. All are removed.
  """
  try:
    hashes = []
    for file in files:
      file.check(file.path)
      hashes.append(_check_hash(file.path, file.sha256))
    if len(files) > 1:
      declared.read_metadata(open_file.open_weights(files[-1].path))
  except ValueError as error:
    for file in files:
      file.path.unlink(missing_ok=True)  # Another process may be first.
    reason = str(error).replace(f'{files[-1].path.parent}{os.sep}', '')
    raise ValueError(
        f'{files[-1].url} was discarded, and the next call downloads it again: '
        f'{reason}') from error
  return hashes


def _check_json(path: pathlib.Path) -> None:
  try:
    untrusted.parse_json(untrusted.read_text(path))
  except ValueError as error:
    raise ValueError(f'{path} is not JSON: {error}. {_NO_JSON}') from error


def _check_any(path: pathlib.Path) -> None:
  """Checks a file of a folder, which may hold more than weights."""
  if path.suffix in ('.npz', '.safetensors') or (
      array_file.sniff(path) == 'pytorch'):
    open_file.check_complete(path)
  elif path.name in declared.CONFIG_FILES:
    untrusted.read_json(path)


def _check_hash(path: pathlib.Path, expected: str) -> str:
  """Returns the SHA-256 of a file; raises if another one is expected."""
  with path.open('rb') as file:
    found = hashlib.file_digest(file, 'sha256').hexdigest()
  if expected and found != expected.lower():
    raise ValueError(
        f'{path} has SHA-256 {found}, but {expected} was expected. If the next '
        'download has it, too, do not use the file.')
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
    raise OSError(
        f'{url} could not be fetched: {type(error).__name__}: '
        f'{exceptions.first_line(error)}.') from error


def _fetch_hub(text: str, log: Log) -> epath.Path:
  """Downloads a file, or the weights and JSON files of a repository."""
  match = re.fullmatch(r'([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?', text)
  if not match:
    raise ValueError(
        'The address of a model on the Hugging Face hub is hf://user/model'
        f'[@revision][/file], but is hf://{text}.')
  repository, revision, file = match.groups()
  # Some of its errors of the connection are FileNotFoundErrors, which means
  # here that the hub has no such file.
  explained = functools.partial(exceptions.replaced_by, lambda error: OSError(
      f'hf://{text} could not be fetched: {type(error).__name__}: {error}'))
  with explained():
    names = huggingface_hub.list_repo_files(repository, revision=revision)
  if file and file not in names:
    raise FileNotFoundError(f'There is nothing at hf://{text}.')
  if file:
    folder_of_file = file[:file.rfind('/') + 1]
    wanted = [file, declared.json_path(file), *(
        folder_of_file + name
        for name in declared.CONFIG_FILES)]
  else:
    wanted = [next((p for p in _HUB_PATTERNS
                    if any(name.endswith(p[1:]) for name in names)),
                   _HUB_PATTERNS[0]), '*.json', 'LICENSE*']
  with explained():
    folder = pathlib.Path(huggingface_hub.snapshot_download(
        repository, revision=revision, allow_patterns=wanted))
  # Without a connection, it returns what an earlier download has left.
  if missing := [name for name in huggingface_hub.utils.filter_repo_objects(
      names, allow_patterns=wanted) if not (folder / name).exists()]:
    raise OSError(
        f'hf://{text} could not be fetched: {", ".join(missing)} did not '
        f'arrive in {folder}. Try again.')
  for path in sorted(folder.glob(wanted[0])):
    # huggingface_hub compares sizes only. It names large files by their hash.
    blob = path.resolve()
    try:
      found = _check_hash(path, blob.name if len(blob.name) == 64 else '')
    except ValueError as error:
      path.unlink()
      blob.unlink()
      raise ValueError(
          f'{error} It was discarded, and the next call downloads it again.'
      ) from error
    log(f'fetched hf://{text}\n        {path}, sha256 {found}')
  return epath.Path(folder / file if file else folder)


def _cache_folder(url: str) -> pathlib.Path:
  root = pathlib.Path(os.environ.get(CACHE_VARIABLE, CACHE)).expanduser()
  return root / hashlib.sha256(url.encode()).hexdigest()[:16]
