"""Listing of folders, and reading of image files."""

import dataclasses
import os
import pathlib
from typing import Any

from etils import epath

IMAGE_SUFFIXES = frozenset({
    '.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.apng', '.webp', '.bmp', '.gif',
    '.ppm', '.pgm', '.pbm', '.tif', '.tiff', '.avif', '.jp2', '.npy'})

# Created by macOS archives, Synology thumbnails, Windows and Linux volumes.
_SYSTEM_FOLDERS = frozenset({
    '__MACOSX', '@eaDir', '$RECYCLE.BIN', 'System Volume Information',
    'lost+found'})


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFiles:
  """Image files by path, relative to the root or absolute."""
  root: str
  paths: tuple[str, ...]

  def read(self, row: int) -> bytes:
    return (epath.Path(self.root) / self.paths[row]).read_bytes()

  def key(self, row: int) -> str:
    return self.paths[row]


def is_image(value: Any) -> bool:
  """Whether a value looks like the path of an image."""
  return isinstance(value, str) and (
      os.path.splitext(value.strip())[1].lower() in IMAGE_SUFFIXES)


def names_in(path: epath.Path) -> list[str]:
  """Returns the names in a folder; a million files take a second."""
  if '://' in os.fspath(path):
    return [entry.name for entry in path.iterdir()]
  return os.listdir(path)


def subfolders(path: epath.Path) -> list[str]:
  """Returns the names of the visible subfolders, sorted."""
  return [name for name, is_folder in _entries(path) if is_folder]


def list_images(root: epath.Path, folder: str) -> list[str]:
  """Returns the paths of all images below `root/folder`, relative to the root.
  """
  paths = []
  for name, is_folder in _entries(root / folder):
    path = f'{folder}/{name}'
    if is_folder:
      paths += list_images(root, path)
    elif is_image(name):
      paths.append(path)
  return paths


def _entries(path: epath.Path) -> list[tuple[str, bool]]:
  """Returns the visible names in a folder, and which are folders, sorted.

  Omits system folders and links to a parent folder, which lead in a circle.
  """
  if '://' in os.fspath(path):
    # Asking a bucket for the kind of each object is slow: suffixes first.
    found = [(name, not is_image(name) and (path / name).is_dir())
             for name in names_in(path) if not name.startswith('.')]
  else:
    with os.scandir(path) as entries:
      found = [(entry.name, _is_folder(entry)) for entry in entries
               if not entry.name.startswith('.')]
  return sorted(
      (name, is_folder) for name, is_folder in found if not is_folder or not (
          name in _SYSTEM_FOLDERS or _is_parent(os.path.join(path, name))))


def _is_folder(entry: os.DirEntry) -> bool:
  # Follows links, but asks the file system for no image file's kind.
  linked = entry.is_symlink() and not is_image(entry.name)
  return entry.is_dir(follow_symlinks=linked)


def _is_parent(path: str) -> bool:
  """Whether a folder is a link to one of its parents."""
  return os.path.islink(path) and any(
      os.path.samefile(path, parent)
      for parent in pathlib.Path(path).absolute().parents)
