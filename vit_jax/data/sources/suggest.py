"""Suggests settings for data beside the conventions of docs/data.md.

The only place with heuristics. They look at what is there and print flags to
paste; none of them decides how data are read. Labels that look like those of
another kind are an error only if `data.target` is not declared.
"""

import collections
from collections.abc import Iterator, Sequence
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

_PATHS = ('file_name', 'path', 'file', 'filename', 'filepath', 'filepaths',
          'file_path', 'image', 'image_path', 'image_file', 'img', 'img_path',
          'images', 'image_id', 'jpg', 'jpeg', 'png', 'picture', 'bytes')
_LABELS = ('label', 'labels', 'class', 'class_name', 'target', 'targets',
           'category', 'categories', 'cls', 'fine_label')
_SPLITS = ('split', 'subset', 'set', 'partition', 'data_set')
_IDS = ('key', 'id')
_WORDS = {'train': 'train', 'training': 'train', 'trn': 'train',
          'test': 'test', 'testing': 'test', 'val': 'val', 'valid': 'val',
          'validation': 'val', 'dev': 'val', 'eval': 'val', 'holdout': 'val'}
_ARCHIVES = ('.zip', '.tar', '.tgz', '.gz', '.bz2', '.xz', '.7z', '.rar')
_SEPARATORS = {'|': 0.0, ';': 0.05}  # More cells than this fraction have it.
_MAX_TEXTS = 0.1  # In a column of measurements, some cells may be mistyped.
_MAX_CLASSES, _ROWS_PER_CLASS = 100, 5
_ROWS = 1000  # Rows of a table that are looked at.
Flags = dict[str, str]


def _paste(flags: Flags) -> str:
  return ' '.join(f'--config.data.{name}={shlex.quote(value)}'
                  for name, value in flags.items())


def check_single(column: columns_lib.Column, *, what: str) -> None:
  """Raises `NoLabels` if a column looks like numbers or several labels."""
  if flags := _kind([column]):
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
  share = lambda of: np.mean(np.array([*of], float)[codes])
  for separator, most in _SEPARATORS.items():
    if share(separator in str(cell) for cell in cells) > most:
      return {'target': 'multi', 'table.separator': separator}
  cells = [*map(columns_lib.clean, cells)]
  numbers = [*map(columns_lib.to_number, cells)]
  values = {number for number in numbers if number is not None}
  texts = share(number is None and cell is not None
                for cell, number in zip(cells, numbers))
  is_fraction = any(value % 1 or value < -1 for value in values)
  are_many = not texts and len(values) > max(
      _MAX_CLASSES, len(codes) / _ROWS_PER_CLASS)
  return {'target': 'regression'} if (
      is_fraction and texts <= _MAX_TEXTS) or are_many else {}


def _is_flags(column: columns_lib.Column) -> bool:
  return not pa.types.is_nested(column.type) and None not in map(
      columns_lib.to_flag, columns_lib.encode(column)[0])


# ---------------------------------------------------------------------- tables


def columns(
    table: pa.Table, config: columns_lib.LabelConfig, *, where: str,
    has_paths: bool, images: Sequence[str] = (),
) -> str:
  """Returns the error for a table without the usual or declared columns.

  `images` are columns of bytes, of which none is declared as images.
  """
  roles = {**({'path': columns_lib.PATHS[0]} if has_paths else {}),
           **({'label': columns_lib.LABEL} if config.target != 'none' else {})}
  expected = [str(getattr(config.table, role) or usual)
              for role, usual in roles.items()]
  text = (f'{where} has the columns {", ".join(table.column_names)}, but '
          f'{" and ".join(expected)} {("was", "were")[len(expected) > 1]} '
          'expected.')
  if images:
    text = (f'{where} does not declare one column of images; they may be in: '
            f'{", ".join(images)}.')
  if any(map(files.is_image, table.column_names)):
    return f'{text} Is the first line a header? Add one: file_name,label'
  path = epath.Path(where) if has_paths and os.path.isfile(where) else None
  flags = _for_table(table.slice(0, _ROWS), config, path, has_paths)
  if images:
    flags = {'table.path': _find(images, _PATHS) or images[0], **(flags or {})}
  if flags is not None:
    return f'{text} To use them:\n  {_paste(flags)}'
  return f'{text} No column is an obvious choice. Name them: ' + ' '.join(
      f'--config.data.table.{role}=COLUMN' for role in roles)


def folder_of_images(
    table: pa.Table, path: epath.Path, config: columns_lib.LabelConfig,
) -> str:
  """Returns what to set if images of a table do not exist."""
  flags = _for_table(table.slice(0, _ROWS), config, path, True)
  if flags and 'FOLDER' not in flags.values():
    return f' To use those that do:\n  {_paste(flags)}'
  return (' Set their folder (--config.data.table.folder=FOLDER) or suffix '
          '(--config.data.table.suffix=.jpg), or remove these rows.'
          + _unpack(path.parent))


