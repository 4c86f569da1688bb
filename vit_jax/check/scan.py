"""Reads every example once and keeps about a kilobyte of each."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any, Literal

from jaxtyping import Float16, Int, UInt8, UInt64
import numpy as np

from vit_jax.check import findings
from vit_jax.check import image_features
from vit_jax.check import image_record
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import threads
from vit_jax.data.images import unreadable
from vit_jax.data.sources import protocol

LabelKind = Literal['classes', 'several classes', 'numbers']
Label = tuple[float, ...]
# Maps images to a row of features each.
Embed = Callable[[list[Any]], np.ndarray]
_CHUNK = 64  # Images in memory at a time.


@dataclasses.dataclass(frozen=True)
class Split:
  """Examples of a split to check, out of `total`."""
  name: str
  source: protocol.Source
  total: int


@dataclasses.dataclass(frozen=True)
class ScanRequest:
  """What to read, and how.

  Attributes:
    name: dataset name.
    splits: examples are numbered consecutively across splits.
    label_kind: kind of labels.
    class_names: empty for numbers.
    decode: decodes an image as training does.
    embed: model features; None for `image_features`.
    min_side: shorter side of the images that `embed` needs.
    description: how the dataset's files were interpreted; may be empty.
  """
  name: str
  splits: tuple[Split, ...]
  label_kind: LabelKind
  class_names: tuple[str, ...]
  decode: image_record.Decode
  embed: Embed | None = None
  min_side: int = 0
  description: str = ''

  def __len__(self) -> int:
    return sum(len(split.source) for split in self.splits)

  def locate(self, number: int) -> tuple[Split, int]:
    """Returns the split of an example, and its index there."""
    for split in self.splits:
      if number < len(split.source):
        return split, number
      number -= len(split.source)
    raise IndexError(number)

  def key(self, number: int) -> str:
    """Returns an example's key within its split."""
    split, index = self.locate(number)
    return split.source.key(index)

  def split_numbers(self) -> Int[np.ndarray, 'examples']:
    """Returns the position of each example's split."""
    return np.repeat(np.arange(len(self.splits)), [
        len(split.source) for split in self.splits])


@dataclasses.dataclass(eq=False)
class Scan:
  """Properties of all examples.

  Attributes:
    request: what was read.
    records: image properties; None for unreadable images.
    labels: class indices or numbers; None without a label.
    errors: reason by unreadable example.
    hashes: perceptual hashes; zeros for unreadable images, as below.
    views: pixel averages, for `similarity`.
    features: for nearest neighbours.
  """
  request: ScanRequest
  records: list[image_record.ImageRecord | None]
  labels: list[Label | None]
  errors: dict[int, str]
  hashes: UInt64[np.ndarray, 'examples']
  views: UInt8[np.ndarray, 'examples 16 16 3']
  features: Float16[np.ndarray, 'examples width']

  @property
  def readable(self) -> list[int]:
    """Numbers of the readable examples."""
    return [i for i, record in enumerate(self.records) if record is not None]

  def example(self, number: int) -> findings.Example:
    """Returns the record of an example."""
    split, index = self.request.locate(number)
    return findings.Example(
        number, split.name, split.source.key(index), self._label_text(number))

  def _label_text(self, number: int) -> str:
    values = self.labels[number]
    if values is None:
      return 'no label'
    if self.request.label_kind == 'numbers':
      return ', '.join(f'{value:.4g}' for value in values)
    return ', '.join(
        self.request.class_names[int(v)] for v in values) or 'no class'


def scan(
    request: ScanRequest, *, advance: Callable[[int], None],
    failed: Callable[[str, Exception], None],
) -> Scan:
  """Reads all examples.

  Args:
    request: what to read.
    advance: called with the number of images just read.
    failed: called with the key of an unreadable example and its error.
  """
  count, side = len(request), similarity.SIDE
  result = Scan(
      request, [None] * count, [None] * count, {},
      hashes=np.zeros(count, np.uint64),
      views=np.zeros((count, side, side, 3), np.uint8),
      features=np.zeros((count, 0), np.float16))
  for chunk in threads.read_chunks(
      range(count), functools.partial(_read, request), size=_CHUNK,
      errors=()):
    readable: list[tuple[int, image_record.ImageRecord]] = []
    for number, found in chunk:
      assert not isinstance(found, Exception)
      result.labels[number], record = found
      if isinstance(record, Exception):
        result.errors[number] = str(record) or type(record).__name__
        failed(request.key(number), record)
      else:
        readable.append((number, record))
    if readable:
      _store(result, *zip(*readable))
    advance(len(readable))
  return result


def _read(
    request: ScanRequest, number: int,
) -> tuple[Label | None, image_record.ImageRecord | Exception]:
  """Returns an example's label, and its record or why it cannot be read."""
  split, index = request.locate(number)
  label = None
  try:
    example = split.source[index]
    label = _label(request, example['label'])
    with unreadable.add_origin(example):
      return label, image_record.read(
          example['image'], split.source.key(index), request.decode,
          min_side=request.min_side)
  except Exception as error:  # Any error would stop a training run, too.
    return label, error


def _label(request: ScanRequest, label: Any) -> Label | None:
  """Returns class indices or numbers; None for an unknown class."""
  value = tuple(np.atleast_1d(np.asarray(label)).tolist())
  if request.label_kind == 'numbers':
    return value
  # Test sets with withheld labels have -1 in their place.
  known = range(len(request.class_names))
  return tuple(sorted(value)) if all(v in known for v in value) else None


def _store(
    result: Scan, numbers: Sequence[int],
    records: Sequence[image_record.ImageRecord],
) -> None:
  rows = list(numbers)
  thumbnails = np.stack([record.thumbnail for record in records
                         if record.thumbnail is not None])
  result.hashes[rows] = perceptual_hash.fingerprints(thumbnails)[:, 0]
  result.views[rows] = np.stack([
      np.round(similarity.view(t, perceptual_hash.WHOLE, mirrored=False))
      for t in thumbnails])
  embed = result.request.embed
  features = (image_features.features(thumbnails) if embed is None
              else embed([record.image for record in records]))
  if not result.features.shape[1]:
    result.features = np.zeros(
        (len(result.features), features.shape[1]), np.float16)
  result.features[rows] = features
  for number, record in zip(numbers, records):  # Without the pixels.
    result.records[number] = dataclasses.replace(
        record, thumbnail=None, image=None)
