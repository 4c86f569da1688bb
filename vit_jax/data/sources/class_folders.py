"""Image folders: a folder for each class, in train/ or by themselves.

What a folder means is guessed from names alone. Where the guess could be
wrong, and a run would train on something else than was meant, it is an error
that says which layout was expected.
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import os
from typing import Any

from etils import epath
import numpy as np

from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings as split_strings_lib

IMAGE_SUFFIXES = frozenset({
    '.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.apng', '.webp', '.bmp', '.gif',
    '.ppm', '.pgm', '.pbm', '.tif', '.tiff', '.avif', '.jp2', '.npy'})

# Of macOS's archives, of Synology (thumbnails), of Windows and Linux volumes.
_NO_CLASSES = frozenset({
    '__MACOSX', '@eaDir', '$RECYCLE.BIN', 'System Volume Information',
    'lost+found'})

# An image: its path relative to the root, and its class.
_Images = list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, eq=False)
class Files:
  """Image files with a class each."""
  root: str
  paths: tuple[str, ...]  # relative to the root
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.paths)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {'image': (epath.Path(self.root) / self.paths[index]).read_bytes(),
            'label': int(self.labels[index])}

  def label(self, index: int) -> int:
    return int(self.labels[index])

  def key(self, index: int) -> str:
    return self.paths[index]


def open_folder(root: epath.Path) -> protocol.DatasetSplits:
  """Opens a folder of images in either of the usual layouts.

  - `train/class/*.jpg`, beside other splits (`test`, `val`, ...) of any name;
  - `class/*.jpg`, without splits.

  Where `train` stands alone, or nothing is split, a hash of each path below
  the class folders' parent decides, which no added or removed file changes:
  10 % are `test`, and of a handful at least one, the rest is `train` (a class
  that would have no image left to train on stays in `train` whole).

  Images come in the order of a hash, so that a part of a split, 'train[:90%]',
  is a sample of it, as of what TFDS prepared, and not its first classes.

  Classes are numbered in the sorted order of their names, over all splits.
  Images may lie in deeper folders within a class. Hidden files, files that
  are no images by their suffix (in any case), images that lie in no class
  folder, links to a folder around them, and what systems make of themselves
  (`__MACOSX`) are passed over.

  Raises:
    ValueError: if there are no images, fewer than two classes, a class that
      is not in `train`, or splits without `train`.
  """
  if not root.is_dir():
    raise ValueError(
        f'There is no folder {root} (data.source). Expected {_layouts(root)}.')
  folders = subfolders(root)
  by_hash = True
  passed_over: list[str] = []
  if 'train' in folders and subfolders(root / 'train'):
    found = {split: _list_split(root, split) for split in folders}
    splits = {split: images for split, images in found.items()
              if images or split == 'train'}
    passed_over = [split for split in folders if split not in splits
                   and split_strings_lib.is_split_name(split)]
    by_hash = len(splits) == 1
    if by_hash:
      splits = _split_by_hash(splits['train'], below='train/')
  else:
    images = _list_split(root, '')
    _check_no_splits(images, root)
    _check_no_flat_splits(images, root)
    splits = _split_by_hash(images, below='')
  splits = {split: sorted(images, key=_place)
            for split, images in splits.items()}
  names = _check_classes(splits, root)
  number = {name: i for i, name in enumerate(names)}
  return protocol.DatasetSplits(
      {split: Files(os.fspath(root), tuple(path for path, _ in images),
                    np.array([number[name] for _, name in images], np.int32))
       for split, images in splits.items()},
      len(names), names, eval_split=split_strings_lib.choose_eval_split(list(splits)),
      description=_describe(
          root, names, splits) + ', chosen by a hash' * by_hash + ''.join(
          f'; {split}/ has no class folders, and is passed over'
          for split in passed_over))


def _place(image: tuple[str, str]) -> int:
  """Returns what an image is ordered by: its own name and its folder's."""
  return split_strings_lib.stable_hash('/'.join(image[0].split('/')[-2:]))


def subfolders(path: epath.Path) -> list[str]:
  """Returns the names of the visible folders in a folder, sorted."""
  if '://' in os.fspath(path):
    return sorted(entry.name for entry in path.iterdir()
                  if entry.is_dir() and not entry.name.startswith('.')
                  and entry.name not in _NO_CLASSES)
  return [name for name, is_folder in _entries(path) if is_folder]


def names_in(path: epath.Path) -> list[str]:
  """Returns the names in a folder: of a million files in a second."""
  if '://' in os.fspath(path):
    return [entry.name for entry in path.iterdir()]
  return os.listdir(path)


def _layouts(root: epath.Path) -> str:
  return f'{root}/train/CLASS/*.jpg, or {root}/CLASS/*.jpg'


def _list_split(root: epath.Path, split: str) -> _Images:
  """Returns the images of a split, sorted."""
  found = []
  for name in subfolders(root / split if split else root):
    relative = f'{split}/{name}' if split else name
    found += [(path, name) for path in _list_images(root, relative)]
  return found


def _list_images(root: epath.Path, relative: str) -> list[str]:
  paths = []
  for name, is_folder in _entries(root / relative):
    below = f'{relative}/{name}'
    if is_folder:
      paths += _list_images(root, below)
    elif _is_image(name):
      paths.append(below)
  return paths


