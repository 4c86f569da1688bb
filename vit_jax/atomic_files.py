"""Files and folders written completely or not at all, local or in a bucket."""

from collections.abc import Generator, Iterable, Mapping
import contextlib
import json
import math
import os
import pathlib
import re
import tempfile
from typing import Any

from etils import epath

from vit_jax.exceptions import UserError

# Address schemes that epath can read and write.
SCHEMES = ('gs', 's3', 'az')
_SCHEME = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*')


def split_address(path: epath.PathLike) -> tuple[str, str]:
  """Returns ('gs', 'bucket/run') for gs://bucket/run, ('', path) for a path.

  A chain of addresses, such as zip::gs://bucket/x, is a path.
  """
  text = os.fspath(path)
  scheme, separator, rest = text.partition('://')
  if not separator or not _SCHEME.fullmatch(scheme):
    return '', text
  return scheme, rest


def is_remote(path: epath.PathLike) -> bool:
  """Whether a path is an address such as gs://bucket/run."""
  return bool(split_address(path)[0])


def absolute(path: epath.PathLike) -> str:
  """Returns a local path as an absolute one, and an address as it is."""
  return os.fspath(path) if is_remote(path) else os.path.abspath(
      os.path.expanduser(path))


def write_text(path: epath.PathLike, text: str) -> None:
  """Replaces a text file; see `write_bytes`."""
  # Names of files need not be UTF-8.
  write_bytes(path, text.encode('utf-8', 'surrogateescape'))


def write_bytes(path: epath.PathLike, content: bytes) -> None:
  """Replaces a file; readers find the old content or the new one.

  Symbolic links, which a folder from elsewhere may contain, are replaced. Of
  several processes that write the same file, one is the last.
  """
  path = epath.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  if is_remote(path):  # Buckets replace objects atomically.
    path.write_bytes(content)
    return
  with _temporary(path.name, path.parent) as new:
    with open(new, 'wb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    new.replace(path)


def write_json(path: epath.PathLike, value: Any) -> None:
  """Replaces a file with strict JSON; non-finite numbers become null."""
  write_text(path, json.dumps(strict(value), indent=2, allow_nan=False) + '\n')


def write_json_lines(path: epath.PathLike, rows: Iterable[Any]) -> None:
  """Replaces a file with a line of strict JSON for each row."""
  write_text(path, ''.join(map(json_line, rows)))


def json_line(row: Any) -> str:
  """Returns a line of strict JSON; non-finite numbers become null."""
  return json.dumps(strict(row), allow_nan=False) + '\n'


@contextlib.contextmanager
def create(
    target: str | os.PathLike, *, overwrite: bool = False,
) -> Generator[pathlib.Path, None, None]:
  """Yields a temporary path of a new file or folder and moves it to `target`.

  An error in the context changes nothing at `target` and leaves no temporary
  file. With `overwrite`, a local file replaces one that exists.

  Raises:
    UserError: if `target` exists, or its address scheme is not supported.
  """
  text = os.fspath(target)
  scheme, rest = split_address(text)
  is_local = scheme in ('', 'file')
  if not is_local and scheme not in SCHEMES:
    raise UserError(
        f'Cannot write to {text}: expected a local path or '
        f'{", ".join(f"{name}://" for name in SCHEMES)}. Write a local file '
        'and copy it.')
  final = epath.Path(rest).expanduser() if is_local else epath.Path(text)
  replaces = overwrite and is_local and final.is_file()
  if not replaces:
    check_absent(final)
  if is_local:
    final.parent.mkdir(parents=True, exist_ok=True)
  with _temporary(final.name, final.parent if is_local else None) as path:
    yield path
    if not replaces:
      check_absent(final)
    if is_local:
      os.rename(path, final)
    else:
      _upload(path, final)


@contextlib.contextmanager
def _temporary(
    name: str, folder: epath.Path | None,
) -> Generator[pathlib.Path, None, None]:
  """Yields a path with this name in a new folder, which is removed.

  In the folder of the target, the path can be renamed to it.
  """
  with tempfile.TemporaryDirectory(
      dir=folder, prefix=f'.{name}.', ignore_cleanup_errors=True) as new:
    yield pathlib.Path(new) / name


def check_absent(path: epath.Path, remedy: str = 'Remove it') -> None:
  """Raises a `UserError` with a remedy if `path` exists."""
  if path.exists():
    raise UserError(f'{path} exists already. {remedy}, or choose another path.')


def _upload(source: pathlib.Path, target: epath.Path) -> None:
  """Copies a file or folder; removes a partial copy after an error."""
  try:
    for path in filter(pathlib.Path.is_file, [source, *source.rglob('*')]):
      copy = target / path.relative_to(source).as_posix()
      copy.parent.mkdir(parents=True, exist_ok=True)
      epath.Path(path).copy(copy)
  except BaseException:
    if target.is_dir():
      target.rmtree()
    elif target.exists():
      target.unlink()
    raise


def strict(value: Any) -> Any:
  """Returns JSON-like data with None for non-finite numbers."""
  if isinstance(value, float) and not math.isfinite(value):
    return None
  if isinstance(value, Mapping):
    return {key: strict(v) for key, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [strict(v) for v in value]
  return value
