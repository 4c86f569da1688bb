"""Random access to TFRecord files, without TensorFlow.

A file is a sequence of records, each

    uint64 length, uint32 masked CRC of it, bytes, uint32 masked CRC of them

in little-endian order (https://www.tensorflow.org/tutorials/load_data/tfrecord
#tfrecords_format_details).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import struct
from typing import Any

from etils import epath
import google_crc32c
from jaxtyping import Int64
import numpy as np

from vit_jax.data.sources import files
from vit_jax.data.sources import offset_index

_HEADER, _FOOTER = struct.Struct('<QI'), struct.Struct('<I')


def masked_crc(data: bytes) -> int:
  """Returns the format's checksum: the CRC-32C, rotated, plus a constant."""
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
  """The records of several files."""
  paths: tuple[str, ...]
  starts: Int64[np.ndarray, 'records']  # Offset of the content in its file.
  sizes: Int64[np.ndarray, 'records']  # Bytes of the content.
  ends: Int64[np.ndarray, 'files']  # Number of records up to its end.

  def __len__(self) -> int:
    return len(self.starts)

  def __getitem__(self, index: int) -> bytes:
    path = self.paths[int(np.searchsorted(self.ends, index, side='right'))]
    size = int(self.sizes[index])
    data = offset_index.read_at(
        path, int(self.starts[index]), size + _FOOTER.size)
    record = data[:size]
    if masked_crc(record) != _FOOTER.unpack_from(data, size)[0]:
      raise ValueError(
          f'{path} is damaged at byte {self.starts[index]:,}: the checksum of '
          'its record differs. Copy or prepare the file again.')
    return record


def open_records(
    paths: Sequence[epath.Path], *, counts: Sequence[int]) -> Records:
  """Opens files with the expected number of records in each.

  Raises:
    ValueError: if a file is missing, truncated, not a TFRecord file, or has
      another number of records.
  """
  found = {path: count for path, count in zip(paths, counts, strict=True)
           if count}
  if not found:  # `tfds build` may write a split without examples.
    empty = np.zeros(0, np.int64)
    return Records((), empty, empty, empty)
  missing = [path for path in found if not path.exists()]
  if missing:
    raise ValueError(
        f'{len(missing)} of {len(found)} files are missing in '
        f'{missing[0].parent}: {files.shorten(p.name for p in missing)}. Copy '
        'them there, or prepare the data set again.')
  indices = offset_index.load_or_build(list(found), _scan, kind='tfrecord')
  for (path, count), arrays in zip(found.items(), indices):
    if len(arrays['starts']) != count:
      raise ValueError(
          f'{path} has {len(arrays["starts"]):,} records, but '
          f'dataset_info.json says {count:,}. Copy or prepare it again.')
  starts, sizes = (np.concatenate([arrays[name] for arrays in indices])
                   for name in ('starts', 'sizes'))
  return Records(
      tuple(map(os.fspath, found)), starts, sizes,
      np.cumsum(list(found.values()), dtype=np.int64))


def _scan(path: epath.Path) -> dict[str, np.ndarray]:
  """Returns the offset and size of each record."""
  starts, sizes, position = [], [], 0
  num_bytes = path.stat().length
  with offset_index.open_for_scan(path) as file:
    while position < num_bytes:
      header = file.read(_HEADER.size)
      is_whole = len(header) == _HEADER.size
      size, crc = _HEADER.unpack(header) if is_whole else (0, 0)
      if is_whole and crc != masked_crc(header[:8]):
        raise ValueError(
            f'{path} is not a TFRecord file, or damaged at byte {position:,}: '
            'the checksum of a length differs.'
            + (' It is compressed (gzip); decompress it.'
               if header[:2] == b'\x1f\x8b' else ''))
      starts.append(position + _HEADER.size)
      sizes.append(size)
      position += _HEADER.size + size + _FOOTER.size
      if position > num_bytes:
        raise ValueError(
            f'{path} is truncated: it ends at byte {num_bytes:,}, within a '
            'record. Copy or prepare it again.')
      file.seek(position)
  return {'starts': np.array(starts, np.int64),
          'sizes': np.array(sizes, np.int64)}


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
  """Records parsed by TFDS's NumPy parser."""
  records: Records
  features: Any
  decoders: Mapping[str, Any]

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    return self.features.deserialize_example_np(
        self.records[index], decoders=self.decoders)
