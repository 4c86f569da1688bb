"""WebDataset shards: tar files with a `KEY.cls` for each `KEY.jpg`.

    train-000000.tar:  n01/1.jpg  n01/1.cls  n01/2.jpg  n01/2.cls ...

A member's key is its path up to the first dot of its name
(https://github.com/webdataset/webdataset). The label is the text of the member
`.cls` or `.txt`, or a value of `.json`. Each shard is scanned once, headers and
labels only, and images are then read at their offsets. `datasets` would copy
all images to a cache.
"""

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import itertools
import os
import tarfile
from typing import Any, BinaryIO

from etils import epath
from jaxtyping import UInt8
import numpy as np

from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data import cells as cells_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import offset_index
from vit_jax.data.sources import protocol
from vit_jax.data.sources import table_files
from vit_jax.data.sources import table_source

_LABELS = ('cls', 'json', 'txt')
# Longer texts are not labels and would enlarge the index.
_MAX_LABEL_BYTES = 2**16


def open_tars(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens tar files; scans those without an index.

  Raises:
    ValueError: if a file is damaged, or labels are invalid.
  """
  found = offset_index.load_or_build(paths, _scan, kind='tar')
  counts = [len(arrays['starts']) for arrays in found]
  texts = {name: _join_texts([
      arrays[name] for arrays, count in zip(found, counts) if count])
           for name in ('keys', *_LABELS)}
  keys = texts.pop('keys').share()
  unused = [f'{int(arrays["unused"][0]):,} in {path.name}'
            for path, arrays in zip(paths, found) if arrays['unused'].any()]
  notes = [f'labels without an image that can be read: '
           f'{files.shorten(unused)}'] * bool(unused)
  if not keys:
    raise ValueError(
        f'{where} holds no images. Expected members KEY.jpg (or .png, .webp, '
        f'...) and KEY.cls. {"".join(notes)}'.strip())
  records = offset_index.Records.join(paths, found)
  shards = [os.path.splitext(name)[0] for name in files.relative_names(paths)]
  table, config = _parse_labels(texts, config, keys, where)
  if config.group and config.group not in table:  # Labels are no JSON.
    table = {**table, **_parse_groups(texts['json'], config.group, keys, where)}
  of_file = files.splits_of(paths, where=where)
  # Equal keys may be the same image: hash splits keep them together.
  return table_source.build(
      records.read,
      functools.partial(_name, shards, records.ends.tolist(), keys), table,
      config, where=where, num_rows=len(keys), group_of=keys.__getitem__,
      splits=cells_lib.Column.repeat(of_file, counts) if of_file else None,
      notes=notes)


def _join_texts(
    shards: Sequence[UInt8[np.ndarray, '_']]) -> cells_lib.Texts:
  """Returns the texts of all shards, which separate theirs by zeros."""
  # Names of members need not be UTF-8.
  content = b'\0'.join(
      shard.tobytes().decode(errors='surrogateescape').encode(
          errors='surrogatepass') for shard in shards)
  array = np.frombuffer(content + b'\0' * bool(shards), np.uint8)
  (ends,) = np.nonzero(array == 0)
  return cells_lib.Texts(array[array != 0], ends - np.arange(len(ends)))


def _name(
    shards: Sequence[str], ends: Sequence[int], keys: Sequence[str], row: int,
) -> str:
  """Returns the key of an image, with its shard because keys may repeat.

  It is always part of the name, so that an added shard renames no example.
  """
  return f'{shards[bisect.bisect_right(ends, row)]}/{keys[row]}'


def _parse_labels(
    texts: Mapping[str, cells_lib.Texts], config: columns_lib.LabelConfig,
    keys: Sequence[str], where: str,
) -> tuple[table_source.Table, columns_lib.LabelConfig]:
  """Returns the label table: `.cls`, else `.json`, else `.txt` members."""
  names = config.table.labels
  present = [kind for kind in _LABELS if any(texts[kind])]
  kind = 'json' if names else (*present, _LABELS[0])[0]
  if config.target == 'none':
    return {}, config.without_labels(columns_lib.IGNORED)
  if kind not in present:
    return {}, config.without_labels(
        f'The images of {where} have no labels. Expected a member KEY.cls, '
        f'KEY.json or KEY.txt for each KEY.jpg; {keys[0]!r} has none.')
  if kind != 'json':
    if config.table.split:
      raise ValueError(
          'data.table.split is a value of KEY.json members, but the labels of '
          f'{where} are members KEY.{kind}. Set data.table.label to a value of '
          'KEY.json as well, or remove it.')
    # Other members of a split without this one may be its labels.
    return {name: of.encode().map(lambda text: text or None)
            for name, of in texts.items()}, config.with_columns(
        path=None, label=(kind,), split=None)
  table = _read_json(texts['json'], keys, where)
  return table, columns_lib.choose_columns(
      table, config, where=f'{where} (JSON)')


def _read_json(
    texts: Iterable[str], keys: Sequence[str], where: str,
) -> table_source.Table:
  """Returns the values of `.json` members by key."""
  def rows() -> Iterator[dict[str, Any]]:
    for key, text in zip(keys, texts):
      try:
        value = untrusted.parse_json(text or '{}')
      except ValueError as error:
        raise ValueError(
            f'{key}.json of {where} is not JSON: {error}') from error
      yield value if isinstance(value, dict) else {'label': value}

  return table_files.to_columns(rows(), where=f'{where} (JSON)')


def _parse_groups(
    texts: Iterable[str], group: str, keys: Sequence[str], where: str,
) -> table_source.Table:
  """Returns the column of groups beside other labels, or none."""
  table = _read_json(texts, keys, where)
  schema.check_name(group, list(table), what=f'column of {where} (JSON)')
  return {group: table[group]}


# --------------------------------------------------------------------- the scan


def _scan(path: epath.Path) -> dict[str, np.ndarray]:
  """Returns keys, offsets and sizes of a shard's images, and their labels.

  `unused` is the number of keys that have a label, but no image.
  """
  images: dict[str, tuple[int, int]] = {}
  names: dict[tuple[str, str], str] = {}
  texts: dict[str, dict[str, str]] = {kind: {} for kind in _LABELS}
  with offset_index.open_parts(path) as file:
    for member in _members(file, path):
      key, kind = _split_name(member.name)
      is_image = f'.{kind.rpartition(".")[2]}' in files.IMAGE_SUFFIXES
      if not (is_image or kind in _LABELS) or key.endswith('/') or not key:
        continue  # Not an example, or a hidden file.
      if not member.isfile():
        raise ValueError(
            f'{path} holds the link {member.name!r}. Write it with the files '
            'themselves: tar --dereference --hard-dereference -cf ...')
      first = names.setdefault(
          (key, 'image' if is_image else kind), member.name)
      if first is not member.name:
        raise ValueError(
            f'{path} holds both {first!r} and {member.name!r} as the '
            f'{"image" if is_image else "label"} of {key!r}. Give each image '
            'its own key, the name up to its first dot.')
      if is_image:
        images[key] = member.offset_data, member.size
      elif member.size <= _MAX_LABEL_BYTES:
        file.seek(member.offset_data)
        content = file.read(member.size)
        try:
          texts[kind][key] = content.decode().strip().replace('\0', '')
        except UnicodeDecodeError as error:
          raise ValueError(f'{member.name} in {path} is not UTF-8 text '
                           f'({error}).') from error
  places = np.array(list(images.values()), np.int64).reshape(-1, 2)
  columns = {'keys': list(images), **{
      kind: [of.get(key, '') for key in images] for kind, of in texts.items()}}
  unused = {*itertools.chain(*texts.values())} - images.keys()
  return {'starts': places[:, 0], 'sizes': places[:, 1],
          'unused': np.array([len(unused)], np.int64),
          **{name: np.frombuffer('\0'.join(column).encode(
              errors='surrogateescape'), np.uint8)
             for name, column in columns.items()}}


def _members(
    file: BinaryIO, path: epath.Path) -> Iterator[tarfile.TarInfo]:
  """Yields the headers of a tar; raises ValueError if it is damaged."""
  try:
    with tarfile.open(fileobj=file, mode='r:') as tar:
      for member in tar:
        if member.size < 0:  # The next header would be an earlier one.
          raise tarfile.ReadError('it has a negative size')
        # TarFile would keep all members: 300 MB per million.
        tar.members.clear()  # type: ignore[attr-defined]
        yield member
      file.seek(tar.offset)
      if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError('it has no end-of-archive block')
  except OSError:
    raise
  except Exception as error:  # Sizes beyond 64 bits raise many types.
    raise ValueError(
        f'{path} is truncated, or not a tar ({error}). Copy it again; '
        'decompress .tar.gz (gunzip), which has no random access.') from error


def _split_name(name: str) -> tuple[str, str]:
  """Returns 'a.b/c', 'seg.jpg' for 'a.b/c.seg.jpg'."""
  folder, _, last = name.removeprefix('./').rpartition('/')
  key, _, kind = last.partition('.')
  return (f'{folder}/{key}' if folder else key), kind.lower()
