"""Folders of images: one folder per class, or images without labels.

    ROOT/CLASS/**                             classes; a part is held out
    ROOT/{train,val,validation,test}/CLASS/** classes and splits
    ROOT/**                                   `data.target=none`
    images/** and masks/** in ROOT            `data.target=masks`, see `masks`

These are the layouts of torchvision, timm and `datasets`.
"""

from collections.abc import Sequence
import functools
import os

from etils import epath
import numpy as np

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import masks
from vit_jax.data.sources import protocol
from vit_jax.data.sources import suggest
from vit_jax.data.sources import table_source
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings


def open_folder(
    root: epath.Path, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  """Opens a folder of images, with the labels of the declared kind.

  Hidden files and files of systems and network drives (`__MACOSX`) are ignored.
  Other files are counted.

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
  paths, others = files.list_files(root)
  if not paths or config.target in ('multi', 'regression') or (
      {masks.IMAGES, masks.MASKS} <= {*files.subfolders(root)}):
    raise ValueError(suggest.folder(root))
  notes = files.describe_others(others)
  if config.target == 'none':
    return open_unlabelled(
        paths, config, where=os.fspath(root), root=os.fspath(root),
        notes=notes)
  return _open_classes(root, paths, config, notes)


def open_unlabelled(
    paths: Sequence[str], config: columns_lib.LabelConfig, *, where: str,
    root: str, notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Opens images without labels; paths are relative to the root, or absolute.

  Folders with the names of splits, such as `train/`, are these splits.
  """
  texts = columns_lib.texts(paths)
  return table_source.build(table_source.Images(
      where=where, read=functools.partial(files.read, root, texts), keys=texts,
      table=groups_lib.find_in_paths(paths, config.group, where=where),
      splits=files.splits_of_folders(paths, where=where), notes=notes),
                            columns_lib.with_columns(config, label=()))


def _open_classes(
    root: epath.Path, paths: Sequence[str], config: columns_lib.LabelConfig,
    notes: Sequence[str],
) -> protocol.DatasetSplits:
  """Opens class folders.

  If `train` is the only split, a part of each class becomes `test`, chosen by a
  hash of the path relative to the parent of the class folders.

  Images come in hash order, so that 'train[:90%]' is a sample of the split.
  Classes are numbered in the order of `columns.sort_names`, over all splits.
  Images outside class folders, and class folders without images are named.

  Raises:
    protocol.NoLabels: if there are no class folders, or only one.
    ValueError: if a class is not in `train`, or splits have other names.
  """
  where, splits = os.fspath(root), _split_folders(root, paths)
  depth = 1 + bool(splits)
  folders, codes = columns_lib.encode(columns_lib.texts(
      '/'.join(path.split('/')[:depth]) * (path.count('/') >= depth)
      for path in paths))  # '' for an image in no class folder.
  classes = [columns_lib.clean(folder.rpartition('/')[2]) for folder in folders]
  names = columns_lib.sort_names({*filter(None, classes)})
  empty = tuple(
      f'{folder} ({files.describe(others) or "no files"})'
      for parent in splits or [''] for name in files.subfolders(root / parent)
      if (folder := os.path.join(parent, name)) not in folders
      for others in [files.list_files(root, folder)[1]])
  without = protocol.describe_without_images(empty)
  # Data that are only evaluated on may have one class.
  if len(names) < 1 + bool(config.holdout):
    raise protocol.NoLabels('\n'.join(filter(
        None, [suggest.folder(root, classes=names), without])))
  if not config.target and not splits:
    suggest.check_folders(root, paths)
  tops = [folder.partition('/')[0] for folder in folders]
  if splits and 'train' not in tops:
    raise ValueError(f'{root / "train"} has no images: {without}.')
  in_class = np.array([*map(bool, folders)])[codes]
  unlabelled = [split for split in splits if split not in tops
                and files.has_images(root / split)]
  loose = sum(paths[row].partition('/')[0] not in unlabelled
              for row in np.flatnonzero(~in_class).tolist())
  # Independent of the location of the class folders.
  prefix = 'train/' if {*filter(None, tops)} == {'train'} and splits else ''
  texts = columns_lib.texts(paths)
  return table_source.build(table_source.Images(
      where=where, read=functools.partial(files.read, where, texts), keys=texts,
      table={'class folders': columns_lib.of_codes(classes, codes),
             **groups_lib.find_in_paths(paths, config.group, where=where)},
      rows=np.flatnonzero(in_class), class_names=names,
      splits=columns_lib.of_codes(tops, codes) if splits else None,
      group_of=lambda row: paths[row].removeprefix(prefix),
      order_by=lambda row: '/'.join(paths[row].split('/')[-2:]),
      unlabelled=unlabelled, without_images=empty, notes=[
          *notes, *[f'not read: {loose:,} images in no class folder']
          * bool(loose)]),
      columns_lib.with_columns(config, label=('class folders',)))


def _split_folders(root: epath.Path, paths: Sequence[str]) -> list[str]:
  """Returns the folders of splits, or [] if folders are classes."""
  folders = files.subfolders(root)
  splits = [name for name in folders if name in split_strings.NAMES]
  others = {path.partition('/')[0] for path in paths if '/' in path} - {*splits}
  # Archives are often unpacked into a folder of their own name.
  if splits and ('train' not in splits or others or files.subfolders(
      root / 'train') in ([], ['train'])):
    raise protocol.NoLabels(suggest.folder(root, splits=splits))
  return splits
