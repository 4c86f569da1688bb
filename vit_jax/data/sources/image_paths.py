"""Finding the image files that a table names."""

from collections.abc import Sequence
import os
from typing import Any

from etils import epath

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import image_files
from vit_jax.data.sources import table_source

_IMAGE_FOLDERS = frozenset({
    'images', 'image', 'imgs', 'img', 'photos', 'pictures', 'jpegimages'})
_VALIDATION = ('val', 'valid', 'validation')


def locate(
    cells: Sequence[Any], table: epath.Path, config: columns_lib.TableConfig,
    *, split: str = '',
) -> list[str]:
  """Returns the paths of a table's images, from its column of paths.

  Raises:
    ValueError: if images are missing, with their number and the first ones.
  """
  empty = [i for i, value in enumerate(cells)
           if not isinstance(value, str) or not value.strip()]
  if empty:
    raise ValueError(
        f'{len(empty):,} rows of {table} have no image path (the first: row '
        f'{empty[0] + 1}).')
  names = [value.strip().replace('\\', '/') + config.suffix for value in cells]
  files = _Files()
  root, suffix = _find_folder(names[:20], table, config, files, split)
  names = [name + suffix for name in names]
  paths = [name if '://' in name else
           os.path.join(os.fspath(root), os.path.normpath(name))
           for name in names]
  missing = [name for name, path in zip(names, paths) if path not in files]
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(names):,} images of {table} do not exist: '
        f'{", ".join(missing[:3])}{", ..." * (len(missing) > 3)}. Searched in '
        f'{root}. Set the folder that relative paths start from '
        '(--config.data.table.folder=FOLDER) or their suffix '
        '(--config.data.table.suffix=.jpg), or remove these rows.')
  return paths


def _find_folder(
    names: Sequence[str], table: epath.Path, config: columns_lib.TableConfig,
    files: '_Files', split: str,
) -> tuple[epath.Path, str]:
  """Infers the folder that paths start from, and a missing suffix.

  Candidates are the table's folder and its subfolders; the one with most of
  the images wins. Of several, the table's folder wins, then one called like
  the table's split, then `images/`.

  Raises:
    ValueError: if several remain: train/1.png and test/1.png differ.
  """
  root = table.parent / config.folder if config.folder else table.parent
  folders = [] if config.folder else image_files.subfolders(root)
  suffixes = ['']
  if not config.suffix and not any(map(image_files.is_image, names)):
    suffixes += sorted(image_files.IMAGE_SUFFIXES)  # Tables of 'id,label'.
  counts = {
      (folder, suffix): sum(
          os.fspath(root / folder / (name + suffix)) in files for name in names)
      for suffix in suffixes for folder in ('', *folders)}
  most = max(counts.values())
  if not most:
    return root, ''
  best = [place for place, count in counts.items() if count == most]
  for is_preferred in (
      lambda folder: not folder,
      lambda folder: bool(split) and _same_split(folder, split),
      lambda folder: folder.lower() in _IMAGE_FOLDERS):
    preferred = [place for place in best if is_preferred(place[0])]
    if preferred:
      best = preferred
      break
  if len(best) > 1:
    examples = [os.path.join(f, names[0] + s) for f, s in best[:3]]
    raise ValueError(
        f'The image paths of {table} are ambiguous: {names[0]!r} exists as '
        f'{" and ".join(examples)}{", ..." * (len(best) > 3)}. Set '
        '--config.data.table.folder=FOLDER, or --config.data.table.suffix=.jpg '
        'if only the suffixes differ.')
  (folder, suffix), = best
  return root / folder, suffix


def _same_split(one: str, other: str) -> bool:
  """Whether two names denote the same split; 'val' and 'validation' do."""
  names = {table_source.split_name(one), table_source.split_name(other)}
  return len(names) == 1 or names <= set(_VALIDATION)


class _Files:
  """Set of existing files; lists each folder once, which is fast on networks.
  """

  def __init__(self):
    self._names: dict[str, frozenset[str]] = {}

  def __contains__(self, path: str) -> bool:
    folder, name = os.path.split(path)
    if folder not in self._names:
      place = epath.Path(folder)
      self._names[folder] = frozenset(
          image_files.names_in(place) if place.is_dir() else ())
    return name in self._names[folder]
