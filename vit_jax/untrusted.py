"""Opens files of unknown origin, if they are regular files.

Reading a pipe or a device may block or never end.
"""

import os
import pathlib
import stat

from etils import epath


def check_regular(path: epath.PathLike) -> None:
  """Raises a ValueError if a local path is not a file; follows links."""
  if '://' in os.fspath(path):
    return
  mode = os.stat(path).st_mode
  if not stat.S_ISREG(mode):
    kind = ('a folder' if stat.S_ISDIR(mode) else
            'a pipe' if stat.S_ISFIFO(mode) else 'a device or a socket')
    raise ValueError(
        f'{os.fspath(path)} is {kind}, but a regular file was expected. '
        'Replace or remove it.')


def check_folder(folder: epath.PathLike) -> None:
  """Raises a ValueError if a local folder contains pipes or devices."""
  if '://' not in os.fspath(folder):
    for path in pathlib.Path(folder).rglob('*'):
      if path.exists() and not path.is_dir():
        check_regular(path)


def read_bytes(path: epath.PathLike) -> bytes:
  """Returns the content of a regular file."""
  check_regular(path)
  return epath.Path(path).read_bytes()


def read_text(path: epath.PathLike) -> str:
  """Returns a regular text file.

  Raises:
    ValueError: if it is not regular, or not UTF-8.
  """
  try:
    return read_bytes(path).decode('utf-8-sig')  # Spreadsheets write a BOM.
  except UnicodeDecodeError as error:
    raise ValueError(
        f'{path} is not UTF-8 text ({error}). Save it as UTF-8.') from error
