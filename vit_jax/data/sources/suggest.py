"""Suggests settings for data beside the conventions of docs/data.md.

The only place with heuristics. They look at what is there and print flags to
paste; none of them decides how data are read. Labels that look like those of
another kind are an error only if `data.target` is not declared.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence, Set
import contextlib
import os
import re
import shlex
from typing import Any

from etils import epath
import numpy as np
import pyarrow as pa

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

_PATHS = ('path', 'file', 'filename', 'filepath', 'filepaths', 'file_path',
          'image', 'image_path', 'image_file', 'img', 'img_path', 'images',
          'image_id', 'jpg', 'jpeg', 'png', 'picture', 'bytes')
_LABELS = ('label', 'labels', 'class', 'class_name', 'target', 'targets',
           'category', 'categories', 'cls', 'fine_label')
_SPLITS = ('split', 'subset', 'set', 'partition', 'data_set')
_IDS = ('key', 'id')
_WORDS = {'train': 'train', 'training': 'train', 'trn': 'train',
          'test': 'test', 'testing': 'test', 'val': 'val', 'valid': 'val',
          'validation': 'val', 'dev': 'val', 'eval': 'val', 'holdout': 'val'}
_ARCHIVES = ('.zip', '.tar', '.tgz', '.gz', '.bz2', '.xz', '.7z', '.rar')
_MIN_SEPARATED = 0.05  # In a smaller fraction of cells, ';' is part of a name.
_MIN_NUMBERS = 0.9  # In a column of measurements, some cells may be mistyped.
_MAX_CLASSES, _ROWS_PER_CLASS = 100, 5
_ROWS, _UNKNOWN = 1000, 'FOLDER'  # Rows of a table that are looked at.
Flags = dict[str, str]


def _paste(flags: Flags) -> str:
  return ' '.join(f'--config.data.{name}={shlex.quote(value)}'
                  for name, value in flags.items())


def check_single(
    column: columns_lib.Column, config: columns_lib.LabelConfig, *, what: str,
) -> None:
  """Raises `NoLabels` if a column looks like numbers or several labels."""
  if not config.target and (flags := _kind([column])):
    looks = 'numbers' if flags['target'] == 'regression' else 'several labels'
    raise protocol.NoLabels(
        f'{what} looks like {looks}, but one class per image was expected. To '
        f'use {looks}:\n  {_paste(flags)}\nTo use the cells as names of classes'
        ':\n  --config.data.target=single')


def _kind(columns: Sequence[columns_lib.Column]) -> Flags:
  """Returns the flags for labels that are not one class per image."""
  if any(pa.types.is_nested(column.type) for column in columns):
    return {'target': 'multi'}
  if len(columns) > 1:
    if not all(map(_is_flags, columns)):
      return {'target': 'regression'}
    ones = np.sum([columns_lib.apply(column, columns_lib.to_flag, int)
                   for column in columns], axis=0)
    return {} if (ones == 1).all() else {'target': 'multi'}
  cells, codes = columns_lib.encode(columns[0])
  counts = np.bincount(codes, minlength=len(cells))
  share = lambda test: np.dot(counts, [*map(test, cells)]) / len(codes)
  for separator, least in (('|', 0.0), (';', _MIN_SEPARATED)):
    with_it = share(lambda cell, mark=separator: mark in str(cell))
    if with_it > 0 and with_it >= least:
      return {'target': 'multi', 'table.separator': separator}
  numbers = {number for cell in cells if (number := _number(cell)) is not None}
  texts = share(lambda cell: columns_lib.clean(cell) is not None
                and _number(cell) is None)
  is_fraction = any(value % 1 or value < -1 for value in numbers)
  are_many = not texts and len(numbers) > _MAX_CLASSES and (
      len(codes) < _ROWS_PER_CLASS * len(numbers))
  return {'target': 'regression'} if (
      is_fraction and texts <= 1 - _MIN_NUMBERS) or are_many else {}


def _is_flags(column: columns_lib.Column) -> bool:
  return not pa.types.is_nested(column.type) and None not in map(
      columns_lib.to_flag, columns_lib.encode(column)[0])


def _number(cell: Any) -> float | None:
  cell = columns_lib.clean(cell)
  if isinstance(cell, str) and not columns_lib.NUMBER.fullmatch(cell):
    return None
  return float(cell) if isinstance(cell, (int, float, str)) else None


# ---------------------------------------------------------------------- tables


def columns(
    table: pa.Table, config: columns_lib.LabelConfig, *, where: str,
    has_paths: bool,
) -> str:
  """Returns the error for a table without the usual or declared columns."""
  roles = {**({'path': columns_lib.PATHS[0]} if has_paths else {}),
           **({'label': columns_lib.LABEL} if config.target != 'none' else {})}
  expected = [str(getattr(config.table, role) or usual)
              for role, usual in roles.items()]
  text = (f'{where} has the columns {", ".join(table.column_names)}, but '
          f'{" and ".join(expected)} {("was", "were")[len(expected) > 1]} '
          'expected.')
  if any(map(files.is_image, table.column_names)):
    return f'{text} Is the first line a header? Add one: file_name,label'
  path = epath.Path(where) if has_paths and os.path.isfile(where) else None
  flags = _for_table(table.slice(0, _ROWS), config, path, has_paths)
  if flags is not None:
    return f'{text} To use them:\n  {_paste(flags)}'
  return f'{text} No column is an obvious choice. Name them: ' + ' '.join(
      f'--config.data.table.{role}=COLUMN' for role in roles)


def image_column(
    found: Sequence[str], rest: pa.Table, config: columns_lib.LabelConfig, *,
    where: str,
) -> str:
  """Returns the error if not one of the columns is declared as images."""
  name = _find(found, _PATHS) or (found[0] if found else 'COLUMN')
  labels = _for_table(rest.slice(0, _ROWS), config, None, False) or {}
  return (f'{where} does not declare one column of images; they may be in: '
          f'{", ".join(found)}. To use one:\n  '
          + _paste({'table.path': name, **labels}))


def folder_of_images(
    table: pa.Table, path: epath.Path, config: columns_lib.LabelConfig,
) -> str:
  """Returns what to set if images of a table do not exist."""
  flags = _for_table(table.slice(0, _ROWS), config, path, True)
  if flags and _UNKNOWN not in flags.values():
    return f' To use those that do:\n  {_paste(flags)}'
  return (' Set their folder (--config.data.table.folder=FOLDER) or suffix '
          '(--config.data.table.suffix=.jpg), or remove these rows.'
          + _unpack(path.parent))


def _for_table(
    table: pa.Table, config: columns_lib.LabelConfig, path: epath.Path | None,
    has_paths: bool,
) -> Flags | None:
  """Returns the flags for a table beside those given; None if unknown."""
  names, given, flags = table.column_names, config.table, Flags()
  image = None
  if has_paths:
    first = {name: table[name].slice(0, 20).to_pylist() for name in names}
    tests = [lambda cells: all(map(files.is_image, cells))]
    if path is not None:
      tests.append(lambda cells: _UNKNOWN not in _place(
          cells, path.parent, given).values())
    image = given.path or _find(names, ('file_name', *_PATHS)) or next((
        name for test in tests for name in names if test(first[name])), None)
    if image is None:
      return None
    if not given.path and image not in columns_lib.PATHS:
      flags['table.path'] = image
  split = given.split or _find(names, _SPLITS)
  if split and not given.split and split != columns_lib.SPLIT:
    flags['table.split'] = split
  if config.target != 'none':
    labels = given.labels or _label_columns(
        table, {image, split, config.group, _find(names, _IDS)})
    if not labels:
      return None
    if not given.labels and labels != (columns_lib.LABEL,):
      flags['table.label'] = ','.join(labels)
    if not config.target:
      flags |= _kind([table[name] for name in labels])
  if path is not None and image is not None:
    flags |= _place(first[image], path.parent, given)
  return flags


def _label_columns(
    table: pa.Table, others: Set[str | None]) -> tuple[str, ...]:
  """Returns a column with a usual name, the only one, or all flags."""
  left = [name for name in table.column_names if name not in others]
  if named := _find(left, _LABELS):
    return named,
  return tuple(left) if len(left) == 1 or all(
      _is_flags(table[name]) for name in left) else ()


def _find(names: Sequence[str], known: Sequence[str]) -> str | None:
  plain = {re.sub(r'[ -]', '_', name.strip().lower()): name for name in names}
  return next((plain[name] for name in known if name in plain), None)


def _place(
    cells: Sequence[Any], root: epath.Path, given: columns_lib.TableConfig,
) -> Flags:
  """Returns the folder that paths start from and their suffix, if not usual."""
  names = [str(cell).strip().replace('\\', '/') for cell in cells]
  suffixes = [given.suffix] if given.suffix or any(map(
      files.is_image, names)) else ['', *sorted(files.IMAGE_SUFFIXES)]
  folders = [os.path.abspath(given.folder)] if given.folder else [
      '', *files.subfolders(root)]
  found = {(folder, suffix): sum(
      os.path.exists(root / folder / (name + suffix)) for name in names)
           for folder in folders for suffix in suffixes}
  folder, suffix = max(found, key=lambda place: found[place])
  if not found[folder, suffix]:
    return {'table.folder': _UNKNOWN}
  return {name: value for name, value, old in (
      ('table.folder', folder and _shown(root / folder), given.folder),
      ('table.suffix', suffix, given.suffix)) if value != old and not old}


def _shown(path: epath.PathLike) -> str:
  """Returns a path from here; with './', it is no name of a dataset."""
  text = files.relative_path(os.fspath(path), os.getcwd())
  return text if os.path.isabs(text) or '://' in text else f'./{text}'


# --------------------------------------------------------------------- folders


def folder(
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
             'and class folders in train.')
  text += (f' Expected {root}/CLASS/*.jpg, {root}/train/CLASS/*.jpg (or val, '
           'test), metadata.csv, Parquet or tar files (docs/data.md).')
  if found := next(_for_folder(root), None):
    return f'{text} To use it:\n  {_paste(found)}'
  if not files.has_images(root):
    return (f'{text}{_unpack(root)} Image files have one of the suffixes '
            f'{" ".join(sorted(files.IMAGE_SUFFIXES))}.')
  if tables := files.files_with(root, files.TABLE_SUFFIXES):
    return f'{text} To use it:\n  {_paste({"source": _shown(tables[0])})}'
  return f'{text} Without labels:\n  {_paste({"target": "none"})}'


def _for_folder(root: epath.Path) -> Iterator[Flags]:
  """Yields flags for a folder, the most likely first."""
  folders = files.subfolders(root)
  if {'images', 'masks'} <= {*folders}:
    yield {'target': 'masks'}
  if found := _tables(root):
    yield found
  if pair := _pair([name for name in folders if files.has_images(root / name)]):
    yield {flag: _shown(root / name / (  # Or unpacked into its own name.
        name if files.subfolders(root / name) == [name] else ''))
           for flag, name in zip(('source', 'val_source'), pair)}
  for name in folders:
    place = root / name
    while len(inner := files.subfolders(place)) == 1:
      place = place / inner[0]
    if sum(files.has_images(place / name) for name in inner) > 1:
      yield {'source': _shown(place)}


def _tables(root: epath.Path) -> Flags:
  """Returns the flags for tables in a folder, or one of each split."""
  from vit_jax.data.sources import table_files
  found = {}
  for path in files.files_with(root, files.TABLE_SUFFIXES) + [
      path for name in files.subfolders(root) if _word(name)
      for path in files.files_with(root / name, files.TABLE_SUFFIXES)]:
    with contextlib.suppress(ValueError):  # It is malformed.
      flags = _for_table(table_files.read(path, limit=_ROWS),
                         columns_lib.DEFAULT, path, True)
      if flags is not None and _UNKNOWN not in flags.values():
        found[path] = flags
  by_split = {_word(path.stem) or _word(path.parent.name): path
              for path in found}
  if 'train' in by_split and len(by_split) > 1:
    other = next(by_split[name] for name in ('test', 'val', *by_split)
                 if name in by_split and name != 'train')
    train = by_split['train']
    return {'source': _shown(train), 'val_source': _shown(other),
            **found[train]} if found[train] == found[other] else {}
  path = next(iter(found), None)
  return {} if path is None else {'source': _shown(path), **found[path]}


def check_folders(root: epath.Path, inside: Mapping[str, Set[str]]) -> None:
  """Raises `NoLabels` if class folders may be splits, or images of a table.

  `inside` has the subfolders of each class that hold images, '' for itself.
  """
  flags = _tables(root) if files.files_with(root, files.TABLE_SUFFIXES) else {}
  if flags:
    raise protocol.NoLabels(
        f'{root} holds {os.path.basename(flags["source"])}, a table of its '
        f'images. To use the table:\n  {_paste(flags)}\nTo use folders as '
        'classes:\n  --config.data.target=single')
  with_images = {name for name, below in inside.items() if '' in below}
  counts = collections.Counter(
      name for below in inside.values() for name in below if name)
  shared = sorted(name for name, count in counts.items() if count > 1)
  pair = _pair([*inside])
  are_splits = pair and all(map(_word, inside))
  if are_splits or (with_images < {*inside} and (len(shared) > 1 or pair)):
    same = f' with the same names ({files.shorten(shared)})' * bool(shared)
    what = ('are named like splits' if are_splits else
            f'have subfolders{same}, so either level may be the classes')
    raise protocol.NoLabels(
        f'{root}/{{{files.shorten(sorted(inside))}}} {what}. ' + (
            f'If these are splits:\n  {_paste(next(_for_folder(root)))}\n'
            if pair else 'Name one of them as data.source. ')
        + 'If they are the classes:\n  --config.data.target=single')


def _pair(names: Sequence[str]) -> tuple[str, str] | None:
  """Returns the folders of training and evaluation."""
  found = {_word(name): name for name in reversed(names) if _word(name)}
  other = found.get('test') or found.get('val')
  return (found['train'], other) if other and 'train' in found else None


def _word(name: str) -> str | None:
  """Returns the split that is a word of a name: 'test' of 'seg_test-01'."""
  words = re.split(r'[-_.\s\d]+', name.lower())
  return next((_WORDS[word] for word in words if word in _WORDS), None)


def _unpack(root: epath.Path) -> str:
  """Returns a sentence that names the archives in a folder; '' without."""
  found = [os.path.join(name, path.name) for name in ('', *files.subfolders(
      root)) for path in files.files_with(root / name, _ARCHIVES)]
  return f' Unpack {files.shorten(found)} first.' if found else ''


def check_files(paths: Sequence[epath.Path], *, where: str) -> None:
  """Raises a ValueError if names of files contain splits in another place."""
  of_word: dict[str | None, list[str]] = {}
  for path in paths:
    of_word.setdefault(_word(path.stem), []).append(path.name)
  other = next(filter(of_word.get, ('test', 'val')), None)
  if not other or 'train' not in of_word or any(
      map(split_strings.find_in_file, paths)):
    return
  suffix, folder = paths[0].suffix, paths[0].parent
  flags = {}
  for name, split in (('source', 'train'), ('val_source', other)):
    first, *more = of_word[split]
    flags[name] = _shown(folder / (
        f'{os.path.commonprefix([first, *more])}*{suffix}'  # noqa: RUF071
        if more else first))
  raise ValueError(
      f'Files of {where} have names of splits, but not as their first word '
      f'(train-0{suffix}, val-0{suffix}). To use them:\n  {_paste(flags)}')
