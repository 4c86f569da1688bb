"""Paths that exist under a name that looks the same, or almost.

macOS stores decomposed names (NFD), people type composed ones (NFC); cameras
write `.JPG`, and programs that copy may write `.jpg`.
"""

import os
import unicodedata

from vit_jax import atomic_files


def hint(path: str) -> str:
  """Returns a sentence on paths like one that is missing, or ''."""
  if atomic_files.is_remote(path):
    return ''
  path = os.path.abspath(os.path.expanduser(path))
  found = _alike(path)
  if not found:
    return ''
  same = _composed(path) in map(_composed, found)
  return (f' {" and ".join(found)} exist{"s" * (len(found) == 1)}; the name '
          'differs in ' + ('Unicode normalisation (NFC and NFD).' if same
                           else 'upper and lower case.'))


def _alike(path: str) -> list[str]:
  """Returns existing paths that differ in normalisation and case, sorted.

  The parts of the path that exist are taken as they are.
  """
  folder, name = os.path.split(path)
  if not name:
    return []
  folders = [folder] if os.path.isdir(folder) else _alike(folder)
  return [os.path.join(one, other) for one in folders if os.path.isdir(one)
          for other in sorted(os.listdir(one)) if _plain(other) == _plain(name)
          and os.path.exists(os.path.join(one, other))]  # Not a broken link.


def _composed(name: str) -> str:
  return unicodedata.normalize('NFC', name)


def _plain(name: str) -> str:
  return _composed(_composed(name).casefold())
