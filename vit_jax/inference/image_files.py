"""Finds image files, and reports the ones that cannot be read."""

import collections
from collections.abc import Generator, Sequence
import contextlib
import glob
import os
import sys
from typing import Any
import warnings

from etils import epath
import rich.console
import rich.progress

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax import escape
from vit_jax import schema
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import tables
from vit_jax.exceptions import NotFoundError
from vit_jax.exceptions import UserError

_MAX_ERRORS = 20  # Printed to the terminal.

Labels = dict[str, Any]  # Of a row of a table, by column.


def find(
    paths: Sequence[str],
    configs: Sequence[columns_lib.LabelConfig] = (columns_lib.DEFAULT,),
) -> tuple[dict[str, list[Labels]], dict[str, str]]:
  """Returns image files with their labels, and an error per missing path.

  Each file is returned once, with the labels of all its rows in tables, or with
  empty ones. A path to a file may have any name; folders and globs contribute
  the files with an image suffix, in sorted order.

  Args:
    paths: files, folders (searched recursively), globs, or tables of images,
      which may have labels.
    configs: roles of the columns of tables; see `tables.read_rows`.

  Raises:
    OSError: the first error, if no path has an image.
    UserError: if a folder or glob has none, or a table is malformed.
  """
  found: dict[str, list[Labels]] = {}
  first: dict[str, str] = {}  # Of the paths that name a file.
  failed: dict[str, OSError] = {}
  for text in paths:
    try:
      for path, rows in _expand(text, configs).items():
        same = first.setdefault(atomic_files.absolute(path), path)
        found.setdefault(same, []).extend(rows)
    except OSError as error:
      failed[text] = error
  if failed and not found:
    raise next(iter(failed.values()))
  return {path: rows or [{}] for path, rows in found.items()}, {
      path: _words(path, error) for path, error in failed.items()}


def holds_several(path: str | os.PathLike) -> bool:
  """Whether a path is not that of an image: a folder, a table, a glob."""
  found = epath.Path(path).expanduser()
  return found.is_dir() or found.suffix.lower() in files.TABLE_SUFFIXES or (
      glob.has_magic(os.fspath(path)) and not found.exists())


def _words(path: str, error: Exception) -> str:
  """Returns the message of an error without the path at its start."""
  return schema.words(error).removeprefix(
      f'{path}: ') or type(error).__name__  # MemoryError has no message.


def _expand(
    text: str, configs: Sequence[columns_lib.LabelConfig],
) -> dict[str, list[Labels]]:
  """Returns the images at a path, with the labels of the rows of a table."""
  files.check_address(text, where='an image')
  path = epath.Path(text).expanduser()
  others: collections.Counter[str] = collections.Counter()
  if path.suffix.lower() in files.TABLE_SUFFIXES and path.exists():
    return tables.read_rows(path, *configs)
  if path.is_dir():
    names, others = files.list_files(path)
    found = sorted(os.fspath(path / name) for name in names)
  elif path.exists():
    found = [os.fspath(path)]
  elif glob.has_magic(text):
    pattern = os.fspath(path)
    found = sorted(name for name in glob.glob(pattern, recursive=True)
                   if files.is_image(name) and files.is_visible(name, pattern))
  else:
    raise NotFoundError(f'{text}: no such file or folder.')
  if not found:
    but = f', but {files.describe(others)}' if others else ''
    raise UserError(
        f'{text}: no image found{but}. Image suffixes are '
        f'{", ".join(sorted(files.IMAGE_SUFFIXES)[:8])}, ...; pass other '
        'files by name.')
  if others:
    print(escape.line(
        f'note: not read in {text}: {files.describe(others)}'),
        file=sys.stderr, flush=True)
  return {path: [] for path in found}


@contextlib.contextmanager
def ignore_pillow_warnings() -> Generator[None, None, None]:
  """Hides Pillow's warnings, such as broken EXIF blocks; main thread only."""
  with warnings.catch_warnings():
    warnings.filterwarnings('ignore', module=r'PIL(\.|$)')
    yield


class ReadProgress:
  """A progress bar that collects error messages by path in `errors`."""

  def __init__(self, total: int, errors: dict[str, str] | None = None):
    """Starts with the errors of `find`."""
    self.errors = dict(errors or {})
    console = rich.console.Console(stderr=True)
    self._bar = rich.progress.Progress(
        *rich.progress.Progress.get_default_columns(),
        rich.progress.MofNCompleteColumn(), console=console, transient=True,
        disable=not console.is_terminal, refresh_per_second=2)
    self._task = self._bar.add_task('images', total=total)
    self._context = contextlib.ExitStack()

  def __enter__(self) -> 'ReadProgress':
    self._context.enter_context(ignore_pillow_warnings())
    self._context.enter_context(self._bar)
    return self

  def __exit__(self, *exception: object) -> None:
    self._context.close()

  def advance(self, count: int) -> None:
    """Counts images that are done."""
    self._bar.advance(self._task, count)

  def add_error(self, image: Any, error: Exception) -> None:
    """Records an image that has no result."""
    self.errors[str(image)] = _words(str(image), error)
    self.advance(1)

  def report(self) -> int:
    """Prints the images without a result; returns the exit status."""
    for path, error in list(self.errors.items())[:_MAX_ERRORS]:
      console_lib.print_lines(escape.line(f'no result for {path}: {error}'))
    if self.errors:
      print(console_lib.format_count(len(self.errors), 'image')
            + ' without a result')
    return int(bool(self.errors))

  def none_readable(self) -> UserError:
    """Returns the error for a command whose images are all unreadable."""
    self.report()  # With the reasons.
    return UserError('None of the images has a result.')
