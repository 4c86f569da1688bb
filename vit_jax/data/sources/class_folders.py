"""Image folders: one folder per class, or images and their masks.

The layout is inferred from names alone. Where the inference could be wrong, it
is an error that names the expected layout.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence, Set
import dataclasses
import functools
import glob
import itertools
import os
from typing import NamedTuple

from etils import epath

from vit_jax import spelling
from vit_jax import untrusted
from vit_jax.data import cells as cells_lib
from vit_jax.data import links
from vit_jax.data.sources import class_numbers
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import image_tables
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_source
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings

_IMAGES, _MASKS = 'images', ('masks', 'annotations')
_SHOWN = 20  # Folders without images in messages.


class _Empty(NamedTuple):
  """A folder without images: its split, its class ('' if it is none)."""
  split: str
  name: str
  text: str


def open_folder(
    root: epath.Path, config: columns_lib.LabelConfig = columns_lib.AUTO,
) -> protocol.DatasetSplits:
  """Opens a folder of images in one of four layouts.

  - `train/CLASS/*.jpg`, with other splits of any name, or `my_train/CLASS`
    and `my_test/CLASS`, also as `train/train/CLASS`;
  - `CLASS/*.jpg`, without splits;
  - `images/*.jpg` and `masks/*.png`, or `images/train/*.jpg` and so on, where
    masks have the names of images and may also be called `annotations`;
  - images in other places, which have no labels.

  If `train` is the only split, a part of each class becomes `test`, chosen by a
  hash of the path relative to the parent of the class folders.

  Images come in hash order, so that 'train[:90%]' is a sample of the split.
  Classes are numbered in the order of `class_numbers.sort_names`, over all
  splits.
  Images may lie deeper within a class folder. Hidden files, images outside
  class folders and files of systems and network drives (`__MACOSX`) are
  ignored. Other files, and folders without images, are named and counted.

  Raises:
    ValueError: if there are no images, a class that is not in `train`, a class
      folder of `train` without images (unless `config.skip_empty`), splits
      without `train`, or images without a mask or with two.
  """
  folders, linked = files.subfolders(root), set[str]()
  if masks := _mask_folder(folders):
    return _open_masks(root, masks, config)
  try:
    if config.target == 'none':
      raise protocol.NoLabels(columns_lib.IGNORED)
    return _open_classes(root, folders, config)
  except protocol.NoLabels as error:
    paths, others = files.list_files(root, linked=linked)
    if not paths:
      raise
    return image_tables.open_unlabelled(
        [root / path for path in paths], config.without_labels(str(error)),
        where=os.fspath(root), root=root, notes=_not_read(others),
        linked=linked)


def _open_classes(
    root: epath.Path, folders: Sequence[str], config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  folder_of = _split_folders(root, folders)
  paths = cells_lib.Builder()
  rows: list[tuple[str, str, int]] = []
  inside: dict[str, set[str]] = {}
  linked = {os.fspath(root / folder) for folder in folder_of.values()
            if os.path.realpath(root / folder) != os.path.join(
                os.path.realpath(root), folder)}
  empty: list[_Empty] = [
      _Empty('train', '', f'{name} (1 broken link)')
      for name in (files.broken_links(root) if folder_of else ())]
  not_read: collections.Counter[str] = collections.Counter()
  for split, folder in (folder_of or {'': ''}).items():
    for name, where, images, others in _list_classes(
        root, folder, linked):
      if images:
        not_read += others
      else:
        empty.append(_Empty(split or 'train', class_numbers.compose(name),
                            _describe_empty(where, others)))
      for path in images:
        paths.append(path)
        # The folder within that of the class, '' for none.
        inside.setdefault(name, set()).add(
            path.partition('/')[2].rpartition('/')[0].partition('/')[0])
      rows += [(split or 'train', name, len(images))] * bool(images)
  if not folder_of:
    _check_no_splits(inside, root)
  names = _check_classes(
      {class_numbers.compose(name) for _, name, _ in rows}, root, empty)
  splits, classes, counts = zip(*rows)
  for split, folder in folder_of.items():
    if split not in splits and split not in {one.split for one in empty}:
      images, others = files.list_files(root, folder)
      empty += [_Empty(split, '', _describe_empty(folder, others))] * (
          not images)
  trained, evaluated = ({
      class_numbers.compose(name) for split, name, _ in rows
      if (split == 'train') == in_train} for in_train in (True, False))
  _check_empty(empty, trained, evaluated, root, skip=config.skip_empty)
  texts = paths.build().share()
  # Independent of the location of the class folders.
  prefix = (f'{folder_of["train"]}/'
            if folder_of and {*splits} == {'train'} else '')
  opened = table_source.build(
      functools.partial(files.read, os.fspath(root), texts),
      texts.__getitem__,
      {'class': cells_lib.Column.repeat(classes, counts),
       **groups_lib.find_in_paths(texts, config.group, where=os.fspath(root))},
      dataclasses.replace(
          config, target='auto',
          table=columns_lib.TableConfig(label=('class',))),
      where=os.fspath(root), num_rows=len(texts),
      splits=cells_lib.Column.repeat(splits, counts), class_names=names,
      group_of=lambda row: texts[row].removeprefix(prefix),
      order_by=lambda row: '/'.join(texts[row].split('/')[-2:]),
      labels_from='class folders',
      paths=links.Paths(os.fspath(root), texts, frozenset(linked)),
      unlabelled=[
          split_strings.split_name(split)
          for split, folder in folder_of.items()
          if split not in splits and (
              split_strings.is_split_name(split) or files.has_images(
                  root / folder))],
      notes=_not_read(not_read))
  opened = dataclasses.replace(
      opened, without_images=tuple(one.text for one in empty))
  return dataclasses.replace(opened, description='; '.join(filter(None, [
      opened.description, opened.without_images_note])))


def _describe_empty(folder: str, others: collections.Counter[str]) -> str:
  """Returns 'train/cat (12 .heic)', or 'train/cat (no files)'."""
  return f'{folder} ({files.describe_others(others) or "no files"})'


def _not_read(others: collections.Counter[str]) -> list[str]:
  return [f'not read: {files.describe_others(others)}'] * bool(others)


def find(root: epath.Path) -> list[str]:
  """Returns the names of two class folders; [] if there are not several."""
  folders = files.subfolders(root)
  if _mask_folder(folders):
    return []
  if folder_of := _split_folders(root, folders):
    root = root / folder_of['train']
    folders = files.subfolders(root)
  found = list(itertools.islice((
      name for name in folders if not split_strings.find_split(name)
      and files.has_images(root / name)), 2))
  return found if len(found) > 1 else []


def _mask_folder(folders: Sequence[str]) -> str:
  return next((name for name in _MASKS
               if {name, _IMAGES} <= {*folders}), '')


def _split_folders(
    root: epath.Path, folders: Sequence[str]) -> dict[str, str]:
  """Returns the folder of each split; {} if the folders are classes."""
  split_of = {name: name for name in folders}
  if 'train' not in folders:
    split_of = split_strings.splits_of_folders(folders)
  names = {*split_of.values()}
  if 'train' not in names or len(names) < len(folders):
    return {}
  # Archives are often unpacked into a folder of their own name.
  found = {split: f'{folder}/{folder}'
           if files.subfolders(root / folder) == [folder] else folder
           for folder, split in split_of.items()}
  return found if files.subfolders(root / found['train']) else {}


def _open_masks(
    root: epath.Path, folder: str, config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  linked: set[str] = set()
  found, others = files.list_files(root, _IMAGES, linked)
  images = cells_lib.Texts.of(found).share()
  masks: dict[str, str] = {}
  for path in files.list_images(root, folder):
    if (first := masks.setdefault(_stem(path), path)) != path:
      raise ValueError(
          f'{root} has two masks of one image, {first} and {path}. Remove one.')
  masks |= {name: masks[other] for name, other in spelling.match(
      {*map(_stem, images)}, masks.keys()).items()}
  missing = [path for path in images if _stem(path) not in masks]
  if missing or not images:
    raise ValueError(
        f'{len(missing)} of {len(images)} images in {root}/{_IMAGES} have no '
        f'mask of the same name in {folder}/: {files.shorten(missing)}.'
        if images else f'There are no images in {root}/{_IMAGES}.')
  folders = cells_lib.Column.of(
      path.split('/')[1] if path.count('/') > 1 else '' for path in images)
  splits = split_strings.splits_by_folder(
      images, folders, where=f'{root}/{_IMAGES}')
  used = cells_lib.Texts.of(masks[_stem(path)] for path in images).share()
  unused = sorted({*masks.values()} - {*used})
  return table_source.build(
      functools.partial(files.read, os.fspath(root), images),
      images.__getitem__,
      groups_lib.find_in_paths(images, config.group, where=os.fspath(root)),
      dataclasses.replace(config, table=columns_lib.TableConfig(
          label=()), no_labels=protocol.NO_IMAGE_LABELS),
      where=os.fspath(root), num_rows=len(images),
      read_mask=functools.partial(files.read, os.fspath(root), used),
      paths=links.Paths(os.fspath(root), images, frozenset(linked)),
      splits=splits, labels_from=f'masks in {folder}/', notes=[
          *[f'masks without an image: {len(unused):,} '
            f'({files.shorten(unused)})'] * bool(unused), *_not_read(others)])


def _stem(path: str) -> str:
  """Returns 'train/1' for 'images/train/1.jpg'."""
  return os.path.splitext(path.partition('/')[2])[0]


def find_mask(image: str) -> str:
  """Returns the path of the mask of an image in a folder with masks, or ''."""
  before, folder, name = os.path.abspath(image).rpartition(f'/{_IMAGES}/')
  return next((
      mask for masks in _MASKS if folder for mask in glob.glob(glob.escape(
          f'{before}/{masks}/{os.path.splitext(name)[0]}') + '.*')
      if files.is_image(mask)), '')


def _layouts(root: epath.Path) -> str:
  return f'{root}/train/CLASS/*.jpg, or {root}/CLASS/*.jpg'


def _list_classes(
    root: epath.Path, parent: str, linked: set[str],
) -> Iterator[tuple[str, str, Sequence[str], collections.Counter[str]]]:
  """Yields class, path, images and other files of the folders in a folder.

  Paths are relative to the root, and sorted. Other files are counted as in
  `files.list_files`. `linked` collects folders that hold links. In the layout
  of Tiny ImageNet, a split has one folder `images/`, and either a table of
  their classes, or no labels.
  """
  names = files.subfolders(root / parent, linked)
  if parent and names == [_IMAGES]:
    table = root / parent / f'{os.path.basename(parent)}_annotations.txt'
    lines = untrusted.read_text(table).splitlines() if table.exists() else []
    for name, label, *_ in (line.split('\t') for line in lines):
      path = f'{parent}/{_IMAGES}/{name}'
      yield label, path, [path], collections.Counter()
    return
  for name in names:
    path = os.path.join(parent, name)
    yield name.strip(), path, *files.list_files(root, path, linked)
  for name in files.broken_links(root / parent):
    yield (name.strip(), os.path.join(parent, name), [],
           collections.Counter(['broken link']))


def _check_no_splits(
    inside: Mapping[str, Set[str]], root: epath.Path) -> None:
  """Raises if apparent class folders are splits without `train/CLASS/`.

  `inside` are the subfolders with images of each folder, '' for itself.

  A folder called `test` or `my_test` is a class if it holds images directly and
  not all folders are named like splits. Folders that share subfolders are not
  classes, unless all hold images directly; a single shared one may be `images`,
  as in Tiny ImageNet.
  """
  names = sorted(inside)
  with_images = {name for name, subfolders in inside.items()
                 if '' in subfolders}
  splits = [name for name in names if split_strings.find_split(name)]
  if len(names) == 1 or len(splits) < len(names):
    splits = [name for name in splits if name not in with_images]
  if splits:
    raise protocol.NoLabels(
        f'{root} seems to hold splits ({", ".join(f"{s}/" for s in splits)}), '
        f'but no class folders in train/. Expected {_layouts(root)}, or a '
        'table of labels (FILE.csv) as the source. Rename the training '
        'folder to train/, or, if these names are classes, move all class '
        f'folders into {root}/train/.')
  counts = collections.Counter(
      itertools.chain(*inside.values()) if with_images < {*names} else ())
  shared = {name for name, count in counts.items() if name and count > 1}
  if len(shared) > 1:
    alike = [name for name in names if inside[name] & shared]
    raise ValueError(
        f'The folders {files.shorten(alike)} of {root} have the same '
        f'subfolders ({files.shorten(sorted(shared))}), so either may be the '
        f'classes. Expected {_layouts(root)}. If the subfolders are the '
        'classes, give one of the folders as data.source, or rename the '
        'training folder to train/; if the folders are, move them into '
        f'{root}/train/.')


def _check_empty(
    empty: Sequence[_Empty], trained: Set[str], evaluated: Set[str],
    root: epath.Path, *, skip: bool,
) -> None:
  """Raises if a class folder of `train`, or a link to a split, is empty.

  With `skip`, only if an image of another split has that class.
  """
  lost = [one for one in empty
          if one.split == 'train' and one.name not in trained]
  if both := [one.text for one in lost if one.name in evaluated]:
    raise ValueError(
        f'Class folders of {root} have no image that can be read in train '
        f'({files.shorten(both, _SHOWN)}), but other splits have images '
        'of these classes. Add images to train, or remove the classes from '
        'every split.')
  if lost and not skip:
    found = [one.text for one in lost]
    raise ValueError(
        f'Class folders of {root} without an image that can be read '
        f'({len(found):,}): {files.shorten(found, _SHOWN)}. Images have one of '
        f'the suffixes {" ".join(sorted(files.IMAGE_SUFFIXES))}. Convert the '
        'files, mount the folder that a link names, or move folders elsewhere '
        'that are not classes. To train without them, set '
        '--config.data.unreadable=skip.')


def _check_classes(
    classes: set[str], root: epath.Path, empty: Sequence[_Empty],
) -> Sequence[str]:
  """Returns the sorted class names; raises if there are fewer than two."""
  names = class_numbers.sort_names(classes)
  without = ' No image can be read in ' + files.shorten(
      (one.text for one in empty), _SHOWN) + '.' if empty else ''
  if not names:
    count = sum(map(files.is_image, files.names_in(root)))
    found = (f'Found {count:,} images in {root}, but none in a class folder, '
             'and no table of their labels' if count else
             f'Found no images in {root}')
    content = files.shorten(sorted(files.names_in(root)), 8) or 'nothing'
    raise protocol.NoLabels(
        f'{found}. Expected {_layouts(root)}, with one of the suffixes '
        f'{" ".join(sorted(files.IMAGE_SUFFIXES))}. It holds: {content}.'
        + without + files.advise_unpacking(root))
  if len(names) == 1:
    raise protocol.NoLabels(
        f'Found a single class folder, {names[0]!r}, in {root}; a classifier '
        f'needs two classes. Expected {_layouts(root)}. If the class folders '
        'lie one level deeper, give their parent as data.source.' + without)
  return names
