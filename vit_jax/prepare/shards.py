"""Writes one shard, reads it back and compares it, then names it.

Shards are contiguous ranges of examples, so that 'train[:90%]' selects the same
examples before and after. A hidden JSON file beside each finished shard lets a
restarted command keep it.
"""

import contextlib
import dataclasses
import json
import pathlib
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax.data.splits import selection as selection_lib
from vit_jax.prepare import records

FORMAT = 'array_record'
_READ_RECORDS = 64  # Records in memory when a shard is read back.


@dataclasses.dataclass(frozen=True)
class Shard:
  """Examples `first` to `last - 1` of a split, and the file for them."""
  selection: selection_lib.Selection
  first: int
  last: int
  folder: str
  name: str
  features: records.Features

  @property
  def path(self) -> epath.Path:
    """Path of the shard."""
    return epath.Path(self.folder) / self.name

  @property
  def facts_path(self) -> epath.Path:
    """Path of the JSON file that marks the shard as finished."""
    return epath.Path(self.folder) / f'.{self.name}.json'


@dataclasses.dataclass(frozen=True)
class ShardFacts:
  """Content of a finished shard.

  Attributes:
    examples: number of examples.
    reduced: number of images stored smaller than in the source.
    record_bytes: total size of the records.
    file_bytes: size of the file.
    checksum: hash of keys, labels and image bytes.
  """
  examples: int
  reduced: int
  record_bytes: int
  file_bytes: int
  checksum: str


def shard_name(dataset: str, split: str, index: int, count: int) -> str:
  """Returns the file name that TFDS expects."""
  return f'{dataset}-{split}.{FORMAT}-{index:05}-of-{count:05}'


def finished(shard: Shard) -> ShardFacts | None:
  """Returns the content of a finished shard, or None."""
  try:
    facts = ShardFacts(**json.loads(shard.facts_path.read_text()))
    size = shard.path.stat().length
  except (OSError, ValueError, TypeError):
    return None
  expected = shard.last - shard.first, size
  return facts if (facts.examples, facts.file_bytes) == expected else None


def write(shard: Shard) -> None:
  """Writes and verifies a shard, unless it is finished.

  Raises:
    ValueError: naming an example that cannot be stored.
    RuntimeError: if the file read back differs from what was written.
  """
  if finished(shard) is not None:
    return
  shard.path.unlink(missing_ok=True)
  with atomic_files.create(shard.path) as path:
    facts = _write_records(path, shard)
    _verify(path, shard, facts)
  atomic_files.write_json(shard.facts_path, dataclasses.asdict(facts))


def _write_records(path: pathlib.Path, shard: Shard) -> ShardFacts:
  from array_record.python import array_record_module
  dataset = shard.selection.open()
  image_format = shard.features.image_format
  digest, size, reduced = records.Digest(), 0, 0
  # One record per group, as TFDS writes them, for fast random access.
  with contextlib.closing(array_record_module.ArrayRecordWriter(
      str(path), 'group_size:1')) as writer:
    for index in range(shard.first, shard.last):
      key = dataset.source.key(index)
      try:
        original = dataset[index]
        example = {
            **original, 'image': image_format.encode(original['image'])}
        record = records.serialise(example, shard.features, key=key)
      except (OSError, ValueError) as error:
        raise ValueError(
            f'Example {index} of {shard.selection.name} ({key}): {error}'
        ) from error
      digest.add(key, example['label'], example['image'])
      writer.write(record)
      size += len(record)
      reduced += image_format.is_reduced(original['image'], example['image'])
  return ShardFacts(digest.examples, reduced, size, path.stat().st_size,
                    digest.hexdigest())


def _verify(path: pathlib.Path, shard: Shard, facts: ShardFacts) -> None:
  from array_record.python import array_record_module
  digest = records.Digest()
  reader: Any
  with contextlib.closing(
      array_record_module.ArrayRecordReader(str(path))) as reader:
    for first, last in selection_lib.ranges(
        reader.num_records(), _READ_RECORDS):
      for record in reader.read(list(range(first, last))):
        digest.add_record(record, shard.features)
  if (digest.examples, digest.hexdigest()) != (facts.examples, facts.checksum):
    raise RuntimeError(
        f'{shard.path}: wrote {facts.examples:,} examples, but read back '
        f'{digest.examples:,} with other keys, labels or images. Check the '
        'disk.')
