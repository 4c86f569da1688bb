"""One shard: written, read back and compared, then given its name.

A shard is a range of examples in their order, so that a part of a split,
'train[:90%]', is of the same examples before and after. What was finished is
kept when the same command runs again: beside each shard lies a small file that
says what is in it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any

from etils import epath

from vit_jax.data.splits import selection as selection_lib
from vit_jax.prepare import examples

FORMAT = 'array_record'
_READ = 64  # Records at a time, when they are read back.


@dataclasses.dataclass(frozen=True)
class Shard:
  """A file to be, and the examples that belong in it.

  Attributes:
    selection: the split.
    first: the first example.
    last: one more than the last.
    folder: where it goes.
    name: of the file.
    features: what an example holds.
  """
  selection: selection_lib.Selection
  first: int
  last: int
  folder: str
  name: str
  features: examples.Features

  @property
  def path(self) -> epath.Path:
    """The file."""
    return epath.Path(self.folder) / self.name

  @property
  def facts_path(self) -> epath.Path:
    """What says that the file is whole."""
    return epath.Path(self.folder) / f'.{self.name}.json'


@dataclasses.dataclass(frozen=True)
class Facts:
  """What a finished shard holds.

  Attributes:
    examples: how many.
    smaller: how many have fewer pixels than in the source.
    record_bytes: of all records.
    file_bytes: of the file.
    checksum: of keys, labels and image bytes, in order.
  """
  examples: int
  smaller: int
  record_bytes: int
  file_bytes: int
  checksum: str


def name_of(dataset: str, split: str, index: int, count: int) -> str:
  """Returns the name that TFDS gives a shard."""
  return f'{dataset}-{split}.{FORMAT}-{index:05}-of-{count:05}'


def finished(shard: Shard) -> Facts | None:
  """Returns what a shard holds, if it was finished before."""
  try:
    facts = Facts(**json.loads(shard.facts_path.read_text()))
    size = shard.path.stat().length
  except (OSError, ValueError, TypeError):
    return None
  whole = (facts.examples, facts.file_bytes) == (shard.last - shard.first, size)
  return facts if whole else None


def write(shard: Shard) -> None:
  """Writes a shard, unless it is finished.

  Raises:
    ValueError: naming an example that cannot be read.
    RuntimeError: if what is read back is not what was written.
  """
  if finished(shard) is not None:
    return
  remote = '://' in shard.folder
  with tempfile.TemporaryDirectory(
      dir=None if remote else shard.folder, prefix='.part-') as folder:
    part = pathlib.Path(folder) / shard.name
    facts = _write_records(part, shard)
    _verify(part, shard, facts)
    if remote:  # An object appears whole there.
      epath.Path(part).copy(shard.path, overwrite=True)
    else:
      os.replace(part, shard.path)
    said = pathlib.Path(folder) / 'facts'
    said.write_text(json.dumps(dataclasses.asdict(facts)))
    if remote:
      epath.Path(said).copy(shard.facts_path, overwrite=True)
    else:
      os.replace(said, shard.facts_path)


def _write_records(part: pathlib.Path, shard: Shard) -> Facts:
  dataset = shard.selection.open()
  pictures = shard.features.pictures
  digest, size, smaller = examples.Digest(), 0, 0
  with contextlib.closing(_writer(part)) as writer:
    for index in range(shard.first, shard.last):
      key = dataset.source.key(index)
      try:
        found = dataset[index]
        example = {**found, 'image': pictures.stored(found['image'])}
        record = examples.serialise(example, shard.features, key=key)
      except (OSError, ValueError) as error:
        raise ValueError(
            f'Example {index} of {shard.selection.name} ({key}): {error}'
        ) from error
      digest.add(key, example['label'], example['image'])
      writer.write(record)
      size += len(record)
      smaller += pictures.made_smaller(found['image'], example['image'])
  return Facts(digest.examples, smaller, size, part.stat().st_size,
               digest.hexdigest())


def _verify(part: pathlib.Path, shard: Shard, facts: Facts) -> None:
  """Reads a file back; raises if it does not hold what it should."""
  digest = examples.Digest()
  with contextlib.closing(_reader(part)) as reader:
    count = reader.num_records()
    for first, last in selection_lib.ranges(count, _READ):
      for record in reader.read(list(range(first, last))):
        digest.add_record(record, shard.features)
  if (digest.examples, digest.hexdigest()) != (facts.examples, facts.checksum):
    raise RuntimeError(
        f'{shard.path}: {facts.examples:,} examples were written, and '
        f'{digest.examples:,} came back when it was read, with other keys, '
        'labels or images. Is the disk sound?')


def _writer(path: pathlib.Path) -> Any:
  from array_record.python import array_record_module
  # One record a group, as TFDS writes them: what random access wants.
  return array_record_module.ArrayRecordWriter(str(path), 'group_size:1')


def _reader(path: pathlib.Path) -> Any:
  from array_record.python import array_record_module
  return array_record_module.ArrayRecordReader(str(path))

