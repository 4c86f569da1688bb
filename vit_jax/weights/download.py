"""From an address to a file on this machine: copied once, with its checksum.

Local paths are used where they are. gs://, https:// and whatever else fsspec
knows is copied into a cache; hf://user/model is fetched by huggingface_hub,
which has a cache of its own.
"""

from collections.abc import Callable
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
from typing import IO

from etils import epath

from vit_jax.checkpoints import errors
from vit_jax.weights import files

CACHE = '~/.cache/vit_jax/weights'
CACHE_VARIABLE = 'VIT_JAX_CACHE'
Log = Callable[[str], None]

_CHUNK_BYTES = 2**20


def fetch(address: str | os.PathLike, *, log: Log = print) -> epath.Path:
  """Returns where the file or folder of an address can be read.

  Args:
    address: a path, gs://bucket/file, https://host/file, or
      hf://user/model[@revision][/file].
    log: takes a line on what was copied, with its SHA-256.

  Raises:
    FileNotFoundError: if there is nothing at the address.
    ValueError: if no installed library can read such an address, or it is
      empty.
    OSError: if there is no connection to it.
    storage.StorageError: if it lies in a bucket that does not give it.
  """
  text = os.fspath(address)
  if not text:
    raise ValueError('The path of the weights is empty. Name a file, a folder '
                     'or an address.')
  scheme, _, rest = text.partition('://')
  if not rest:
    path = epath.Path(os.path.abspath(epath.Path(text).expanduser()))
    if not path.exists():
      raise FileNotFoundError(f'There is nothing at {path}.')
    return path
  if scheme == 'file':
    return fetch(rest, log=log)
  if scheme == 'hf':
    return _fetch_hub(rest, log)
  if scheme in ('gs', 's3') and _is_folder(text):
    return epath.Path(text)
  return _fetch_file(text, log)


def local(path: epath.Path, *, log: Log = print) -> pathlib.Path:
  """Returns a folder or file on this machine with the contents of `path`."""
  if '://' not in os.fspath(path):
    return pathlib.Path(path)
  target = _place(os.fspath(path))
  for file in path.iterdir():
    if file.is_file() and not (target / file.name).exists():
      _copy(os.fspath(file), target / file.name, log)
  return target


def _is_folder(text: str) -> bool:
  try:
    return epath.Path(text).is_dir()
  except ImportError as error:
    raise ValueError(
        f'{text} cannot be read: {error}. Install the library for such '
        'addresses: pip install "etils[epath-gcs]" gcsfs for gs://.'
    ) from error
  except Exception as error:
    if storage := errors.storage_error(error, 'Cannot read', text):
      raise storage from error
    raise


def _fetch_file(url: str, log: Log) -> epath.Path:
  name = re.sub(r'[^\w.+=-]', '_', url.split('?')[0].rstrip('/').split('/')[-1])
  target = _place(url) / name
  if target.exists():
    log(f'cached  {url}\n        {target}, sha256 {checksum(target)}')
  else:
    _copy(url, target, log, check=_check_weights)
  return epath.Path(target)


def _check_weights(file: pathlib.Path, url: str) -> None:
  """Raises if a file that was fetched is a page, say, that asks to log in."""
  if files.sniff(file) is None:
    with file.open('rb') as stream:
      start = stream.read(16)
    raise ValueError(
        f'{url} gave no file of weights, but {file.stat().st_size:,} bytes '
        f'that begin {start!r}; they are not kept. Open the address in a '
        'browser to see what it says.')


def _copy(
    url: str, target: pathlib.Path, log: Log,
    check: Callable[[pathlib.Path, str], None] = lambda file, url: None,
) -> None:
  """Copies a file; what is there under its name is whole, and was checked."""
  target.parent.mkdir(parents=True, exist_ok=True)
  handle, name = tempfile.mkstemp(dir=target.parent, suffix='.part')
  try:
    with os.fdopen(handle, 'wb') as sink:
      _download(url, sink)
    check(pathlib.Path(name), url)
    os.replace(name, target)
  finally:
    pathlib.Path(name).unlink(missing_ok=True)
  log(f'fetched {url}\n        {target}, {target.stat().st_size:,} bytes, '
      f'sha256 {checksum(target)}')


def _download(url: str, sink: IO[bytes]) -> None:
  import fsspec
  try:
    with fsspec.open(url, 'rb') as stream:
      shutil.copyfileobj(stream, sink, _CHUNK_BYTES)
  except FileNotFoundError as error:
    # fsspec says so of a host that does not answer or lets nobody in, too.
    cause = error.__cause__
    is_absent = (cause is None or isinstance(cause, FileNotFoundError)
                 or getattr(cause, 'status', None) in (404, 410))
    if not is_absent:
      raise OSError(
          f'{url} could not be fetched: {type(cause).__name__}: {cause}'
      ) from error
    raise FileNotFoundError(f'There is nothing at {url}.') from error
  except ImportError as error:
    raise ValueError(
        f'{url} cannot be read: {error}. Install the library for such '
        'addresses (aiohttp for https://, gcsfs for gs://), or download the '
        'file and name its path.') from error
  # Whatever the network does; the address is what the user can check.
  except Exception as error:
    if storage := errors.storage_error(error, 'Cannot read', url):
      raise storage from error
    raise OSError(
        f'{url} could not be fetched: {type(error).__name__}: {error}'
    ) from error


def _fetch_hub(text: str, log: Log) -> epath.Path:
  try:
    import huggingface_hub
  except ImportError as error:
    raise ValueError(
        f'hf://{text} needs huggingface_hub. Install it: pip install '
        'huggingface_hub.') from error
  match = re.fullmatch(r'([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?', text)
  if not match:
    raise ValueError(
        'A model on the Hugging Face hub is written hf://user/model, with '
        f'@revision and /file if need be, but is hf://{text}.')
  repository, revision, file = match.groups()
  try:
    if file:
      found = huggingface_hub.hf_hub_download(
          repository, file, revision=revision)
      log(f'fetched hf://{text}\n        {found}, sha256 {checksum(found)}')
      return epath.Path(found)
    names = huggingface_hub.list_repo_files(repository, revision=revision)
    weights = next(
        (pattern for pattern in ('*.safetensors', '*.npz', '*.bin')
         if any(name.endswith(pattern[1:]) for name in names)), '*.safetensors')
    folder = huggingface_hub.snapshot_download(
        repository, revision=revision, allow_patterns=['*.json', weights])
  except (OSError, ValueError) as error:
    raise OSError(
        f'hf://{text} could not be fetched: {type(error).__name__}: {error}'
    ) from error
  for path in sorted(pathlib.Path(folder).glob(weights)):
    log(f'fetched hf://{text}\n        {path}, sha256 {checksum(path)}')
  return epath.Path(folder)


def checksum(path: str | os.PathLike) -> str:
  """Returns the SHA-256 of a file, in hexadecimal."""
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _place(url: str) -> pathlib.Path:
  root = pathlib.Path(os.environ.get(CACHE_VARIABLE, CACHE)).expanduser()
  return root / hashlib.sha256(url.encode()).hexdigest()[:16]