def _is_image(name: str) -> bool:
  return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _entries(path: epath.Path) -> list[tuple[str, bool]]:
  """Returns the visible names in a folder, and which are folders, sorted.

  A link to a folder around it is passed over: it leads to other classes, and in
  a circle. So are folders that systems and NAS make of themselves.
  """
  if '://' in os.fspath(path):
    # The suffix first: to ask for the kind of each object is slow.
    found = [(name, not _is_image(name) and (path / name).is_dir())
             for name in names_in(path) if not name.startswith('.')]
    return sorted(found)
  # Asks the file system for no file's kind: it is in the listing.
  with os.scandir(path) as entries:
    found = [(entry.name, _is_folder(entry)) for entry in entries
             if not entry.name.startswith('.')]
  return sorted(
      (name, is_folder) for name, is_folder in found if not is_folder or not (
          name in _NO_CLASSES or _is_around(os.path.join(path, name))))


def _is_folder(entry: os.DirEntry) -> bool:
  linked = entry.is_symlink() and not _is_image(entry.name)
  return entry.is_dir(follow_symlinks=linked)


def _is_around(path: str) -> bool:
  """Whether a folder is a link to one that it lies in, however deep."""
  if not os.path.islink(path):
    return False
  target, above = os.path.realpath(path), os.path.abspath(path)
  while above != os.path.dirname(above):
    above = os.path.dirname(above)
    if os.path.realpath(above) == target:
      return True
  return False


def _split_by_hash(images: _Images, *, below: str) -> dict[str, _Images]:
  """Splits by the paths below a folder: to move that folder changes nothing."""
  held = {path for path, _ in images
          if split_strings_lib.is_held_out(path.removeprefix(below))}
  trained = {name for path, name in images if path not in held}
  test = {path for path, name in images if path in held and name in trained}
  if not test:  # Of a handful of images, the lowest hash is held out.
    counts = collections.Counter(name for _, name in images)
    test = set(sorted(
        (path for path, name in images if counts[name] > 1),
        key=lambda p: split_strings_lib.stable_hash(p.removeprefix(below)))[:1])
  return {'train': [image for image in images if image[0] not in test],
          'test': [image for image in images if image[0] in test]}


def _check_no_splits(images: _Images, root: epath.Path) -> None:
  """Raises where the folders that were taken for classes are splits.

  A class may be called `test` and hold images; a split holds folders only.
  """
  holds_images = {name for path, name in images if path.count('/') == 1}
  below: dict[str, set[str]] = {}
  for path, name in images:
    if name not in holds_images and split_strings_lib.is_split_name(name):
      below.setdefault(name, set()).add(path.split('/')[1])
  if not below:
    return
  there = ', '.join(
      f'{name}/ (with {_some(sorted(classes))})'
      for name, classes in below.items())
  train = next((n for n in below if n.lower().startswith('train')), None)
  todo = (f'Rename {train}/ to train/' if train else
          'Rename the folder to train on to train/')
  raise ValueError(
      f'{root} holds what look like splits, but no train/ with class folders: '
      f'{there}. Expected {_layouts(root)}. {todo}. If these names are '
      f'classes, move all class folders into {root}/train/.')


def _check_no_flat_splits(images: _Images, root: epath.Path) -> None:
  """Raises where nothing but splits was taken for classes: train/1.jpg."""
  names = sorted({name for _, name in images})
  if len(names) > 1 and all(map(split_strings_lib.is_split_name, names)):
    raise ValueError(
        f'{root} holds images in {", ".join(f"{n}/" for n in names)} and no '
        f'class folders in these. Expected {_layouts(root)}, or a table of '
        'labels: --config.data.source=FILE.csv. If these names are classes, '
        f'move their folders into {root}/train/.')


def _check_classes(
    splits: Mapping[str, _Images], root: epath.Path) -> tuple[str, ...]:
  """Returns the classes in order.

  Raises:
    ValueError: if they are not enough to train on.
  """
  names = sorted({name for images in splits.values() for _, name in images})
  if not names:
    flat = sum(map(_is_image, names_in(root)))
    found = (f'Found {flat:,} images in {root}, but none in a class folder, '
             'and no table of their labels' if flat else
             f'Found no images in {root}')
    raise ValueError(
        f'{found}. Expected {_layouts(root)}, with one of '
        f'the suffixes {" ".join(sorted(IMAGE_SUFFIXES))}. It holds: '
        f'{_some(sorted(p.name for p in root.iterdir())) or "nothing"}.')
  if len(names) == 1:
    raise ValueError(
        f'Found a single class folder, {names[0]!r}, in {root}; a classifier '
        f'needs two classes. Expected {_layouts(root)}. If the classes lie a '
        'level deeper, give the folder above them as data.source.')
  trained = {name for _, name in splits['train']}
  missing = [name for name in names if name not in trained]
  if missing:
    places = sorted(split for split, images in splits.items()
                    if any(name in missing for _, name in images))
    raise ValueError(
        f'{len(missing)} of {len(names)} classes in {root} have no image in '
        f'train/, only in {", ".join(f"{p}/" for p in places)}: '
        f'{_some(missing)}. A class is a folder of the same name in each '
        'split, upper and lower case included. Add images to train/, or '
        'remove these folders.')
  return tuple(names)


def _describe(
    root: epath.Path, names: Sequence[str], splits: Mapping[str, _Images],
) -> str:
  sizes = ', '.join(f'{split} {len(of):,}' for split, of in splits.items())
  return (f'{root}: a folder for each of {len(names):,} classes: '
          f'{_some(list(names))}; {sizes}')


def _some(names: list[str]) -> str:
  """Returns names for a message, without flooding it."""
  more = f', ... ({len(names)} in all)' if len(names) > 8 else ''
  return ', '.join(names[:8]) + more
