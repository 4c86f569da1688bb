"""Folders of images: one folder per class, or images without labels.

    ROOT/CLASS/**                             classes; a part is held out
    ROOT/{train,val,validation,test}/CLASS/** classes and splits
    ROOT/**                                   `data.target=none`
    images/** and masks/** in ROOT            `data.target=masks`, by a leaf

These are the layouts of torchvision, timm and `datasets`.
"""

from collections.abc import Sequence, Set
import os

from etils import epath

from vit_jax import registry
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError


def open_folder(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens a folder of images, with the labels of the declared kind.

  Hidden files and files of systems and network drives (`__MACOSX`) are ignored.
  Other files are counted.

  Raises:
    protocol.NoLabels: if it has no class folders.
    UserError: if there are no images, or labels of another kind.
  """
  root, = paths
  if config.table != columns_lib.TableConfig():
    raise UserError(
        f'data.table describes the columns of a table, but {root} is a folder '
        'of images. Remove it, or name the table as data.source.')
  images, others = files.list_files(root)
  has_masks = {'images', 'masks'} <= {*files.subfolders(root)}
  if not images or config.target in ('multi', 'regression') or (
      has_masks != (config.target == 'masks')):
    raise protocol.Unconventional(_unusual(root))
  notes = [f'not read: {files.describe(others)}'] * bool(others)
  if has_masks:
    return registry.load(registry.MASK_FOLDERS).open_masks(
        images, config, where=where, notes=notes)
  if config.target == 'none':
    return _open_unlabelled(images, config, where, where, notes)
  return _open_classes(root, images, config, notes)


def open_images(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens image files without labels.

  Raises:
    protocol.NoLabels: if labels were expected.
  """
  if config.target != 'none':
    raise protocol.NoLabels(
        f'The images {where} have no labels. Give their folder, or a table.')
  root = os.path.commonpath([os.fspath(path.parent) for path in paths])
  return _open_unlabelled(files.relative_names(paths), config, where, root)


def _open_unlabelled(
    paths: Sequence[str], config: columns_lib.LabelConfig, where: str,
    root: str, notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Opens images without labels; paths are relative to the root.

  Folders with the names of splits, such as `train/`, are these splits.
  """
  return table_source.build(table_source.Images.of_files(
      paths, config, where=where, root=root, notes=notes,
      splits=files.splits_of_folders(paths, where=where)), config)


def _open_classes(
    root: epath.Path, paths: Sequence[str], config: columns_lib.LabelConfig,
    notes: Sequence[str],
) -> protocol.DatasetSplits:
  """Opens class folders.

  Without splits, or if `train` is the only one, a part of each class becomes
  `test`, chosen by a hash of the path relative to the parent of the class
  folders.

  Images come in hash order, so that 'train[:90%]' is a sample of the split.
  Classes are numbered in the order of `columns.sort_names`, over all splits.
  Images outside class folders are counted, class folders without images named.

  Raises:
    protocol.NoLabels: if there are no class folders, or only one.
    UserError: if a class is not in `train`, or splits have other names.
  """
  where, splits = os.fspath(root), _split_folders(root, paths)
  depth = 1 + bool(splits)
  inside, outside = list[str](), list[str]()
  for path in paths:
    (inside if path.count('/') >= depth else outside).append(path)
  folders, codes = columns_lib.encode(columns_lib.texts(
      '/'.join(path.split('/')[:depth]) for path in inside))
  tops, classes = ([folder.split('/')[level] for folder in folders]
                   for level in (0, -1))
  names = columns_lib.sort_names(
      {*filter(None, map(columns_lib.clean, classes))})
  empty = _without_images(root, splits, {*folders})
  without = protocol.describe_without_images(empty)
  # Data that are only evaluated on may have one class.
  if len(names) < 1 + bool(config.holdout):
    raise protocol.NoLabels(
        f'{_unusual(root, classes=names)} {without}'.strip())
  if not (config.target or splits) and (
      text := protocol.suggest('question_folder', root, paths)):
    raise protocol.NoLabels(text)
  if splits and 'train' not in tops:
    raise UserError(f'{root / "train"} has no images: {without}.')
  loose = [path.partition('/')[0] for path in outside]
  unlabelled = sorted({*splits} & {*loose} - {*tops})
  count = sum(name not in unlabelled for name in loose)
  # Independent of the location of the class folders.
  prefix = 'train/' if splits and {*tops} == {'train'} else ''
  return table_source.build(table_source.Images.of_files(
      inside, config, where=where, root=where,
      labels={'class folders': columns_lib.of_codes(classes, codes)},
      splits=columns_lib.of_codes(tops, codes) if splits else None,
      class_names=names,
      group_of=lambda row: inside[row].removeprefix(prefix),
      order_by=lambda row: '/'.join(inside[row].split('/')[-2:]),
      unlabelled=unlabelled, without_images=empty, notes=[
          *notes, *[f'not read: {count:,} images in no class folder']
          * bool(count)]), config)


def _without_images(
    root: epath.Path, splits: Sequence[str], found: Set[str],
) -> tuple[str, ...]:
  """Returns the class folders that are not found, each with its other files."""
  return tuple(
      f'{folder} ({files.describe(others) or "no files"})'
      for parent in splits or [''] for name in files.subfolders(root / parent)
      if (folder := os.path.join(parent, name)) not in found
      for others in [files.list_files(root, folder)[1]])


def _split_folders(root: epath.Path, paths: Sequence[str]) -> list[str]:
  """Returns the folders of splits, or [] if folders are classes."""
  folders = files.subfolders(root)
  splits = [name for name in folders if name in split_strings.NAMES]
  others = {path.partition('/')[0] for path in paths if '/' in path} - {*splits}
  # Archives are often unpacked into a folder of their own name.
  if splits and ('train' not in splits or others or files.subfolders(
      root / 'train') in ([], ['train'])):
    raise protocol.NoLabels(_unusual(root, splits=splits))
  return splits


def _unusual(
    root: epath.Path, classes: Sequence[str] = (), splits: Sequence[str] = (),
) -> str:
  """Returns the error for a folder that has no usual layout.

  `classes` are its class folders, if any; `splits` those named like splits.
  """
  names = [f'{name}/' for name in files.subfolders(root)]
  others = sorted({*files.names_in(root)} - {name[:-1] for name in names})
  text = (f'{root} has the single class folder {classes[0]!r}; a classifier '
          'needs two classes.' if classes else
          f'{root} has no class folders; it holds '
          f'{files.shorten([*names, *others], 8) or "nothing"}.')
  if splits:
    text += (f' Beside {", ".join(splits)}, only other splits are expected, '
             'and class folders in train; a class needs another name.')
  return (f'{text} Expected {root}/CLASS/*.jpg, {root}/train/CLASS/*.jpg (or '
          'val, test), metadata.csv, Parquet or tar files (docs/data.md).')
