"""Random access to TFRecord files, without TensorFlow.

A file is a sequence of records, each

    uint64 length, uint32 masked CRC of it, bytes, uint32 masked CRC of them

in little-endian order (https://www.tensorflow.org/tutorials/load_data/tfrecord
#tfrecords_format_details).
"""

from collections.abc import Sequence
import dataclasses
import struct

from etils import epath
import google_crc32c
import pyarrow as pa

from vit_jax.extras.shards import offset_index

_HEADER, _FOOTER = struct.Struct('<QI'), struct.Struct('<I')


def masked_crc(data: bytes) -> int:
  """Returns the format's checksum: the CRC-32C, rotated, plus a constant."""
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def open_records(
    paths: Sequence[epath.Path], *, counts: Sequence[int],
) -> 'TfRecords':
  """Opens files with the expected number of records in each.

  Raises:
    ValueError: if a file is truncated, not a TFRecord file, or has another
      number of records.
  """
  indices = offset_index.load_or_build(paths, _scan, kind='tfrecord')
  for path, count, table in zip(paths, counts, indices, strict=True):
    if len(table) != count:
      raise ValueError(
          f'{path} has {len(table):,} records, but dataset_info.json says '
          f'{count:,}. Copy or prepare it again.')
  return TfRecords(offset_index.Records.join(paths, indices))


def _scan(path: epath.Path) -> pa.Table:
  """Returns the offset and size of each record."""
  starts, sizes, position = [], [], 0
  num_bytes = path.stat().length
  with offset_index.open_parts(path) as file:
    while position < num_bytes:
      header = file.read(_HEADER.size).ljust(_HEADER.size, b'\0')
      size, crc = _HEADER.unpack(header)
      starts.append(position + _HEADER.size)
      sizes.append(size)
      if starts[-1] <= num_bytes and crc != masked_crc(header[:8]):
        raise ValueError(
            f'{path} is not a TFRecord file (compressed ones must be '
            f'decompressed), or damaged at byte {position:,}: the checksum of '
            'a length differs.')
      position = starts[-1] + size + _FOOTER.size
      if position > num_bytes:
        raise ValueError(
            f'{path} is truncated: it ends at byte {num_bytes:,}, within a '
            'record. Copy or prepare it again.')
      file.seek(position)
  return pa.table({'start': pa.array(starts, pa.int64()),
                   'size': pa.array(sizes, pa.int64())})


@dataclasses.dataclass(frozen=True, eq=False)
class TfRecords:
  """Records by index, which are compared with their checksums."""
  places: offset_index.Records

  def __len__(self) -> int:
    return len(self.places)

  def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
    return [self[index] for index in indices]

  def __getitem__(self, index: int) -> bytes:
    content = self.places.read(index, extra=_FOOTER.size)
    record = content[:-_FOOTER.size]
    if masked_crc(record) != _FOOTER.unpack(content[-_FOOTER.size:])[0]:
      raise ValueError(
          f'{self.places.path(index)} is damaged at byte '
          f'{self.places.starts[index]:,}: the checksum of its record '
          'differs. Copy or prepare the file again.')
    return record
