"""Paths that exist under a name that looks the same, or almost.

macOS stores decomposed names (NFD), people type composed ones (NFC); cameras
write `.JPG`, and programs that copy may write `.jpg`.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
import functools
import os
import unicodedata

from vit_jax import atomic_files


def plain(name: str) -> str:
  """Returns a name without its Unicode normalisation and case."""
  return unicodedata.normalize(
      'NFC', unicodedata.normalize('NFC', name).casefold())


class Finder:
  """Finds files whose names may differ in `plain` form; lists folders once."""

  def __init__(self) -> None:
    self._listing = functools.cache(_list_plain)
    self._path_of: dict[str, str] = {}

  def alike(self, path: str) -> list[str]:
    """Returns existing local paths of the same plain form, sorted.

    The parts of the path that exist are taken as they are.
    """
    folder, name = os.path.split(path)
    if atomic_files.is_remote(path) or not name:
      return []
    folders = [folder] if os.path.isdir(folder or '.') else self.alike(folder)
    return [other for one in folders for other in sorted(
        os.path.join(one, name)
        for name in self._listing(one).get(plain(name), ()))
            if os.path.exists(other)]  # Not a broken link.

  def find(self, path: str) -> str:
    """Returns the only file like a path, unless another path found it, or ''.
    """
    found = self.alike(path)
    return found[0] if len(found) == 1 and self._path_of.setdefault(
        found[0], path) == path else ''

  def taken(self, paths: Iterable[str]) -> list[str]:
    """Returns the paths that found a file which is itself one of `paths`."""
    return [self._path_of[path] for path in sorted(
        self._path_of.keys() & {*paths} if self._path_of else ())]

  def hint(self, path: str) -> str:
    """Returns a sentence on a file like a path that is missing, or ''."""
    found = self.alike(path)
    if not found:
      return ''
    same = unicodedata.normalize('NFC', path) in (
        unicodedata.normalize('NFC', other) for other in found)
    return (f' {" and ".join(found)} exist{"s" * (len(found) == 1)}; the name '
            'differs in ' + ('Unicode normalisation (NFC and NFD).' if same
                             else 'upper and lower case.'))


def _list_plain(folder: str) -> Mapping[str, Sequence[str]]:
  found: dict[str, list[str]] = {}
  for name in os.listdir(folder or '.') if os.path.isdir(folder or '.') else ():
    found.setdefault(plain(name), []).append(name)
  return found


def hint(path: str) -> str:
  """Returns a sentence that names a path like one that is missing, or ''."""
  return Finder().hint(os.path.abspath(os.path.expanduser(path)))


def match(names: Set[str], others: Set[str]) -> dict[str, str]:
  """Returns the other name for each name that has no equal one.

  Both have the same plain form, which no third name has.
  """
  if names <= others:
    return {}
  alike: dict[str, list[str]] = {}
  for name in names | others:
    alike.setdefault(plain(name), []).append(name)
  pairs = ({*pair} for pair in alike.values() if len(pair) == 2)
  return {name: other for pair in pairs for name in pair & names - others
          for other in pair & others - names}
