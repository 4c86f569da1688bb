"""Folders of images: one folder per class, or images without labels.

    ROOT/CLASS/**                             classes; a part is held out
    ROOT/{train,val,validation,test}/CLASS/** classes and splits
    ROOT/**                                   `data.target=none`
    images/** and masks/** in ROOT            `data.target=masks`, see `masks`

These are the layouts of torchvision, timm and `datasets`.
"""

import collections
from collections.abc import Sequence
import dataclasses
import functools
import os

from etils import epath

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import masks
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest
from vit_jax.data.sources import table_source
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings

_SHOWN = 20  # Folders without images in messages.


def open_classes(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  """Opens class folders.

  If `train` is the only split, a part of each class becomes `test`, chosen by a
  hash of the path relative to the parent of the class folders.

  Images come in hash order, so that 'train[:90%]' is a sample of the split.
  Classes are numbered in the order of `columns.sort_names`, over all splits.
  Hidden files and files of systems and network drives (`__MACOSX`) are ignored.
  Other files, images outside class folders, and class folders without images
  are named and counted.

  Raises:
    protocol.NoLabels: if there are no class folders, or only one.
    ValueError: if a class is not in `train`, or splits have other names.
  """
  where, paths = os.fspath(root), list[str]()
  rows: list[tuple[str, str, int]] = []  # Split, class, number of images.
  empty: list[str] = []
  others: collections.Counter[str] = collections.Counter()
  split_of = _split_folders(root)
  inside: dict[str, set[str]] = {}
  for folder, split in split_of.items():
    for name in files.subfolders(root / folder):
      path = os.path.join(folder, name)
      images, other = files.list_files(root, path)
      if images:
        others += other
        paths += images
        rows.append((split, columns_lib.clean(name) or name, len(images)))
        inside[path] = {image[len(path) + 1:].rpartition('/')[0].partition(
            '/')[0] for image in images}
      else:
        empty.append(f'{path} ({files.describe(other) or "no files"})')
  without = 'no image that can be read in ' + files.shorten(empty, _SHOWN)
  names = columns_lib.sort_names({name for _, name, _ in rows})
  # Data that are only evaluated on may have one class.
  if len(names) < 1 + bool(config.holdout):
    raise protocol.NoLabels(
        suggest.folder(root, classes=names)
        + f'\nThere is {without}.' * bool(empty))
  if not config.target:
    suggest.check_folders(root, inside if '' in split_of else {})
  splits, classes, counts = zip(*rows)
  if 'train' not in splits:
    raise ValueError(f'{root / "train"} has no images: {without}.')
  loose = sum(files.count_images(root / folder)
              for folder, split in split_of.items() if split in splits)
  texts = columns_lib.texts(paths)
  # Independent of the location of the class folders.
  prefix = 'train/' if {*split_of} != {''} and {*splits} == {'train'} else ''
  opened = table_source.build(
      functools.partial(files.read, where, texts), texts,
      {'class': columns_lib.repeat(classes, counts),
       **groups_lib.find_in_paths(paths, config.group, where=where)},
      columns_lib.with_columns(config, label=('class',)), where=where,
      splits=columns_lib.repeat(splits, counts), class_names=names,
      group_of=lambda row: paths[row].removeprefix(prefix),
      order_by=lambda row: '/'.join(paths[row].split('/')[-2:]),
      labels_from='class folders', unlabelled=[
          split for folder, split in split_of.items()
          if split not in splits and files.has_images(root / folder)],
      notes=[*files.describe_others(others), *[without] * bool(empty),
             *[f'not read: {loose:,} images in no class folder']
             * bool(loose)])
  return dataclasses.replace(opened, without_images=tuple(empty))


def open_unlabelled(
    paths: Sequence[str], config: columns_lib.LabelConfig, *, where: str,
    root: str, notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Opens images without labels; paths are relative to the root, or absolute.

  Folders with the names of splits, such as `train/`, are these splits.
  """
  tops = [path.partition('/')[0] for path in paths]
  texts = columns_lib.texts(paths)
  return table_source.build(
      functools.partial(files.read, root, texts), texts,
      groups_lib.find_in_paths(paths, config.group, where=where),
      columns_lib.with_columns(config, label=()), where=where,
      splits=split_strings.check_folders(tops, paths, where=where),
      notes=notes)


def open_folder(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  """Opens a folder of images, with the labels of the declared kind.

  Raises:
    protocol.NoLabels: if it has no class folders.
    ValueError: if there are no images, or labels of another kind.
  """
  if config.table != columns_lib.TableConfig():
    raise ValueError(
        f'data.table describes the columns of a table, but {root} is a folder '
        'of images. Remove it, or name the table as data.source.')
  if config.target == 'masks':
    return masks.open_masks(root, config)
  if config.target in ('multi', 'regression') or (
      {masks.IMAGES, masks.MASKS} <= {*files.subfolders(root)}):
    raise ValueError(suggest.folder(root))
  if config.target == 'none':
    return _open_all(root, config)
  return open_classes(root, config)


def _open_all(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  paths, others = files.list_files(root)
  if not paths:
    raise ValueError(suggest.folder(root))
  return open_unlabelled(
      paths, config, where=os.fspath(root), root=os.fspath(root),
      notes=files.describe_others(others))


def _split_folders(root: epath.Path) -> dict[str, str]:
  """Returns the split of each folder; {'': 'train'} if folders are classes."""
  folders = files.subfolders(root)
  splits = [name for name in folders if name in split_strings.NAMES]
  if not splits:
    return {'': 'train'}
  # Archives are often unpacked into a folder of their own name.
  if 'train' not in splits or files.subfolders(root / 'train') in (
      [], ['train']) or any(
          files.has_images(root / name) for name in {*folders} - {*splits}):
    raise protocol.NoLabels(suggest.folder(root, splits=splits))
  return {name: name for name in splits}
