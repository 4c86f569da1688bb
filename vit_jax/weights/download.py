"""Downloads weights into a cache on this machine.

Local paths are used in place. huggingface_hub downloads hf://user/model into
its own cache, and https:// into ours; it resumes lost connections. fsspec reads
gs:// and other addresses.

An .npz file enters our cache after the .json file of its settings, or after the
server has said that there is none: without them, the weights would load with
assumed settings, now and later.
"""

from collections.abc import Callable, Mapping
import contextlib
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
from vit_jax import registry
from vit_jax import untrusted
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError
from vit_jax.exceptions import UserFileError
from vit_jax.weights import declared
from vit_jax.weights.formats import npz

CACHE = '~/.cache/vit_jax/weights'
CACHE_VARIABLE = 'VIT_JAX_CACHE'
Log = Callable[[str], None]

_HASH = '#sha256='

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
    UserError: if the address is empty or of an unsupported kind, or the file
      is damaged or has another hash; the next call downloads it again.
    OSError: if there is no connection.
  """
  text = os.fspath(address)
  if text in bundled():
    return bundled()[text]
  if not text:
    raise UserError('The path of the weights is empty. Name a file, a folder '
                    'or an address.')
  scheme, rest = atomic_files.split_address(text)
  if scheme in ('', 'file'):
    return _find_local(rest)
  if scheme == 'hf':
    return registry.load(registry.HUB_WEIGHTS)(rest, log)
  if scheme in atomic_files.SCHEMES:
    with explained(text):
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


def _find_local(text: str) -> epath.Path:
  path = epath.Path(atomic_files.absolute(text))
  if not path.exists():
    raise NotFoundError(
        f'There is nothing at {path}.'
        + registry.nearest_file(path, () if os.sep in text else [*bundled()])
        + ' Expected a run, a checkpoint or a file of weights.')
  return path


def _fetch_file(address: str, log: Log) -> epath.Path:
  url, marker, sha256 = address.partition(_HASH)
  if marker and not re.fullmatch('[0-9a-fA-F]{64}', sha256):
    raise UserError(f'{address} must end with {_HASH}HEX. HEX has 64 digits.')
  name = re.sub(r'[^\w.+=-]', '_', url.split('?')[0].rstrip('/').split('/')[-1])
  path = cache_folder(url) / name
  verb = 'cached ' if path.exists() else 'fetched'
  if not path.exists():
    if name.endswith('.npz') and '?' not in url:
      _fetch_settings(declared.json_path(url), path.with_suffix('.json'))
    download(url, path)
  found = check(path, url=url, sha256=sha256)
  log(f'{verb} {url}\n        {path}, {path.stat().st_size:,} bytes, '
      f'sha256 {found}')
  return epath.Path(path)


def _fetch_settings(url: str, path: pathlib.Path) -> None:
  """Downloads the settings of an .npz file, if it has any.

  Buckets that deny the right to list answer 403 for a missing object, but also
  for one that may not be read, so that 403 is an error as well.
  """
  try:
    download(url, path)
    untrusted.read_json(path)
  except FileNotFoundError:
    path.unlink(missing_ok=True)  # Of an earlier file.
  except (OSError, UserError) as error:
    path.unlink(missing_ok=True)
    raise UserFileError(
        f'{url} cannot be read: {error} It may hold the settings of the .npz '
        'file beside it. Only the statuses 404 and 410 say that there are '
        'none. Try again, or download the .npz file and name its path.'
    ) from error


def download(url: str, path: pathlib.Path) -> None:
  """Replaces a file by the content of an address, as soon as it is there."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    part = pathlib.Path(folder) / path.name
    with part.open('wb') as sink, explained(url):
      if url.startswith(('http://', 'https://')):
        file_download.http_get(url, sink)
      else:
        import fsspec
        with fsspec.open(url, 'rb') as stream:
          shutil.copyfileobj(stream, sink)
    os.replace(part, path)


def check(path: pathlib.Path, *, url: str, sha256: str = '') -> str:
  """Returns the hash of a downloaded file of weights.

  A server may have sent something else, such as a login page. The directory of
  an archive, or the header of .safetensors, declares how long the file is.

  Raises:
    UserError: if the file is incomplete, or has another hash. It is removed.
  """
  try:
    if path.suffix == '.npz':
      declared.read_metadata(npz.open_file(path))
    elif foreign := registry.optional(registry.FOREIGN):
      foreign.check_complete(path)
    with path.open('rb') as file:
      found = hashlib.file_digest(file, 'sha256').hexdigest()
    if sha256 and found != sha256.lower():
      raise UserError(
          f'{path} has SHA-256 {found}, but {sha256} was expected. If the next '
          'download has it, too, do not use the file.')
  except UserError as error:
    path.unlink(missing_ok=True)  # Another process may be first.
    raise UserError(
        f'{url} was discarded, and the next call downloads it again: '
        f'{str(error).replace(f"{path.parent}{os.sep}", "")}') from error
  return found


def explained(url: str) -> contextlib.AbstractContextManager[None]:
  """Explains the exceptions of remote file systems."""
  def rewrite(error: Exception) -> Exception:
    status = getattr(getattr(error, 'response', None), 'status_code', None)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
      return NotFoundError(f'There is nothing at {url}.')
    return UserFileError(
        f'{url} could not be fetched: {type(error).__name__}: '
        f'{exceptions.first_line(error)}.')

  return exceptions.replaced_by(rewrite)


def cache_folder(url: str) -> pathlib.Path:
  root = pathlib.Path(os.environ.get(CACHE_VARIABLE, CACHE)).expanduser()
  return root / hashlib.sha256(url.encode()).hexdigest()[:16]