def _for_table(
    table: pa.Table, config: columns_lib.LabelConfig, path: epath.Path | None,
    has_paths: bool,
) -> Flags | None:
  """Returns the flags for a table beside those given; None if unknown."""
  names, given = table.column_names, config.table
  image, place = None, Flags()
  if has_paths:
    first = {name: table[name].slice(0, 20).to_pylist() for name in names}
    places = {name: _place(first[name], path.parent, given) if path else Flags()
              for name in names}
    image = given.path or _find(names, _PATHS) or next((
        name for test in (
            lambda name: all(map(files.is_image, first[name])),
            lambda name: path and 'FOLDER' not in places[name].values())
        for name in names if test(name)), None)
    if image is None:
      return None
    place = places[image]
  split, labels = given.split or _find(names, _SPLITS), given.labels
  kind = Flags()
  if config.target != 'none':
    labels = labels or _label_columns(
        table, (image, split, config.group, _find(names, _IDS)))
    if not labels:
      return None
    if not config.target:
      kind = _kind([table[name] for name in labels])
  chosen = {'path': image, 'split': split, 'label': ','.join(labels)}
  usual = (*columns_lib.PATHS, columns_lib.SPLIT, columns_lib.LABEL)
  return {**{f'table.{role}': name for role, name in chosen.items()
             if name and not getattr(given, role) and name not in usual},
          **kind, **place}


def _label_columns(
    table: pa.Table, others: Sequence[str | None]) -> tuple[str, ...]:
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
      os.path.isfile(root / folder / (name + suffix)) for name in names)
           for folder in folders for suffix in suffixes}
  folder, suffix = max(found, key=lambda place: found[place])
  if not found[folder, suffix]:
    return {'table.folder': 'FOLDER'}
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
  """Returns the flags for a table in a folder, or for one of each split."""
  from vit_jax.data.sources import table_files
  found: dict[str, Flags] = {}
  for place in ['', *filter(_word, files.subfolders(root))]:
    for path in files.files_with(root / place, files.TABLE_SUFFIXES):
      with contextlib.suppress(ValueError):  # It is malformed.
        flags = _for_table(table_files.read(path, limit=_ROWS),
                           columns_lib.DEFAULT, path, True)
        if flags is not None and 'FOLDER' not in flags.values():
          found[os.path.join(place, path.name)] = flags
  chosen = _pair([*found]) or [*found][:1]
  return {**{flag: _shown(root / path) for flag, path in zip(
      ('source', 'val_source'), chosen)}, **(found[chosen[0]] if found else {})}


def check_folders(root: epath.Path, paths: Sequence[str]) -> None:
  """Raises `NoLabels` if class folders may be splits, or images of a table.

  `paths` are those of the images.
  """
  if files.files_with(root, files.TABLE_SUFFIXES) and (flags := _tables(root)):
    raise protocol.NoLabels(
        f'{root} holds {os.path.basename(flags["source"])}, a table of its '
        f'images. To use the table:\n  {_paste(flags)}\nTo use folders as '
        'classes:\n  --config.data.target=single')
  inside: dict[str, set[str]] = {}  # '' for an image of the class itself.
  for name, *below in (path.split('/')[:-1] for path in paths if '/' in path):
    inside.setdefault(name, set()).add(below[0] if below else '')
  counts = collections.Counter(
      name for below in inside.values() for name in below if name)
  shared = sorted(name for name, count in counts.items() if count > 1)
  pair = _pair([*inside])
  are_splits = pair and all(map(_word, inside))
  are_nested = not all('' in below for below in inside.values())
  if are_splits or (are_nested and (len(shared) > 1 or pair)):
    same = f' with the same names ({files.shorten(shared)})' * bool(shared)
    what = ('are named like splits' if are_splits else
            f'have subfolders{same}, so either level may be the classes')
    raise protocol.NoLabels(
        f'{root}/{{{files.shorten(sorted(inside))}}} {what}. ' + (
            f'If these are splits:\n  {_paste(next(_for_folder(root)))}\n'
            if pair else 'Name one of them as data.source. ')
        + 'If they are the classes:\n  --config.data.target=single')


def check_files(paths: Sequence[epath.Path], *, where: str) -> None:
  """Raises a ValueError if names of files contain splits in another place."""
  pair = _pair([path.name for path in paths])
  if pair and not any(map(split_strings.find_in_file, paths)):
    flags = {flag: _shown(paths[0].parent / re.sub(r'\d+', '*', name))
             for flag, name in zip(('source', 'val_source'), pair)}
    raise ValueError(
        f'Files of {where} have names of splits, but not as their first word, '
        f'as train-0.tar and val-0.tar. To use them:\n  {_paste(flags)}')


def _pair(names: Sequence[str]) -> list[str]:
  """Returns the names of training and evaluation; [] without both."""
  found = {_word(name): name for name in reversed(names) if _word(name)}
  other = found.get('test') or found.get('val')
  return [found['train'], other] if other and 'train' in found else []


def _word(name: str) -> str | None:
  """Returns the split that is a word of a name: 'test' of 'seg_test-01'."""
  words = re.split(r'[-_.\s\d/]+', name.lower())
  return next((_WORDS[word] for word in words if word in _WORDS), None)


def _unpack(root: epath.Path) -> str:
  """Returns a sentence that names the archives in a folder; '' without."""
  found = [os.path.join(name, path.name) for name in ('', *files.subfolders(
      root)) for path in files.files_with(root / name, _ARCHIVES)]
  return f' Unpack {files.shorten(found)} first.' if found else ''
