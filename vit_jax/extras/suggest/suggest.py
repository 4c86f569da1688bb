"""Suggests settings for data beside the conventions of docs/data.md.

The only place with heuristics. They look at what is there and return texts with
flags to paste; none of them decides how data are read. The trunk raises these
texts: `advise` extends the error of data that do not open, and a question is
the error of data that may mean something else, unless `data.target` is
declared.
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
import pyarrow.parquet as pq

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import table_files
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

_PATHS = ('file_name', 'path', 'file', 'filename', 'filepath', 'filepaths',
          'file_path', 'image', 'image_path', 'image_file', 'img', 'img_path',
          'images', 'image_id', 'jpg', 'jpeg', 'png', 'picture', 'bytes')
_LABELS = ('label', 'labels', 'class', 'class_name', 'target', 'targets',
           'category', 'categories', 'cls', 'fine_label')
_SPLITS = ('split', 'subset', 'set', 'partition', 'data_set')
_IDS = ('key', 'id')
_WORDS = {'train': 'train', 'training': 'train', 'trn': 'train',
          'test': 'test', 'testing': 'test', 'val': 'val', 'valid': 'val',
          'validation': 'val', 'validate': 'val', 'dev': 'val', 'eval': 'val',
          'holdout': 'val'}
_ARCHIVES = ('.zip', '.tar', '.tgz', '.gz', '.bz2', '.xz', '.7z', '.rar')
_SEPARATORS = {'|': 0.0, ';': 0.05}  # More cells than this fraction have it.
_MAX_TEXTS = 0.1  # In a column of measurements, some cells may be mistyped.
_MAX_CLASSES, _ROWS_PER_CLASS = 100, 5
_ROWS = 1000  # Rows of a table that are looked at.
Flags = dict[str, str]


def _paste(flags: Flags) -> str:
  return ' '.join(f'--config.data.{name}={shlex.quote(value)}'
                  for name, value in flags.items())


def advise(
    path: epath.Path, config: columns_lib.LabelConfig, error: str) -> str:
  """Returns how to open a file or folder, to be added to an error."""
  if '--config.data.' in error:
    return ''
  if path.is_dir():
    return _advise_folder(path)
  if path.suffix.lower() in {*files.TABLE_SUFFIXES, '.parquet'}:
    return _advise_table(path, config)
  return ''


def question_labels(
    column: columns_lib.Column, title: str, *, trained: bool) -> str:
  """Returns what to declare if a column may hold no classes; '' if it does.

  A classifier that is `trained` needs several images of a class.
  """
  flags = _kind([column])
  if not flags:
    count = len({*map(columns_lib.clean, columns_lib.encode(
        column)[0])} - {None})
    return '' if not trained or count < max(3, len(column)) else (
        f'{title} has another cell in each of {count:,} rows, so it may hold '
        'no classes. To use another column:\n  --config.data.table.label=NAME\n'
        'To use the cells as names of classes:\n  --config.data.target=single')
  looks = 'numbers' if flags['target'] == 'regression' else 'several labels'
  return (f'{title} looks like {looks}, but one class per image was expected. '
          f'To use {looks}:\n  {_paste(flags)}\nTo use the cells as names of '
          'classes:\n  --config.data.target=single')


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


def _advise_table(path: epath.Path, config: columns_lib.LabelConfig) -> str:
  """Returns flags for a table, or Parquet files with images."""
  table = _head(path)
  return advise_columns(
      table, config, path, is_declared=b'huggingface' in (
          table.schema.metadata or {}))


def advise_columns(
    table: pa.Table, config: columns_lib.LabelConfig,
    path: epath.Path | None = None, *, is_declared: bool,
) -> str:
  """Returns flags for the columns of a table.

  Args:
    table: its first rows.
    config: the section.
    path: the file, if it may be a table of paths.
    is_declared: whether its data declare the column of images.
  """
  images = [field.name for field in table.schema if pa.types.is_struct(
      field.type) or pa.types.is_binary(field.type)]
  table = table.drop_columns(images)
  if any(map(files.is_image, table.column_names)):
    return ' Is the first line a header? Add one: file_name,label'
  flags = _for_table(table, config, None if images else path)
  if images and not (is_declared or config.table.path):
    flags = {'table.path': _find(images, _PATHS) or images[0], **(flags or {})}
  if flags and 'FOLDER' not in flags.values():
    return f' To use them:\n  {_paste(flags)}'
  unpack = _unpack(path.parent) if path else ''
  if flags == {}:
    return (' If its paths lack a folder or a suffix, add '
            '--config.data.table.folder=FOLDER or '
            '--config.data.table.suffix=.jpg; otherwise, remove the rows of '
            f'missing images.{unpack}')
  return (' No column is an obvious choice. Name the columns '
          '(--config.data.table.path=COLUMN --config.data.table.label=COLUMN), '
          'and what is missing of the paths: their folder '
          '(--config.data.table.folder=FOLDER) or suffix '
          f'(--config.data.table.suffix=.jpg).{unpack}')


def _head(path: epath.Path) -> pa.Table:
  """Returns the first rows of a table."""
  if path.suffix != '.parquet':
    return table_files.read(path, limit=_ROWS)
  return pa.Table.from_batches([next(pq.ParquetFile(path).iter_batches(_ROWS))])


def _for_table(
    table: pa.Table, config: columns_lib.LabelConfig, path: epath.Path | None,
) -> Flags | None:
  """Returns the flags for a table beside those given; None if unknown.

  `path` is that of a table of paths.
  """
  names, given = table.column_names, config.table
  image, place = None, Flags()
  if path is not None:
    first = {name: table[name].slice(0, 20).to_pylist() for name in names}
    places = {name: _place(first[name], path.parent, given) for name in names}
    image = given.path or _find(names, _PATHS) or next((
        name for test in (
            lambda name: all(map(files.is_image, first[name])),
            lambda name: 'FOLDER' not in places[name].values())
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
  # Images with the same names in two folders: only the user knows which.
  if not found[folder, suffix] or [*found.values()].count(
      found[folder, suffix]) > 1:
    return {'table.folder': 'FOLDER'}
  return {name: value for name, value, old in (
      ('table.folder', folder and _shown(root / folder), given.folder),
      ('table.suffix', suffix, given.suffix)) if value != old and not old}


def _shown(path: epath.PathLike) -> str:
  """Returns a path from here; with './', it is no name of a dataset."""
  text = files.relative_path(os.fspath(path), os.getcwd())
  return text if os.path.isabs(text) or '://' in text else f'./{text}'


# --------------------------------------------------------------------- folders


def _advise_folder(root: epath.Path) -> str:
  """Returns flags for a folder that has no usual layout."""
  if found := next(_for_folder(root), None):
    return f' To use it:\n  {_paste(found)}'
  if not files.has_images(root):
    return (f'{_unpack(root)} Image files have one of the suffixes '
            f'{" ".join(sorted(files.IMAGE_SUFFIXES))}.')
  if tables := files.files_with(root, files.TABLE_SUFFIXES):
    return f' To use it:\n  {_paste({"source": _shown(tables[0])})}'
  return f' Without labels:\n  {_paste({"target": "none"})}'


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
  found: dict[str, Flags] = {}
  for place in ['', *filter(_word, files.subfolders(root))]:
    for path in files.files_with(root / place, files.TABLE_SUFFIXES):
      with contextlib.suppress(UserError):  # It is malformed.
        flags = _for_table(_head(path), columns_lib.DEFAULT, path)
        if flags is not None and 'FOLDER' not in flags.values():
          found[os.path.join(place, path.name)] = flags
  chosen = _pair([*found]) or [*found][:1]
  return {**{flag: _shown(root / path) for flag, path in zip(
      ('source', 'val_source'), chosen)}, **(found[chosen[0]] if found else {})}


def question_folder(root: epath.Path, paths: Sequence[str]) -> str:
  """Returns what to declare if class folders may be splits, or of a table.

  `paths` are those of the images. Returns '' if there is no doubt.
  """
  inside: dict[str, set[str]] = {}  # '' for an image of the class itself.
  for name, *below in (path.split('/')[:-1] for path in paths if '/' in path):
    inside.setdefault(name, set()).add(below[0] if below else '')
  if files.files_with(root, files.TABLE_SUFFIXES) and (flags := _tables(root)):
    return (f'{root} holds {os.path.basename(flags["source"])}, a table of its '
            f'images. To use the table:\n  {_paste(flags)}\nTo use folders as '
            'classes:\n  --config.data.target=single')
  counts = collections.Counter(
      name for below in inside.values() for name in below if name)
  shared = sorted(name for name, count in counts.items() if count > 1)
  pair = _pair([*inside])
  are_splits = pair and all(map(_word, inside))
  are_nested = not all('' in below for below in inside.values())
  if not are_splits and not (are_nested and (len(shared) > 1 or pair)):
    return ''
  same = f' with the same names ({files.shorten(shared)})' * bool(shared)
  what = ('are named like splits' if are_splits else
          f'have subfolders{same}, so either level may be the classes')
  return (f'{root}/{{{files.shorten(sorted(inside))}}} {what}. ' + (
      f'If these are splits:\n  {_paste(next(_for_folder(root)))}\n'
      if pair else 'Name one of them as data.source. ')
          + 'If they are the classes:\n  --config.data.target=single')


def question_files(paths: Sequence[epath.Path]) -> str:
  """Returns what to declare if splits are not the first words of file names.

  Returns '' if there is no doubt.
  """
  pair = _pair([path.name for path in paths])
  if not pair or any(map(split_strings.find_in_file, paths)):
    return ''
  flags = {flag: _shown(paths[0].parent / re.sub(r'\d+', '*', name))
           for flag, name in zip(('source', 'val_source'), pair)}
  return (f'Files of {paths[0].parent} have names of splits, but not as their '
          'first word, as train-0.tar and val-0.tar. To use them:\n  '
          f'{_paste(flags)}')


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
