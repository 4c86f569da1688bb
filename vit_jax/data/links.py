"""Images of two splits that links make the same file.

A training image that is also evaluated on raises accuracy without a message.
Paths that differ can only be one file if a folder or file is a link, which the
listing of a folder knows. So real paths are computed where there are links, or
for sources within each other, and opening other files takes no longer.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
import operator
import os

from etils import epath
from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax import atomic_files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True)
class Paths:
  """Paths of images, and where they may be links.

  Attributes:
    root: absolute folder of relative paths.
    paths: path of each row, relative to the root or absolute.
    folders: folders that hold links or may be reached by two paths.
  """
  root: str
  paths: Sequence[str]
  folders: frozenset[str]

  def __getitem__(self, row: int) -> str:
    return os.path.join(self.root, self.paths[row])

  def hashes(self, rows: '_Rows') -> UInt64[np.ndarray, '_']:
    """Returns the hash of the real path of each row."""
    real_folder = functools.cache(os.path.realpath)

    def real(path: str) -> str:
      if atomic_files.is_remote(path):
        return path
      folder, name = os.path.split(path)
      path = os.path.join(real_folder(folder), name)
      if folder in self.folders:
        while os.path.islink(path):  # `realpath` would look up each folder.
          folder, name = os.path.split(os.path.join(
              os.path.dirname(path), os.readlink(path)))
          path = os.path.join(real_folder(folder), name)
      return path

    return split_strings.stable_hashes(
        (real(self[row]) for row in rows.tolist()), len(rows))

  def may_share(self, other: 'Paths') -> bool:
    """Whether a path of another source may be the same file."""
    ours, theirs = (
        os.path.join(os.path.realpath(one.root), '') for one in (self, other))
    return bool(self.folders or other.folders) or (
        ours.startswith(theirs) or theirs.startswith(ours))


_Rows = Integer[np.ndarray, '_']
_Split = tuple[Paths, _Rows]


def find_shared(first: _Split, second: _Split) -> tuple[str, str] | None:
  """Returns a path of each split that are the same file, if there are any."""
  ours, theirs = (paths.hashes(rows) for paths, rows in (first, second))
  _, *places = np.intersect1d(ours, theirs, return_indices=True)
  if not len(places[0]):
    return None
  one, other = (paths[int(rows[place[0]])] for (paths, rows), place in zip(
      (first, second), places))
  return one, other


def find_shared_image(
    first: protocol.Source, second: protocol.Source,
) -> tuple[str, str] | None:
  """Returns `find_shared` of two selections, whose images may be no files."""
  for (one, rows), (other, others) in itertools.product(
      split_strings.leaves(first), split_strings.leaves(second)):
    if one.files and other.files and one.files[0].may_share(other.files[0]):
      pair = [(paths, own[indices]) for (paths, own), indices in (
          (one.files, rows), (other.files, others))]
      if found := find_shared(*pair):
        return found
  return None


def check_splits(splits: Mapping[str, protocol.Source], *, where: str) -> None:
  """Raises a ValueError if an image of two splits is one file."""
  for first, second in itertools.combinations(splits, 2):
    one, other = splits[first].files, splits[second].files
    if one and other and one[0].folders and (found := find_shared(one, other)):
      raise ValueError(
          f'{found[0]} ({first}) and {found[1]} ({second}) of {where} are the '
          'same file, by a link. Training images must not be evaluated on; '
          'remove the link from one of the splits.')


def check_files(
    paths: Sequence[os.PathLike], splits: Sequence[str], *, where: str,
) -> None:
  """Raises a ValueError if two splits have the same file, such as a tar."""
  first_of: dict[str, int] = {}
  for i, path in enumerate(paths):
    if atomic_files.is_remote(path):
      continue
    first = first_of.setdefault(os.path.realpath(path), i)
    if splits[first] != splits[i]:
      raise ValueError(
          f'{paths[first]} ({splits[first]}) and {path} ({splits[i]}) of '
          f'{where} are the same file, by a link. Training images must not be '
          'evaluated on; remove the link from one of the splits.')


def file_lookup(linked: set[str]) -> Callable[[str], bool]:
  """Returns a function that tests whether a file exists.

  It lists each folder once, which is fast on network file systems. `linked`
  collects folders that hold links or are reached by two paths.
  """
  first_of: dict[str, str] = {}

  @functools.cache
  def names(folder: str) -> frozenset[str]:
    path = epath.Path(folder)
    if not path.is_dir():
      return frozenset()
    if atomic_files.is_remote(folder):
      return frozenset(entry.name for entry in path.iterdir())
    entries = list(os.scandir(folder or '.'))
    first = first_of.setdefault(os.path.realpath(folder), folder)
    if first != folder or any(map(os.DirEntry.is_symlink, entries)):
      linked.add(folder)
    return frozenset(map(operator.attrgetter('name'), entries))

  return lambda path: os.path.basename(path) in names(os.path.dirname(path))
