"""WebDataset shards: tar files with a `KEY.cls` for each `KEY.jpg`.

    train-000000.tar:  n01/1.jpg  n01/1.cls  n01/2.jpg  n01/2.cls ...

A member's key is its path up to the first dot of its name
(https://github.com/webdataset/webdataset). The label is the text of the member
`.cls`, an index from 0 or a name, or a value of `.json`. Each shard is scanned
once, headers and labels only, and images are then read at their offsets.
`datasets` would copy all images to a cache.
"""

from collections.abc import Iterator, Sequence
import os
import tarfile
from typing import Any, BinaryIO

from etils import epath
import pyarrow as pa
import pyarrow.compute as pc

from vit_jax import exceptions
from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source
from vit_jax.exceptions import UserError
from vit_jax.extras.shards import file_keys
from vit_jax.extras.shards import offset_index

_LABEL = 'cls'


def open_tars(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens tar files; scans those without an index.

  Raises:
    UserError: if a file is damaged, or labels are invalid.
  """
  indices = offset_index.load_or_build(paths, _scan, kind='tar')
  # Labels without an image come first.
  unused = [pc.sum(pc.less(one['start'], 0)).as_py() or 0 for one in indices]
  found = [one.slice(count) for one, count in zip(indices, unused)]
  notes = ['labels without an image that can be read: ' + files.shorten(
      f'{count:,} in {path.name}' for path, count in zip(paths, unused)
      if count)] * any(unused)
  images = pa.concat_tables(found)
  if not len(images):
    raise UserError(
        f'{where} holds no images. Expected members KEY.jpg (or .png, .webp, '
        f'...) and KEY.cls. {"".join(notes)}'.strip())
  records, keys = offset_index.Records.join(paths, found), images['key']
  shards = [os.path.splitext(name)[0] for name in files.relative_names(paths)]
  columns = _choose_columns(images, config, where)
  if columns['splits'] is None:
    columns['splits'] = file_keys.splits_of_files(
        paths, [*map(len, found)], where=where)
  # Equal keys may be the same image: hash splits keep them together.
  return table_source.build(table_source.Images(
      where=where, read=records.read, notes=notes, **columns,
      keys=file_keys.FileKeys(shards, records.ends, keys),
      class_names=_indices(columns['labels'].get(_LABEL)),
      group_of=lambda row: str(keys[row])), config)


def _choose_columns(
    images: pa.Table, config: columns_lib.LabelConfig, where: str,
) -> dict[str, Any]:
  """Returns labels (`.cls`, or values of `.json`), splits and groups."""
  names = config.table.labels if config.target != 'none' else ()
  if config.target != 'none' and not names and (
      images[_LABEL].null_count == len(images)):
    raise protocol.NoLabels(
        f'The images of {where} have no labels. Expected a member KEY.cls for '
        'each KEY.jpg, or a value of KEY.json: --config.data.table.label=NAME')
  values = _read_json(images, where) if (
      names or config.table.split or config.group) else images

  def column(name: str | None) -> columns_lib.Column | None:
    return values[schema.check_name(
        name, values.column_names, what=f'key of the JSON of {where}')] if (
            name) else None

  labels = {name: column(name) for name in names} or {_LABEL: images[_LABEL]}
  return {'labels': labels if config.target != 'none' else {},
          'splits': column(config.table.split), 'groups': column(config.group)}


def _indices(column: columns_lib.Column | None) -> list[str] | None:
  """Returns '0' to the largest label, if all are integers, else None."""
  cells = [] if column is None else columns_lib.encode(column)[0]
  found = [columns_lib.to_integer(cell)
           for cell in map(columns_lib.clean, cells) if cell is not None]
  return None if None in found or not found else [
      *map(str, range(max(found) + 1))]  # type: ignore


def _read_json(images: pa.Table, where: str) -> pa.Table:
  """Returns the values of `.json` members by key."""
  rows = []
  for key, text in zip(images['key'], images['json']):
    with exceptions.within(f'{key}.json of {where} is not JSON'):
      rows.append(untrusted.parse_json(text.as_py() or '{}'))
    if not isinstance(rows[-1], dict):
      raise UserError(f'{key}.json of {where} must be an object.')
  return table_files.to_table(rows, where=f'{where} (JSON)')


# --------------------------------------------------------------------- the scan


def _scan(path: epath.Path) -> pa.Table:
  """Returns keys, offsets and sizes of a shard's images, and their labels.

  Labels without an image have the offset -1.
  """
  rows: dict[str, dict[str, Any]] = {}
  with offset_index.open_parts(path) as file:
    for member in _members(file, path):
      key, kind = _split_name(member.name)
      is_image = f'.{kind.rpartition(".")[2]}' in files.IMAGE_SUFFIXES
      if not (is_image or kind in (_LABEL, 'json')) or not key or (
          key.endswith('/')):
        continue  # Not an example, or a hidden file.
      if not member.isfile():
        raise UserError(
            f'{path} holds the link {member.name!r}. Write it with the files '
            'themselves: tar --dereference --hard-dereference -cf ...')
      row = rows.setdefault(key, {'key': key, 'start': -1, 'size': 0})
      if (row['start'] >= 0) if is_image else (kind in row):
        raise UserError(
            f'{path} holds {member.name!r} and another '
            f'{"image" if is_image else "label"} of {key!r}. Give each image '
            'its own key, the name up to its first dot.')
      if is_image:
        row |= {'start': member.offset_data, 'size': member.size}
      else:
        file.seek(member.offset_data)
        with exceptions.naming(f'{member.name} in {path}'):
          row[kind] = file.read(member.size).decode().strip()
  order = sorted(rows.values(), key=lambda row: row['start'])
  with exceptions.naming(f'A name in {path} is not UTF-8'):
    return pa.Table.from_pylist(order, pa.schema([
        ('key', pa.large_string()), ('start', pa.int64()), ('size', pa.int64()),
        (_LABEL, pa.large_string()), ('json', pa.large_string())]))


def _members(
    file: BinaryIO, path: epath.Path) -> Iterator[tarfile.TarInfo]:
  """Yields the headers of a tar; raises UserError if it is damaged."""
  with (exceptions.naming(
      f'{path} is truncated, or not a tar (copy it again; decompress .tar.gz, '
      'which has no random access, with gunzip)'),
        tarfile.open(fileobj=file, mode='r:') as tar):
    for member in tar:
      # TarFile would keep all members: 300 MB per million.
      tar.members.clear()  # type: ignore[attr-defined]
      yield member
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
      raise UserError('it has no end-of-archive block')


def _split_name(name: str) -> tuple[str, str]:
  """Returns 'a.b/c', 'seg.jpg' for 'a.b/c.seg.jpg'."""
  folder, _, last = name.removeprefix('./').rpartition('/')
  key, _, kind = last.partition('.')
  return (f'{folder}/{key}' if folder else key), kind.lower()
