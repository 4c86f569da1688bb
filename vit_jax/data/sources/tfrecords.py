"""TFRecord files, read at random and without TensorFlow.

A file is a row of records, each

    uint64 length, uint32 masked CRC of it, bytes, uint32 masked CRC of them

in little-endian order (https://www.tensorflow.org/tutorials/load_data/tfrecord
#tfrecords_format_details). The lengths alone say where each record begins.
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

from vit_jax.data.sources import record_offsets

_HEADER, _FOOTER = struct.Struct('<QI'), struct.Struct('<I')


def masked_crc(data: bytes) -> int:
  """Returns the CRC-32C of bytes, rotated by 15 bits, plus a constant.

  So that the CRC of what holds CRCs stays a good one (the file format's note).
  """
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
  """The records of some files, one after the other.

  Attributes:
    paths: the files.
    starts: offset of the bytes of each record in its file.
    sizes: their number.
    ends: how many records there are up to the end of each file.
  """
  paths: tuple[str, ...]
  starts: Int64[np.ndarray, 'records']
  sizes: Int64[np.ndarray, 'records']
  ends: Int64[np.ndarray, 'files']

  def __len__(self) -> int:
    return len(self.starts)

  def __getitem__(self, index: int) -> bytes:
    path = self.paths[int(np.searchsorted(self.ends, index, side='right'))]
    size = int(self.sizes[index])
    data = record_offsets.read_at(
        path, int(self.starts[index]), size + _FOOTER.size)
    record = data[:size]
    if masked_crc(record) != _FOOTER.unpack_from(data, size)[0]:
      raise ValueError(
          f'{path} is damaged at byte {self.starts[index]:,}: the checksum of '
          'its record differs. Copy or prepare the file again.')
    return record


def open_records(
    paths: Sequence[epath.Path], *, counts: Sequence[int]) -> Records:
  """Opens files; walks them where no index is kept.

  Args:
    paths: the files.
    counts: how many records each is said to have.

  Raises:
    ValueError: if one is not there, is cut off, is no TFRecord file or has
      another number of records.
  """
  paths = [path for path, count in zip(paths, counts, strict=True) if count]
  if not paths:  # A split of no examples, as `tfds build` may leave one.
    none = np.zeros(0, np.int64)
    return Records((), none, none, none)
  missing = [path.name for path in paths if not path.exists()]
  if missing:
    raise ValueError(
        f'{len(missing)} of {len(paths)} files are not in {paths[0].parent}: '
        f'{", ".join(missing[:3])}{", ..." * (len(missing) > 3)}. Copy them '
        'there, or prepare the data set again.')
  found = record_offsets.load_or_build(paths, _walk, kind='tfrecord')
  expected = [count for count in counts if count]
  for path, arrays, count in zip(paths, found, expected):
    if len(arrays['starts']) != count:
      raise ValueError(
          f'{path} has {len(arrays["starts"]):,} records, but the '
          f'dataset_info.json beside it says {count:,}. Copy or prepare it '
          'again.')
  return Records(
      tuple(os.fspath(path) for path in paths),
      np.concatenate([arrays['starts'] for arrays in found]),
      np.concatenate([arrays['sizes'] for arrays in found]),
      np.cumsum([len(arrays['starts']) for arrays in found], dtype=np.int64))


def _walk(path: epath.Path) -> dict[str, np.ndarray]:
  starts, sizes, position = [], [], 0
  num_bytes = path.stat().length
  with record_offsets.open_for_walk(path) as file:
    while position < num_bytes:
      header = file.read(_HEADER.size)
      if len(header) < _HEADER.size:
        raise ValueError(_cut_off(path, position, num_bytes))
      size, crc = _HEADER.unpack(header)
      if crc != masked_crc(header[:8]):
        raise ValueError(
            f'{path} is no TFRecord file, or damaged at byte {position:,}: '
            'the checksum of a length differs.'
            + (' It is compressed (gzip): TFDS writes plain files.'
               if header[:2] == b'\x1f\x8b' else ''))
      starts.append(position + _HEADER.size)
      sizes.append(size)
      position += _HEADER.size + size + _FOOTER.size
      if position > num_bytes:
        raise ValueError(_cut_off(path, starts[-1], num_bytes))
      file.seek(position)
  return {'starts': np.array(starts, np.int64),
          'sizes': np.array(sizes, np.int64)}


def _cut_off(path: epath.Path, position: int, num_bytes: int) -> str:
  return (f'{path} is cut off: it ends at byte {num_bytes:,}, within the '
          f'record at {position:,}. Copy or prepare it again.')


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
  """Records as TFDS wrote them, parsed by its own NumPy parser.

  Attributes:
    records: bytes of each.
    features: TFDS's description of them.
    decoders: of features that are not decoded.
  """
  records: Records
  features: Any
  decoders: Mapping[str, Any]

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    return self.features.deserialize_example_np(
        self.records[index], decoders=self.decoders)
