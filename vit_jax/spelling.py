"""Paths that exist under a name that looks the same, or almost.

macOS stores decomposed names (NFD), people type composed ones (NFC); cameras
write `.JPG`, and programs that copy may write `.jpg`.
"""

from collections.abc import Callable, Mapping, Sequence
import os
import unicodedata

from vit_jax import atomic_files

# Returns the names in a folder by their `plain` form.
Listing = Callable[[str], Mapping[str, Sequence[str]]]


def plain(name: str) -> str:
  """Returns a name without its Unicode normalisation and case."""
  return unicodedata.normalize(
      'NFC', unicodedata.normalize('NFC', name).casefold())


def list_plain(folder: str) -> Mapping[str, Sequence[str]]:
  """Returns the names in a folder by their `plain` form."""
  found: dict[str, list[str]] = {}
  for name in os.listdir(folder or '.') if os.path.isdir(folder or '.') else ():
    found.setdefault(plain(name), []).append(name)
  return found


def alike(path: str, *, listing: Listing = list_plain) -> list[str]:
  """Returns existing local paths that differ from a path in `plain` form only.

  For many paths, `listing` should be cached. The parts of the path that exist
  are taken as they are.
  """
  folder, name = os.path.split(path)
  if atomic_files.is_remote(path) or not name:
    return []
  folders = [folder] if os.path.isdir(folder or '.') else alike(
      folder, listing=listing)
  return [other for one in folders for other in sorted(
      os.path.join(one, name) for name in listing(one).get(plain(name), ()))
          if os.path.exists(other)]  # Not a broken link.


def hint(path: str) -> str:
  """Returns a sentence that names a path like one that is missing, or ''."""
  found = alike(os.path.abspath(os.path.expanduser(path)))
  return f' {describe(path, found[0])}' if found else ''


def describe(path: str, other: str) -> str:
  """Returns how an existing path differs from one with the same plain form."""
  same = unicodedata.normalize('NFC', path) == (
      unicodedata.normalize('NFC', other))
  by = 'Unicode normalisation (NFC and NFD)' if same else 'upper and lower case'
  return f'{other} exists, whose name differs in {by}.'
