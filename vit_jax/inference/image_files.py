"""Finds image files, and reports the ones that cannot be read."""

import collections
from collections.abc import Generator, Iterable, Sequence
import contextlib
import glob
import itertools
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
from vit_jax import spelling
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import tables

_MAX_ERRORS = 20  # Printed to the terminal.

Labels = dict[str, Any]  # Of a row of a table, by column.


def find(
    paths: Sequence[str], config: columns_lib.LabelConfig = columns_lib.DEFAULT,
) -> tuple[dict[str, list[Labels]], dict[str, str]]:
  """Returns image files with their labels, and an error per missing path.

  Files are in sorted order within a folder. Each is returned once, with the
  labels of all its rows in tables, or with empty ones; those that rows of
  tables name by several paths, once for each. A path to a file may have any
  name; folders and globs contribute the files with an image suffix.

  Args:
    paths: files, folders (searched recursively), globs, or tables of images,
      which may have labels.
    config: roles of the columns of tables.

  Raises:
    OSError: the first error, if no path has an image.
    ValueError: if a folder or glob has none, or a table is malformed.
  """
  rows_of: dict[str, list[Labels]] = {}
  failed: dict[str, OSError] = {}
  for text in paths:
    try:
      for path, rows in _expand(text, config).items():
        rows_of.setdefault(path, []).extend(rows)
    except OSError as error:
      failed[text] = error
  if failed and not rows_of:
    raise next(iter(failed.values()))
  found: dict[str, list[Labels]] = {}
  known = {_canonical(path) for path, rows in rows_of.items() if rows}
  for path, rows in rows_of.items():
    if not rows:
      key = _canonical(path)
      if key in known:
        continue
      known.add(key)
    found[path] = rows or [{}]
  return found, {
      path: schema.words(error).removeprefix(f'{path}: ')
      for path, error in failed.items()}


def _canonical(path: str) -> str:
  return path if atomic_files.is_remote(path) else os.path.realpath(path)


def interleave(paths: Iterable[str]) -> list[str]:
  """Returns one file of each folder in turn, such as of each class."""
  folders: dict[str, list[str]] = {}
  for path in paths:
    folders.setdefault(os.path.dirname(path), []).append(path)
  turns = itertools.zip_longest(*folders.values())
  return [path for turn in turns for path in turn if path is not None]


def _expand(
    text: str, config: columns_lib.LabelConfig) -> dict[str, list[Labels]]:
  """Returns the images at a path, with the labels of the rows of a table."""
  files.check_address(text, where='an image')
  # Only addresses may contain '://' for epath.
  path = epath.Path(text if atomic_files.is_remote(text) else
                    os.path.expanduser(text).replace('://', ':/'))
  if path.suffix.lower() in files.TABLE_SUFFIXES and path.exists():
    return tables.read_rows(path, config)
  others: collections.Counter[str] = collections.Counter()
  if path.is_dir():
    names, others = files.list_files(path, '.')
    found = sorted(os.path.join(path, name.removeprefix('./'))
                   for name in names)
  elif path.exists():
    found = [os.fspath(path)]
  else:
    matches = glob.glob(os.path.expanduser(text), recursive=True)
    visible = [match for match in matches if os.path.isfile(match)
               and files.is_visible(match, os.path.expanduser(text))]
    found = sorted(filter(files.is_image, visible))
    others.update(map(
        files.suffix_of, itertools.filterfalse(files.is_image, visible)))
    if not glob.has_magic(text):
      raise FileNotFoundError(
          f'{text}: no such file or folder.{spelling.hint(text)}')
    if not matches:
      raise ValueError(f'{text}: no file matches this pattern.')
  if not found:
    but = f', but {files.describe(others)}' if others else ''
    raise ValueError(
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
    path = str(image)
    self.errors[path] = schema.words(error).removeprefix(
        f'{path}: ') or type(error).__name__  # MemoryError has no message.
    self.advance(1)

  def report(self) -> int:
    """Prints the images without a result; returns the exit status."""
    for path, error in list(self.errors.items())[:_MAX_ERRORS]:
      console_lib.print_lines(escape.line(f'no result for {path}: {error}'))
    if len(self.errors) > _MAX_ERRORS:
      print(f'... and {len(self.errors) - _MAX_ERRORS:,} more')
    if self.errors:
      print(f'{console_lib.format_count(len(self.errors), "image")} without a '
            'result')
    return int(bool(self.errors))

  def none_readable(self) -> ValueError:
    """Returns the error for a command whose images are all unreadable."""
    self.report()  # With the reasons.
    return ValueError('None of the images has a result.')
