"""Reads every example once and keeps about a kilobyte of each."""

from collections.abc import Callable
import dataclasses
from typing import Any, Literal

from jaxtyping import Bool, Float16, Int, UInt8, UInt64
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
  """Properties of all examples, one row each; zeros for unreadable ones.

  Attributes:
    request: what was read.
    readable: whether an example could be decoded.
    digests: hashes of the bytes.
    hashes: perceptual hashes.
    views: pixel averages, for `similarity`.
    features: for nearest neighbours.
    sizes: width and height in pixels.
    num_bytes: file sizes.
    modes: index into `mode_names`.
    labels: index into `label_values`, -1 without a label.
    mode_names: file formats and pixel modes.
    label_values: distinct labels: class indices or numbers.
    remarks: examples by remark.
    errors: reason by unreadable example.
  """
  request: ScanRequest
  readable: Bool[np.ndarray, 'examples']
  digests: UInt64[np.ndarray, 'examples']
  hashes: UInt64[np.ndarray, 'examples']
  views: UInt8[np.ndarray, 'examples 16 16 3']
  features: Float16[np.ndarray, 'examples width']
  sizes: Int[np.ndarray, 'examples 2']
  num_bytes: Int[np.ndarray, 'examples']
  modes: Int[np.ndarray, 'examples']
  labels: Int[np.ndarray, 'examples']
  mode_names: list[str] = dataclasses.field(default_factory=list)
  label_values: list[Label] = dataclasses.field(default_factory=list)
  remarks: dict[str, list[int]] = dataclasses.field(default_factory=dict)
  errors: dict[int, str] = dataclasses.field(default_factory=dict)

  def example(self, number: int) -> findings.Example:
    """Returns the record of an example."""
    split, index = self.request.locate(number)
    return findings.Example(
        int(number), split.name, split.source.key(index),
        self._label_text(number))

  def _label_text(self, number: int) -> str:
    if self.labels[number] < 0:
      return 'no label'
    values = self.label_values[self.labels[number]]
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
  result = _empty(request)
  modes: dict[str, int] = {}
  labels: dict[Label, int] = {}

  def read(number: int) -> tuple[Label | None, image_record.ImageRecord
                                 | Exception]:
    return _read(request, number)

  # Whatever a source raises would stop a training run, too.
  for chunk in threads.read_chunks(
      range(len(request)), read, size=_CHUNK, errors=(Exception,)):
    records: dict[int, image_record.ImageRecord] = {}
    for number, found in chunk:
      label, record = (
          (None, found) if isinstance(found, Exception) else found)
      if label is not None:
        result.labels[number] = labels.setdefault(label, len(labels))
      if isinstance(record, Exception):
        result.errors[number] = str(record) or type(record).__name__
        failed(request.key(number), record)
      else:
        records[number] = record
        result.modes[number] = modes.setdefault(record.mode, len(modes))
    _store(result, records)
    advance(len(records))
  result.mode_names += modes
  result.label_values += labels
  return result


def _empty(request: ScanRequest) -> Scan:
  count, side = len(request), similarity.SIDE
  return Scan(
      request, readable=np.zeros(count, bool),
      digests=np.zeros(count, np.uint64), hashes=np.zeros(count, np.uint64),
      views=np.zeros((count, side, side, 3), np.uint8),
      features=np.zeros((count, 0), np.float16),
      sizes=np.zeros((count, 2), np.int32),
      num_bytes=np.zeros(count, np.int64), modes=np.zeros(count, np.int32),
      labels=np.full(count, -1, np.int32))


def _read(
    request: ScanRequest, number: int,
) -> tuple[Label | None, image_record.ImageRecord | Exception]:
  split, index = request.locate(number)
  example = split.source[index]
  label = _label(request, example['label'])
  try:
    with unreadable.add_origin(example):
      return label, image_record.read(
          example['image'], split.source.key(index), request.decode,
          min_side=request.min_side)
  except Exception as error:  # The label is counted all the same.
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
    result: Scan, records: dict[int, image_record.ImageRecord]) -> None:
  if not records:
    return
  numbers, found = list(records), list(records.values())
  result.readable[numbers] = True
  result.digests[numbers] = np.array([r.digest for r in found], np.uint64)
  result.sizes[numbers] = [r.size for r in found]
  result.num_bytes[numbers] = [r.num_bytes for r in found]
  for number, record in records.items():
    for remark in record.remarks:
      result.remarks.setdefault(remark, []).append(number)
  thumbnails = np.stack([record.thumbnail for record in found])
  result.hashes[numbers] = perceptual_hash.fingerprints(thumbnails)[:, 0]
  result.views[numbers] = np.stack([
      np.round(similarity.view(t, perceptual_hash.WHOLE, mirrored=False))
      for t in thumbnails])
  embed = result.request.embed
  rows = (image_features.features(thumbnails) if embed is None
          else embed([record.image for record in found]))
  if not result.features.shape[1]:
    result.features = np.zeros(
        (len(result.features), rows.shape[1]), np.float16)
  result.features[numbers] = rows
