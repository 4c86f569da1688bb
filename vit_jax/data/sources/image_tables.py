"""Tables of image files: one row per image, with its path and labels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import functools
import itertools
import os
import re
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import label_rules
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source
from vit_jax.data.splits import split_strings

_VALIDATION = {'val', 'valid', 'validation'}


def open_tables(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig,
) -> protocol.DatasetSplits:
  """Opens one table, or one per split.

  Raises:
    ValueError: if a table is malformed, ambiguous or contradicts itself, or
      images are missing.
  """
  where, root = os.fspath(paths[0]), os.fspath(paths[0].parent)
  if len(paths) > 1:
    paths = _sort_by_split(paths, config)
    if len({path.parent for path in paths}) > 1:
      root = os.fspath(paths[0].parent.parent)
    where = f'{paths[0].parent}/{{{",".join(p.name for p in paths)}}}'
  tables = [table_files.read(path) for path in paths]
  # The training table determines the roles of columns.
  config = columns_lib.choose_columns(
      tables[0], config, where=str(paths[0]), has_paths=True)
  image = str(config.table.path)
  joined: table_source.Table = {
      name: [] for name in (*itertools.chain(*tables), *config.table.labels)}
  images: list[str] = []
  splits: list[str] = []
  for path, split, table in zip(paths, files.splits_in_names(paths), tables):
    if image not in table:
      raise ValueError(
          f'{split} of {where} lacks the image column {image!r}: its columns '
          f'are {files.shorten(table, 20)}, but those of train are '
          f'{files.shorten(tables[0], 20)}. Use the same names in every split.')
    found = locate(table[image], path, config.table, split=split or '')
    for name, column in joined.items():
      column += table.get(name, [None] * len(found))
    images += found
    splits += [split or ''] * len(found)
  return open_images(images, joined, config, where=where, root=root,
                     splits=splits if len(paths) > 1 else None)


def read_images(
    path: epath.Path, config: columns_lib.LabelConfig,
) -> dict[str, dict[str, Any]]:
  """Returns the images of a table with their labels by column, as written.

  Raises:
    ValueError: as `open_tables` does.
  """
  table = table_files.read(path)
  columns = columns_lib.choose_columns(
      table, config, where=os.fspath(path), has_paths=True).table
  return {image: {name: table[name][row] for name in columns.labels}
          for row, image in enumerate(
              locate(table[str(columns.path)], path, columns))}


def _sort_by_split(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig,
) -> list[epath.Path]:
  """Returns one table per split, the training table first."""
  names = files.splits_in_names(paths)
  if None in names or len(set(names)) < len(names):
    classes = files.shorten(config.class_folders())
    raise ValueError(
        f'There are {len(paths)} tables in {paths[0].parent}: '
        f'{", ".join(p.name for p in paths)}. Give one as data.source, or one '
        'per split, whose names contain train, val or test: '
        f'{paths[0].parent}/{{train,test}}.csv.' + (
            f' To use the class folders ({classes}), move the tables '
            'elsewhere.' if classes else ''))
  return [path for _, path in sorted(
      zip(names, paths), key=lambda pair: (pair[0] != 'train', pair[1].name))]


def open_unlabelled(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *,
    where: str, root: epath.Path | None = None,
) -> protocol.DatasetSplits:
  """Returns the dataset of images without a table, whose labels are unknown.

  `config.no_labels` says why. The root is by default their common folder.
  """
  names = list(map(os.fspath, paths))
  return open_images(
      names, {}, config, where=where, root=os.fspath(root) if root else (
          os.path.commonpath([os.path.dirname(name) for name in names])))


def open_images(
    paths: Sequence[str], table: table_source.Table,
    config: columns_lib.LabelConfig, *, where: str, root: str,
    splits: Sequence[str] | None = None,
) -> protocol.DatasetSplits:
  """Returns the dataset of image files with one table row each.

  Keys are relative to `root`, so that moving it changes no key.
  """
  columns = config.table
  relative = [_relative_path(path, root) for path in paths]
  if columns.split is not None:
    splits = table_source.parse_splits(
        table[columns.split], columns.split, where)
    config = config.with_columns(split=None)
  folders = [path.rpartition('/')[0] for path in relative]
  notes = []
  if splits is None:
    splits = _splits_of_folders(relative, folders, where)
    notes += ['splits are the folders of the images'] * bool(splits)
  rows_of: dict[str, list[int]] = {}
  for row, path in enumerate(relative):
    rows_of.setdefault(path, []).append(row)
  in_several = _conflicts(rows_of, splits.__getitem__) if splits else []
  if in_several:
    path, names = in_several[0]
    raise ValueError(
        f'{path} is in several splits of {where}: {", ".join(names)}. Training '
        'images must not be evaluated on; remove it from all splits but one.')
  conflicts = _conflicts(rows_of, lambda row: '/'.join(
      str(table[name][row]) for name in columns.labels))
  if conflicts and (config.target != 'multi' or len(columns.labels) > 1):
    path, labels = conflicts[0]
    raise ValueError(
        f'{len(conflicts):,} images of {where} have several rows with '
        f'different labels: {path} is {" and ".join(labels)}. Remove the wrong '
        'row, or set --config.data.target=multi, which joins the rows.')
  if conflicts:
    relative = list(rows_of)
    first = [rows[0] for rows in rows_of.values()]
    splits = splits and [splits[row] for row in first]
    label, = columns.labels
    cells = label_rules.split_cells(table[label], columns.separator)
    table = {name: [column[row] for row in first]
             for name, column in table.items()}
    table[label] = [[value for row in rows for value in cells[row]]
                    for rows in rows_of.values()]
  repeated = len(relative) - len(rows_of)
  texts = table_source.Texts(relative)
  return table_source.build(
      functools.partial(files.read, root, texts), texts.__getitem__,
      table, config, where=where, num_rows=len(relative), splits=splits,
      unlabelled=_unused_folders(epath.Path(root), {*folders}), notes=[
          *notes, *[f'{repeated:,} rows repeat an image and its label']
          * bool(repeated)])


def _splits_of_folders(
    paths: Sequence[str], folders: Sequence[str], where: str,
) -> list[str] | None:
  """Returns the splits of images in `train/`, `images/train/`, `cat/train/`."""
  parts = {folder: folder.split('/') for folder in {*folders}}
  for names in itertools.zip_longest(*parts.values(), fillvalue=''):
    found = {*split_strings.splits_of_folders({*names}).values()}
    if 'train' in found and len(found) > 1:
      name_of = dict(zip(parts, names))
      return split_strings.splits_by_folder(
          paths, [name_of[folder] for folder in folders], where=where)
  return None


def _unused_folders(root: epath.Path, used: Iterable[str]) -> list[str]:
  """Returns the splits whose folder has images, but none in a table."""
  used = [f'{folder}/' for folder in used]
  parents = {'', *(folder[:found.start()] for folder in used for found in
                   re.finditer('[^/]+', folder)
                   if split_strings.find_split(found[0]))}
  return [
      split for parent in sorted(parents)
      # Siblings of other paths may be other datasets.
      if not os.path.isabs(parent) and not atomic_files.is_remote(parent)
      for name, split in split_strings.splits_of_folders(
          files.subfolders(root / parent)).items()
      if split_strings.find_split(name)
      and not any(folder.startswith(f'{parent}{name}/') for folder in used)
      and files.has_images(root / parent / name)]


def _conflicts(
    rows_of: Mapping[str, Sequence[int]], value: Callable[[int], str],
) -> list[tuple[str, list[str]]]:
  """Returns the paths whose rows have different values, with these values."""
  found = ((path, sorted(set(map(value, rows))))
           for path, rows in rows_of.items() if len(rows) > 1)
  return [(path, values) for path, values in found if len(values) > 1]


def _relative_path(path: str, root: str) -> str:
  """Returns a path relative to the root; absolute if it lies elsewhere."""
  prefix = root.rstrip('/') + '/'
  if not path.startswith(prefix):
    return path
  inside = path.removeprefix(prefix)
  return os.path.relpath(path, root) if '..' in inside else inside


# ---------------------------------------------------------- finding image files


def locate(
    cells: Sequence[Any], table: epath.Path, config: columns_lib.TableConfig,
    *, split: str = '',
) -> list[str]:
  """Returns the paths of a table's images, from its column of paths.

  Raises:
    ValueError: if images are missing, with their number and the first ones.
  """
  # JSON may have numbers, such as image_id.
  cells = [str(cell) if type(cell) is int else cell for cell in cells]
  empty = [i for i, value in enumerate(cells)
           if not isinstance(value, str) or not value.strip()]
  if empty:
    raise ValueError(
        f'{len(empty):,} rows of {table} have no image path (the first: row '
        f'{empty[0] + 1}).')
  names = [value.strip().replace('\\', '/') + config.suffix for value in cells]
  for name in names:
    files.check_address(name, where=str(table))
  exists = _file_lookup()
  root, suffix = _find_folder(names[:20], table, config, exists, split)
  folder = os.fspath(root)  # Once: it is slow.
  names = [name + suffix for name in names]
  paths = [name if atomic_files.is_remote(name) else
           os.path.join(folder, os.path.normpath(name)) for name in names]
  missing = [name for name, path in zip(names, paths) if not exists(path)]
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(names):,} images of {table} do not exist: '
        f'{files.shorten(missing)}. Searched in {root}. Set the folder that '
        'relative paths start from (--config.data.table.folder=FOLDER) or '
        'their suffix (--config.data.table.suffix=.jpg), or remove these rows.'
        + files.advise_unpacking(table.parent))
  return paths


def _file_lookup() -> Callable[[str], bool]:
  """Returns a function that tests whether a file exists.

  It lists each folder once, which is fast on network file systems.
  """
  @functools.cache
  def names(folder: str) -> frozenset[str]:
    path = epath.Path(folder)
    return frozenset(files.names_in(path) if path.is_dir() else ())

  return lambda path: os.path.basename(path) in names(os.path.dirname(path))


def _find_folder(
    names: Sequence[str], table: epath.Path, config: columns_lib.TableConfig,
    exists: Callable[[str], bool], split: str,
) -> tuple[epath.Path, str]:
  """Infers the folder that paths start from, and a missing suffix.

  Candidates are the table's folder and its subfolders; the one with the most
  images is used. Ties go to the table's folder, then to one called like the
  table's split.

  Raises:
    ValueError: if several remain: train/1.png and test/1.png differ.
  """
  root = table.parent / config.folder if config.folder else table.parent
  folders = [] if config.folder else files.subfolders(root)
  suffixes = ['']
  if not config.suffix and not any(map(files.is_image, names)):
    suffixes += sorted(files.IMAGE_SUFFIXES)  # Tables of 'id,label'.
  ranks = {}
  for suffix in suffixes:
    for folder in ('', *folders):
      found = sum(exists(os.fspath(root / folder / (name + suffix)))
                  for name in names)
      if found:
        ranks[folder, suffix] = -found, _preference(folder, split)
  if not ranks:
    return root, ''
  best = [place for place, rank in ranks.items() if rank == min(ranks.values())]
  if len(best) > 1:
    examples = [os.path.join(f, names[0] + s) for f, s in best[:3]]
    raise ValueError(
        f'The image paths of {table} are ambiguous: {names[0]!r} exists as '
        f'{" and ".join(examples)}{", ..." * (len(best) > 3)}. Set '
        '--config.data.table.folder=FOLDER, or --config.data.table.suffix=.jpg '
        'if only the suffixes differ.')
  (folder, suffix), = best
  return root / folder, suffix


def _preference(folder: str, split: str) -> int:
  """Returns a lower number for a more likely folder of a split's images."""
  if not folder:
    return 0
  names = {split_strings.find_split(folder) or folder, split}
  return 1 if len(names) == 1 or names <= _VALIDATION else 2
