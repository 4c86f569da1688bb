"""What is written appears whole or not at all, on a disk or in a bucket."""

from collections.abc import Generator
import contextlib
import os
import pathlib
import shutil
import tempfile

from etils import epath

# What epath writes to, with the library that it needs.
_BACKENDS = {'gs': 'gcsfs', 's3': 's3fs', 'az': 'adlfs'}


@contextlib.contextmanager
def whole(target: str | os.PathLike) -> Generator[pathlib.Path, None, None]:
  """Gives a path to write a file or folder to; then it is moved to `target`.

  Whatever fails before leaves nothing at `target`, and nothing beside it.

  Raises:
    FileExistsError: if there is something at `target`.
    ValueError: if it is an address that nothing here can write to.
  """
  text = os.fspath(target)
  scheme, _, rest = text.partition('://')
  if not rest or scheme == 'file':
    path = pathlib.Path(rest or text).expanduser()
    _check_free(epath.Path(path))
    with _beside(path) as part:
      yield part
    return
  remote = _remote(text, scheme)
  with tempfile.TemporaryDirectory() as folder:
    part = pathlib.Path(folder) / remote.name
    yield part
    _upload(part, remote)


@contextlib.contextmanager
def _beside(path: pathlib.Path) -> Generator[pathlib.Path, None, None]:
  path.parent.mkdir(parents=True, exist_ok=True)
  # In the same folder: a rename within a file system takes no time.
  folder = pathlib.Path(tempfile.mkdtemp(
      dir=path.parent, prefix=f'.{path.name}.'))
  try:
    yield folder / path.name
    _check_free(epath.Path(path))
    os.rename(folder / path.name, path)
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def _remote(text: str, scheme: str) -> epath.Path:
  if scheme not in _BACKENDS:
    raise ValueError(
        f'{text} cannot be written to: only paths of this machine and '
        f'{", ".join(f"{name}://" for name in _BACKENDS)} can. Write a file '
        'here, and copy it.')
  path = epath.Path(text)
  try:
    _check_free(path)
  except ImportError as error:
    raise ValueError(
        f'{text} cannot be written to: {error}. Install what reaches it '
        f'(pip install {_BACKENDS[scheme]}), or write a file here, and copy '
        'it.') from error
  return path


def _check_free(path: epath.Path) -> None:
  if path.exists():
    raise FileExistsError(
        f'{path} exists already. Remove it, or name another.')


def _upload(part: pathlib.Path, target: epath.Path) -> None:
  """Copies a file or a folder; takes away what an error leaves of it."""
  try:
    if part.is_file():
      target.parent.mkdir(parents=True, exist_ok=True)
      epath.Path(part).copy(target)
      return
    for path in sorted(part.rglob('*')):
      if path.is_file():
        there = target / path.relative_to(part).as_posix()
        there.parent.mkdir(parents=True, exist_ok=True)
        epath.Path(path).copy(there)
  except BaseException:
    if target.is_dir():
      target.rmtree()
    elif target.exists():
      target.unlink()
    raise
