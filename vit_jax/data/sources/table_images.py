"""Where the images are that a table names."""

from collections.abc import Sequence
import os
from typing import Any

from etils import epath

from vit_jax.data.sources import class_folders as image_folder
from vit_jax.data.sources import rows

_USUAL_FOLDERS = frozenset({
    'images', 'image', 'imgs', 'img', 'photos', 'pictures', 'jpegimages'})


def is_image(value: Any) -> bool:
  """Whether a cell looks like the path of an image."""
  return isinstance(value, str) and (
      os.path.splitext(value.strip())[1].lower() in image_folder.IMAGE_SUFFIXES)


def locate(
    values: Sequence[Any], table: epath.Path, config: rows.TableConfig, *,
    split: str,
) -> list[str]:
  """Returns the paths of a table's images, all of which are there.

  Raises:
    ValueError: if some are not, with how many and the first of them.
  """
  empty = [i for i, value in enumerate(values)
           if not isinstance(value, str) or not value.strip()]
  if empty:
    raise ValueError(
        f'{len(empty):,} rows of {table} name no image (the first: row '
        f'{empty[0] + 1}).')
  names = [value.strip().replace('\\', '/') + config.suffix for value in values]
  present = _Present()
  root, suffix = _begin(names[:20], table, config, present, split)
  names = [name + suffix for name in names]
  start = os.fspath(root)
  # What leads out of the folder still begins with it: see `_relative`.
  found = [name if '://' in name else
           os.path.join(start, os.path.normpath(name)) for name in names]
  missing = [name for name, path in zip(names, found) if path not in present]
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(names):,} images of {table} are not there: '
        f'{", ".join(missing[:3])}{", ..." * (len(missing) > 3)}. Looked in '
        f'{root}. Say where relative paths begin '
        '(--config.data.table.folder=FOLDER) or how they end '
        '(--config.data.table.suffix=.jpg), or remove these rows.')
  return found


def _begin(
    names: Sequence[str], table: epath.Path, config: rows.TableConfig,
    present: '_Present', split: str,
) -> tuple[epath.Path, str]:
  """Returns where paths begin, and what they lack at their end.

  Of the table's folder and those in it, 'train/' beside train.csv or 'images/'
  beside labels.csv, the one that has most of the images.

  Raises:
    ValueError: if several have as many, and no name says which: '1.png' of
      train/ is another picture than that of test/.
  """
  root = table.parent / config.folder if config.folder else table.parent
  folders = [] if config.folder else image_folder.subfolders(root)
  suffixes = ['']
  if not config.suffix and not any(is_image(name) for name in names):
    suffixes += sorted(image_folder.IMAGE_SUFFIXES)  # Tables of 'id,label'.
  counts = {
      (folder, suffix): sum(
          os.fspath(root / folder / (name + suffix)) in present
          for name in names)
      for suffix in suffixes for folder in ('', *folders)}
  most = max(counts.values())
  best = [place for place, count in counts.items() if count == most]
  if not most:
    return root, ''
  # Where several have all of them: its own folder, or one that is called so.
  of_split = [(f, s) for f, s in best if split and _same_split(f, split)]
  usual = [(f, s) for f, s in best if f.lower() in _USUAL_FOLDERS]
  likely = [(f, s) for f, s in best if not f] or of_split or usual or best
  if len(likely) > 1:
    raise ValueError(
        f'Which images {table} means is not clear: {names[0]!r} and others are '
        f'there as {_places(likely, names[0])}. Say which: '
        '--config.data.table.folder=FOLDER, or '
        '--config.data.table.suffix=.jpg where it is their ends that differ.')
  (folder, suffix), = likely
  return root / folder, suffix


def _same_split(one: str, other: str) -> bool:
  """Whether two names mean a split: 'val' and 'validation' do."""
  validation = ('val', 'valid', 'validation')
  names = {rows.split_name(one), rows.split_name(other)}
  return len(names) == 1 or names <= set(validation)


def _places(places: Sequence[tuple[str, str]], name: str) -> str:
  return ' and '.join(
      f'{folder}/{name}{suffix}' if folder else f'{name}{suffix}'
      for folder, suffix in places[:3]) + ', ...' * (len(places) > 3)


class _Present:
  """Tells of files whether they are there; lists each folder once.

  To ask for each file would take minutes on a network.
  """

  def __init__(self):
    self._names: dict[str, frozenset[str]] = {}

  def __contains__(self, path: str) -> bool:
    folder, name = os.path.split(path)
    if folder not in self._names:
      place = epath.Path(folder)
      self._names[folder] = frozenset(
          image_folder.names_in(place) if place.is_dir() else ())
    return name in self._names[folder]
