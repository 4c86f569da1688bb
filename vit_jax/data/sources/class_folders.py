"""Image folders: one folder per class, with or without split folders.

The layout is inferred from names alone. Where the inference could be wrong, it
is an error that names the expected layout.
"""

from collections.abc import Mapping, Sequence
import os

from etils import epath
import numpy as np

from vit_jax.data.sources import image_files
from vit_jax.data.sources import label_rules
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings as split_strings_lib

_Images = list[tuple[str, str]]  # Path relative to the root, and class.


def open_folder(root: epath.Path) -> protocol.DatasetSplits:
  """Opens a folder of images in one of two layouts.

  - `train/CLASS/*.jpg`, beside other splits of any name;
  - `CLASS/*.jpg`, without splits.

  If there is no other split than `train`, a hash of each path below the class
  folders' parent holds out 10 % as `test`: added files move no other file. A
  class keeps an image in `train`.

  Images come in hash order, so that 'train[:90%]' is a sample of the split.
  Classes are numbered in the sorted order of their names, over all splits.
  Images may lie deeper within a class folder. Hidden files, other files, images
  outside class folders and system folders (`__MACOSX`) are ignored.

  Raises:
    ValueError: if there are no images, fewer than two classes, a class that
      is not in `train`, or splits without `train`.
  """
  if not root.is_dir():
    raise ValueError(
        f'There is no folder {root} (data.source). Expected {_layouts(root)}.')
  folders = image_files.subfolders(root)
  ignored: list[str] = []
  if 'train' in folders and image_files.subfolders(root / 'train'):
    found = {split: _list_split(root, split) for split in folders}
    splits = {split: images for split, images in found.items()
              if images or split == 'train'}
    ignored = [split for split in folders if split not in splits
               and split_strings_lib.is_split_name(split)]
  else:
    splits = {'': _list_split(root, '')}
    _check_no_splits(splits[''], root)
  by_hash = len(splits) == 1
  names = _check_classes(splits, root)
  if by_hash:
    (below, images), = splits.items()
    splits = _split_by_hash(images, names, below=below)
  opened = _build(root, splits, names)
  sizes = ', '.join(f'{split} {len(of):,}' for split, of in splits.items())
  return protocol.DatasetSplits(
      opened, len(names), names,
      eval_split=split_strings_lib.choose_eval_split(list(splits)),
      description=(
          f'{root}: one folder for each of {len(names):,} classes: '
          f'{_some(names)}; {sizes}') + ', chosen by a hash' * by_hash
      + ''.join(f'; {split}/ has no class folders and is ignored'
                for split in ignored))


def _build(
    root: epath.Path, splits: Mapping[str, _Images], names: Sequence[str],
) -> dict[str, protocol.Source]:
  """Returns the source of each split, in hash order."""
  number = {name: i for i, name in enumerate(names)}
  sources: dict[str, protocol.Source] = {}
  for split, images in splits.items():
    images = sorted(images, key=_order)
    labels = np.array([number[name] for _, name in images], np.int32)
    rows = np.arange(len(images))
    sources[split] = table_source.TableSource(
        image_files.ImageFiles(
            os.fspath(root), tuple(path for path, _ in images)),
        label_rules.ParsedLabels('single', labels, len(names), tuple(names)),
        rows, rows)
  return sources


def _order(image: tuple[str, str]) -> int:
  """Returns the hash of an image's own name and its folder's."""
  return split_strings_lib.stable_hash('/'.join(image[0].split('/')[-2:]))


def _layouts(root: epath.Path) -> str:
  return f'{root}/train/CLASS/*.jpg, or {root}/CLASS/*.jpg'


def _list_split(root: epath.Path, split: str) -> _Images:
  """Returns the images of a split, sorted."""
  found = []
  for name in image_files.subfolders(root / split if split else root):
    folder = f'{split}/{name}' if split else name
    found += [(path, name) for path in image_files.list_images(root, folder)]
  return found


def _split_by_hash(
    images: _Images, names: Sequence[str], *, below: str,
) -> dict[str, _Images]:
  """Splits by the paths below a folder, so that moving it changes nothing."""
  number = {name: i for i, name in enumerate(names)}
  labels = np.array([number[name] for _, name in images], np.int32)
  split_of = table_source.split_by_hash(
      [path.removeprefix(f'{below}/') for path, _ in images],
      label_rules.ParsedLabels('single', labels, len(names), tuple(names)))
  return {split: [image for image, of in zip(images, split_of) if of == split]
          for split in ('train', 'test')}


# ----------------------------------------------------------------------- checks


def _check_no_splits(images: _Images, root: epath.Path) -> None:
  """Raises if apparent class folders are splits without `train/CLASS/`.

  A class may be called `test` and hold images if others are not called so; a
  split holds class folders, or there are only splits.
  """
  names = sorted({name for _, name in images})
  with_images = {name for path, name in images if path.count('/') == 1}
  splits = [name for name in names if split_strings_lib.is_split_name(name)]
  if len(names) == 1 or len(splits) < len(names):
    splits = [name for name in splits if name not in with_images]
  if splits:
    shown = _some([f'{name}/' for name in splits])
    raise ValueError(
        f'{root} seems to hold splits ({shown}), but no class folders in '
        f'train/. Expected {_layouts(root)}, or a table of labels '
        '(--config.data.source=FILE.csv). Rename the training folder to '
        'train/, or, if these names are classes, move all class folders into '
        f'{root}/train/.')


def _check_classes(
    splits: Mapping[str, _Images], root: epath.Path) -> tuple[str, ...]:
  """Returns the class names; raises if there is too little to train on."""
  names = sorted({name for images in splits.values() for _, name in images})
  if not names:
    flat = sum(map(image_files.is_image, image_files.names_in(root)))
    found = (f'Found {flat:,} images in {root}, but none in a class folder, '
             'and no table of their labels' if flat else
             f'Found no images in {root}')
    content = _some(sorted(p.name for p in root.iterdir())) or 'nothing'
    raise ValueError(
        f'{found}. Expected {_layouts(root)}, with one of the suffixes '
        f'{" ".join(sorted(image_files.IMAGE_SUFFIXES))}. It holds: {content}.')
  if len(names) == 1:
    raise ValueError(
        f'Found a single class folder, {names[0]!r}, in {root}; a classifier '
        f'needs two classes. Expected {_layouts(root)}. If the class folders '
        'lie one level deeper, give their parent as data.source.')
  if len(splits) == 1:
    return tuple(names)
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


def _some(names: Sequence[str]) -> str:
  more = f', ... ({len(names)} in all)' if len(names) > 8 else ''
  return ', '.join(names[:8]) + more
