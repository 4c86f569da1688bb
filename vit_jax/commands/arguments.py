"""What several commands ask for: a model, pictures, and what became of them."""

import argparse
import collections
from collections.abc import Generator, Iterator, Mapping, Sequence
import contextlib
import copy
import functools
import glob
import os
import pathlib
from typing import Any
import warnings

from etils import epath
from PIL import Image
import rich.console
import rich.progress

from vit_jax import schema
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.data import beam_runner
from vit_jax.data.fingerprints import hash_index
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import limits
from vit_jax.inference import images as images_lib
from vit_jax.inference import load as load_lib
from vit_jax.inference import model as model_lib

MAX_ERRORS = 20  # Named on the screen; a file has them all.


def add_model(
    parser: argparse.ArgumentParser, *, flag: str = '--model',
) -> None:
  """Adds the flags that say which model.

  Args:
    parser: of the command.
    flag: what names the model; `load` reads '--model'.
  """
  parser.add_argument(
      flag, required=True, metavar='PATH',
      help='a workdir or checkpoint of ours, an .npz, a .safetensors, a state '
      'dict of PyTorch, or a folder of one; also gs://, https:// and '
      'hf://user/model')
  add_which(parser)
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='what the weights do not say, for example num_heads=4 or '
      'resolution=384; any key of the section model, and of its preprocessing')


def load(args: argparse.Namespace) -> model_lib.Model:
  """Returns the model that `add_model`'s flags name."""
  return load_lib.load(
      args.model, which=args.which, **overrides(args.set))


def add_which(parser: argparse.ArgumentParser) -> None:
  """Adds the flag that says which of a workdir's checkpoints."""
  parser.add_argument(
      '--which', choices=checkpoint_paths.WHICH, default=checkpoint_paths.LATEST,
      help='which checkpoint of a workdir (default: %(default)s)')


def add_likeness(
    parser: argparse.ArgumentParser, default: similarity.Likeness) -> None:
  """Adds the flags that say which pictures are near-duplicates."""
  parser.add_argument(
      '--max-distance', type=int, default=default.max_distance, metavar='BITS',
      help='of 64, that hashes of near-duplicates may differ in, at most '
      f'{hash_index.MAX_DISTANCE} (default: %(default)s)')
  parser.add_argument(
      '--min-similarity', type=float, default=default.min_similarity,
      metavar='R', help='correlation of the pixels of near-duplicates, at most '
      '1 (default: %(default)s)')


