"""Tables of image files: one row per image, with its path and labels."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import functools
import itertools
import os
import re
from typing import Any

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import spelling
from vit_jax.data import cells as cells_lib
from vit_jax.data import links
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import label_rules
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings


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
  splits = files.splits_in_names(paths)
  images: list[cells_lib.Texts] = []
  linked: set[str] = set()
  for path, split, table in zip(paths, splits, tables):
    if image not in table:
      raise ValueError(
          f'{split} of {where} lacks the image column {image!r}: its columns '
          f'are {files.shorten(table, 20)}, but those of train are '
          f'{files.shorten(tables[0], 20)}. Use the same names in every split.')
    images.append(locate(
        table[image], path, config.table, split=split or '', linked=linked))
  joined, lengths = tables[0], list(map(len, images))
  if len(tables) > 1:
    joined = {name: cells_lib.Texts.from_json(itertools.chain.from_iterable(
        table.get(name) or itertools.repeat(None, length)
        for table, length in zip(tables, lengths)))
              for name in (*itertools.chain(*tables), *config.table.labels)}
  return open_images(
      itertools.chain(*images), joined, config, where=where, root=root,
      linked=linked, splits=cells_lib.Column.repeat(
          [split or '' for split in splits], lengths)
      if len(paths) > 1 else None)


def read_images(
    path: epath.Path, config: columns_lib.LabelConfig,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the images of a table with the labels of their rows, by column.

  Raises:
    ValueError: as `open_tables` does.
  """
  table, where = table_files.read(path), os.fspath(path)
  config = columns_lib.choose_columns(
      table, config, where=where, has_paths=True)
  images = locate(table[str(config.table.path)], path, config.table)
  _has_several_labels(_repeated(images), images, table, config, where=where)
  found: dict[str, list[dict[str, Any]]] = {}
  for row, image in enumerate(images):
    found.setdefault(image, []).append(
        {name: table[name][row] for name in config.table.labels})
  return found


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
    where: str, root: epath.Path | None = None, linked: Collection[str] = (),
    notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Returns the dataset of images without a table, whose labels are unknown.

  `config.no_labels` says why. The root is by default their common folder.
  `linked` is that of `open_images`.
  """
  names = list(map(os.fspath, paths))
  base = os.fspath(root or os.path.commonpath([*map(os.path.dirname, names)]))
  return open_images(names, groups_lib.find_in_paths(
      [files.relative_path(name, base) for name in names], config.group,
      where=base), config, where=where, root=base, linked=linked,
      notes=notes)


def open_images(
    paths: Iterable[str], table: table_source.Table,
    config: columns_lib.LabelConfig, *, where: str, root: str,
    splits: cells_lib.Column | None = None, linked: Collection[str] = (),
    notes: Sequence[str] = (),
) -> protocol.DatasetSplits:
  """Returns the dataset of image files with one table row each.

  Keys are relative to `root`, so that moving it changes no key. `linked` are
  the folders with links; see `links.Paths`. `notes` are added to the
  description.
  """
  columns = config.table
  relative = cells_lib.Texts.of(
      files.relative_path(path, root) for path in paths)
  if columns.split is not None:
    splits = table_source.parse_splits(
        table[columns.split], columns.split, where)
    config = config.with_columns(split=None)
  folders = cells_lib.Column.of(path.rpartition('/')[0] for path in relative)
  if splits is None:
    splits = _splits_of_folders(relative, folders, where)
    notes = [*['splits are the folders of the images'] * bool(splits), *notes]
  rows_of = _repeated(relative)
  repeated = sum(len(rows) - 1 for rows in rows_of.values())
  if repeated:
    groups = config.group and groups_lib.clean(table[config.group])
    for what, names in (('splits', splits), ('groups', groups)):
      in_several = names and _find_conflict(
          rows_of.values(), names.__getitem__)[1]
      if in_several:
        raise ValueError(
            f'{relative[in_several[0]]} is in several {what} of {where}: '
            f'{", ".join(in_several[1])}. Training images must not be '
            f'evaluated on; remove it from all {what} but one.')
    if _has_several_labels(rows_of, relative, table, config, where=where):
      repeated = 0
      first = np.delete(np.arange(len(relative)), [
          row for rows in rows_of.values() for row in rows[1:]])
      relative = cells_lib.Texts.of(map(relative.__getitem__, first.tolist()))
      splits = splits and splits.take(first)
      label, = columns.labels
      cells = label_rules.split_cells(table[label], columns.separator)
      table = {name: cells_lib.Column.of(column).take(first)
               for name, column in table.items()}
      table[label] = cells_lib.Column.of([
          [value for one in rows_of.get(row, [row]) for value in cells[one]]
          for row in first.tolist()])
  relative = relative.share()
  return table_source.build(
      functools.partial(files.read, root, relative), relative.__getitem__,
      table, config, where=where, num_rows=len(relative), splits=splits,
      paths=links.Paths(root, relative, frozenset(linked)),
      unlabelled=_unused_folders(epath.Path(root), folders.cells), notes=[
          *notes, *[f'{repeated:,} rows repeat an image and its label']
          * bool(repeated)])


def _repeated(paths: cells_lib.Texts) -> dict[int, list[int]]:
  """Returns the rows of each repeated path, keyed by the first of them."""
  # Texts are only compared if their hashes are equal, to save memory.
  hashes = np.fromiter(map(hash, paths), np.int64, len(paths))
  ordered = np.sort(hashes)
  candidates = np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
  rows_of: dict[str, list[int]] = {}
  for row in np.flatnonzero(candidates).tolist():
    rows_of.setdefault(paths[row], []).append(row)
  return {rows[0]: rows for rows in rows_of.values() if len(rows) > 1}


def _has_several_labels(
    rows_of: Mapping[int, Sequence[int]], paths: cells_lib.Texts,
    table: table_source.Table, config: columns_lib.LabelConfig, *, where: str,
) -> bool:
  """Whether rows of an image have different labels, which `multi` joins.

  Raises a `ValueError` if the labels are not of that kind.
  """
  labels = config.table.labels
  count, conflict = _find_conflict(rows_of.values(), lambda row: '/'.join(
      str(table[name][row]) for name in labels))
  if conflict and (config.target != 'multi' or len(labels) > 1):
    row, found = conflict
    raise ValueError(
        f'{count:,} images of {where} have several rows with different '
        f'labels: {paths[row]} is {" and ".join(found)}. Remove the wrong row, '
        'or set --config.data.target=multi, which joins the rows.')
  return conflict is not None


def _splits_of_folders(
    paths: Sequence[str], folders: cells_lib.Column, where: str,
) -> cells_lib.Column | None:
  """Returns the splits of images in `train/`, `images/train/`, `cat/train/`."""
  parts = {folder: folder.split('/') for folder in folders.cells}
  for names in itertools.zip_longest(*parts.values(), fillvalue=''):
    found = {*split_strings.splits_of_folders({*names}).values()}
    if 'train' in found and len(found) > 1:
      name_of = dict(zip(parts, names))
      return split_strings.splits_by_folder(
          paths, folders.map(name_of.__getitem__), where=where)
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


def _find_conflict(
    groups: Iterable[Sequence[int]], value: Callable[[int], str],
) -> tuple[int, tuple[int, list[str]] | None]:
  """Returns how many groups have different values; a row of one, its values."""
  found = [(rows[0], values) for rows in groups
           if len(values := sorted(set(map(value, rows)))) > 1]
  return len(found), found[0] if found else None


def locate(
    cells: Iterable[Any], table: epath.Path, config: columns_lib.TableConfig,
    *, split: str = '', linked: set[str] | None = None,
) -> cells_lib.Texts:
  """Returns the paths of a table's images, from its column of paths.

  A file whose name differs in Unicode normalisation or case only is taken if no
  other one does.
  `linked` collects folders; see `links.file_lookup`.

  Raises:
    ValueError: if images are missing, with their number and the first ones.
  """
  # JSON may have numbers, such as image_id.
  written = cells_lib.Texts.of(
      str(cell).strip() if isinstance(cell, (str, int))
      and not isinstance(cell, bool) else '' for cell in cells)
  empty = [row for row, name in enumerate(written) if not name]
  if empty:
    raise ValueError(
        f'{len(empty):,} rows of {table} have no image path (the first: row '
        f'{empty[0] + 1}).')
  rename = lambda name: name.replace('\\', '/') + config.suffix
  for name in map(rename, written):
    files.check_address(name, where=str(table))
  exists = links.file_lookup(set() if linked is None else linked)
  finder, first = spelling.Finder(), list(map(rename, written[:20]))
  root, suffix = (_find_folder(first, table, config, exists, split)
                  or _find_folder(first, table, config, finder.alike, split)
                  or (table.parent / config.folder, ''))
  folder = os.fspath(root)  # Once: it is slow.
  missing: list[str] = []

  def join(name: str) -> str:
    return name + suffix if atomic_files.is_remote(name) else os.path.join(
        folder, os.path.normpath(name + suffix))

  def find(name: str) -> str:
    path = join(name)
    found = path if exists(path) else finder.find(path)
    if not found:
      missing.append(name + suffix + finder.hint(path).rstrip('.'))
    return found or path

  paths = cells_lib.Texts.of(map(find, map(rename, written)))
  # Rows that name such a file exactly have the better claim.
  missing += [path + finder.hint(path).rstrip('.')
              for path in finder.taken(map(join, map(rename, written)))]
  if missing:
    raise ValueError(
        f'{len(missing):,} of {len(paths):,} images of {table} do not exist: '
        f'{files.shorten(missing)}. Searched in {root}. Set the folder that '
        'relative paths start from (--config.data.table.folder=FOLDER) or '
        'their suffix (--config.data.table.suffix=.jpg), or remove these rows.'
        + files.advise_unpacking(table.parent))
  return paths


def _find_folder(
    names: Sequence[str], table: epath.Path, config: columns_lib.TableConfig,
    exists: Callable[[str], Any], split: str,
) -> tuple[epath.Path, str] | None:
  """Infers the folder that paths start from, and a missing suffix.

  None if no image exists.

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
      found = sum(bool(exists(os.fspath(root / folder / (name + suffix))))
                  for name in names)
      if found:
        ranks[folder, suffix] = -found, _preference(folder, split)
  if not ranks:
    return None
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
  return 1 if len(names) == 1 or names <= {
      *split_strings.VALIDATION} else 2