def overrides(
    texts: Sequence[str], *, flag: str = '--set',
    onto: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
  """Returns KEY=VALUE texts as keywords, typed later where they are used.

  Args:
    texts: a key with a dot, 'table.label=breed', is one of a section within.
    flag: that they were given by.
    onto: keywords that there are already.
  """
  result: dict[str, Any] = copy.deepcopy(dict(onto or {}))
  for text in texts:
    key, value = schema.parse_assignment(text, usage=f'{flag} takes KEY=VALUE')
    *sections, last = key.split('.')
    inner = result
    for name in sections:
      inner = inner.setdefault(name, {})
      if not isinstance(inner, dict):
        raise ValueError(f'{flag}={text}: {name} is {inner!r}, no section.')
    inner[last] = schema.convert(value, Any, where=f'{flag}={key}')
  return result


def add_data(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that `data_settings` reads, and --source."""
  parser.add_argument(
      '--source', required=True, metavar='DATA',
      help='any data set that data.source names: a folder, a TFDS name, ...')
  parser.add_argument(
      '--data-dir', default='', metavar='DIR',
      help='TFDS directory (default: $TFDS_DATA_DIR or ~/tensorflow_datasets)')
  parser.add_argument(
      '--set', action='append', default=[], metavar='KEY=VALUE',
      help='any other key of the section data: table.label=breed')


def data_settings(args: argparse.Namespace) -> dict[str, Any]:
  """Returns keys of the section `data` that `add_data`'s flags give."""
  return {'data_dir': args.data_dir, **overrides(args.set)}


@contextlib.contextmanager
def data_flags() -> Iterator[None]:
  """Has errors name the flags of `add_data`, not those of a config."""
  try:
    yield
  except ValueError as error:
    error.args = tuple(
        functools.reduce(lambda text, pair: text.replace(*pair), (
            ('--config.data.source=', '--source='),
            ('--config.data.data_dir=', '--data-dir='),
            ('--config.data.', '--set=')), arg)
        if isinstance(arg, str) else arg for arg in error.args)
    raise


def add_runner(parser: argparse.ArgumentParser) -> None:
  """Adds the flag that says where a pipeline runs."""
  parser.add_argument(
      '--runner', default=beam_runner.DIRECT, metavar='NAME',
      help="an Apache Beam runner, with Beam's own flags after --, or 'local': "
      'in this process, without Beam (default: %(default)s, which is this '
      'machine; of all its cores with -- --direct_num_workers=0 '
      '--direct_running_mode=multi_processing)')


def add_pictures(
    parser: argparse.ArgumentParser, *, required: bool = True,
    batch_size: int = 32,
) -> None:
  """Adds the arguments that `find` reads."""
  parser.add_argument(
      'paths', nargs='+' if required else '*', metavar='PATH',
      help='pictures: files, folders with all below them, or globs')
  parser.add_argument(
      '--batch-size', type=int, default=batch_size, metavar='N',
      help='pictures at a time (default: %(default)s)')


def find(
    paths: Sequence[str], errors: dict[str, str] | None = None,
) -> list[str]:
  """Returns the files of pictures, each once, those of a folder sorted.

  A file that is named is taken whatever it is called; of a folder or a glob,
  those that are called as pictures are. Of `./a.png` and `a.png` the first is
  kept; a link to a file is a picture of its own, with a row of its own.

  Args:
    paths: files, folders with all below them, or globs.
    errors: takes why there is nothing at a path, or a folder cannot be read, if
      there are pictures elsewhere; by default, the first is raised.

  Raises:
    FileNotFoundError: if there is nothing at a path.
    PermissionError: if a folder cannot be read.
    ValueError: if there is no picture there.
  """
  found: dict[str, str] = {}  # By what is the same, however it is spelt.
  failed: dict[str, OSError] = {}
  real_folder = functools.cache(os.path.realpath)
  for text in paths:
    try:
      for path in _find(text, failed):
        folder, name = os.path.split(path)
        found.setdefault(
            path if '://' in path else os.path.join(real_folder(folder), name),
            path)
    except OSError as error:
      failed[text] = error
  if failed and (errors is None or not found):
    raise next(iter(failed.values()))
  if errors is not None:
    errors |= {path: schema.words(error).removeprefix(f'{path}: ')
               for path, error in failed.items()}
  return list(found.values())


def _find(text: str, failed: dict[str, OSError]) -> list[str]:
  """Returns the pictures at a path; keeps folders that cannot be read."""
  path, before = epath.Path(text).expanduser(), len(failed)
  pattern = os.path.expanduser(text)
  if path.is_dir():
    files = sorted(
        os.fspath(p) for p in _below(path, failed) if _is_picture(p))
  elif path.exists():
    files = [os.fspath(path)]
  else:
    files = sorted(p for p in glob.glob(pattern, recursive=True)
                   if os.path.isfile(p) and _is_picture(p))
    if not files and not glob.has_magic(text):
      raise FileNotFoundError(f'{text}: there is no such file or folder.')
  if not files and len(failed) == before:
    if glob.has_magic(text) and not glob.glob(pattern, recursive=True):
      raise ValueError(f'{text}: no file matches it. Is the folder right?')
    raise ValueError(
        f'{text}: there is no picture. Files are known by their endings: '
        f'{", ".join(sorted(_endings())[:8])}, ... Name a file itself if it '
        'is called otherwise.')
  return files


def check_suffix(path: str, suffixes: Sequence[str]) -> None:
  """Raises if a file to write is called as no format, or is there already.

  Raises:
    FileExistsError: if there is something at `path`.
    ValueError: if it has another ending.
  """
  if path and not path.endswith(tuple(suffixes)):
    raise ValueError(
        f'{path} must end with {" or ".join(suffixes)}: the ending says the '
        'format.')
  if path:
    check_free(path)


def check_free(path: str) -> None:
  """Raises if there is something at a path, before anything is computed.

  Raises:
    FileExistsError: naming it.
  """
  if '://' not in path and epath.Path(path).exists():
    raise FileExistsError(
        f'{path}: there is something already. Remove it, or name another.')


def counted(count: int, noun: str) -> str:
  """Returns '1 picture' or '1,024 pictures'."""
  return f'{count:,} {noun}' + 's' * (count != 1)


def printable(text: str) -> str:
  """Returns a path as any terminal takes it: its name need not be UTF-8."""
  return text.encode('utf-8', 'backslashreplace').decode('utf-8')


@contextlib.contextmanager
def quiet_pictures() -> Generator[None, None, None]:
  """Keeps what Pillow thinks of a picture from the screen.

  A defective EXIF block or an odd palette spoils no pixel; a picture that
  cannot be read is an error, which is named. In the main thread alone: the
  filter is that of all threads.
  """
  with warnings.catch_warnings():
    warnings.filterwarnings('ignore', module=r'PIL(\.|$)')
    yield


class Reading:
  """A progress bar, and the pictures that could not be read.

  Attributes:
    errors: why each could not, by its file.
  """

  def __init__(self, total: int, errors: dict[str, str] | None = None):
    self.errors = dict(errors or {})  # What `find` could not.
    console = rich.console.Console(stderr=True)
    self._bar = rich.progress.Progress(
        *rich.progress.Progress.get_default_columns(),
        rich.progress.MofNCompleteColumn(), console=console, transient=True,
        disable=not console.is_terminal, refresh_per_second=2)
    self._task = self._bar.add_task('pictures', total=total)
    self._quiet = quiet_pictures()

  def __enter__(self) -> 'Reading':
    self._quiet.__enter__()
    self._bar.start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._bar.stop()
    self._quiet.__exit__(None, None, None)

  def advance(self, count: int) -> None:
    """Counts pictures that are done."""
    self._bar.advance(self._task, count)

  def failed(self, picture: images_lib.Picture, error: Exception) -> None:
    """Keeps a picture that could not be read."""
    path = str(picture)
    # The file is named beside it.
    self.errors[path] = schema.words(error).removeprefix(
        f'{path}: ') or type(error).__name__  # Of MemoryError, all there is.
    self.advance(1)

  def report(self) -> int:
    """Names what could not be read; returns the exit status."""
    for path, error in list(self.errors.items())[:MAX_ERRORS]:
      print(printable(f'could not read {path}: {error}'))
    if len(self.errors) > MAX_ERRORS:
      print(f'... and {len(self.errors) - MAX_ERRORS:,} more')
    if self.errors:
      print(f'{counted(len(self.errors), "picture")} could not be read')
    return int(bool(self.errors))


def _below(
    folder: epath.Path, failed: dict[str, OSError],
) -> Iterator[epath.Path]:
  """Yields all files of a folder, each folder's once, however links lead to it.

  Those that are hidden are no one's pictures.
  """
  waiting, seen = collections.deque([folder]), set()
  while waiting:
    folder = waiting.popleft()
    real = os.path.realpath(folder)
    if real in seen:
      continue
    seen.add(real)
    try:
      inside = [(path, path.is_dir()) for path in sorted(folder.iterdir())
                if not path.name.startswith('.')]
    except OSError as error:
      failed[os.fspath(folder)] = error
      continue
    yield from (path for path, is_dir in inside if not is_dir)
    for path in (path for path, is_dir in inside if is_dir):
      if os.path.islink(path):
        waiting.append(path)  # Last: a folder goes by its own name first.
      else:
        waiting.appendleft(path)


@functools.cache
def _endings() -> set[str]:
  Image.init()
  return {'.npy'} | {ending for ending, form in Image.EXTENSION.items()
                     if form in limits.FORMATS and form in Image.OPEN}


def _is_picture(path: Any) -> bool:
  return pathlib.PurePath(path).suffix.lower() in _endings()
