"""Reads every example once, and keeps a kilobyte or two of each.

    file -> digest, size, mode, remarks   some 40 bytes
         -> a fingerprint, its averages   776 bytes
         -> features                      2 bytes a number
         -> a JPEG to look at             2 KB on disk
"""

from collections.abc import Callable, Iterator
from concurrent import futures
import dataclasses
import itertools
import os
from typing import Any, BinaryIO, Literal

from jaxtyping import Bool, Float16, Int, UInt8, UInt64
import numpy as np

from vit_jax.check import examples
from vit_jax.check import image_features
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.fingerprints import similarity
from vit_jax.data.images import unreadable
from vit_jax.data.sources import protocol

Kind = Literal['classes', 'several classes', 'numbers']
# Of pictures, to a row of features each.
Embed = Callable[[list[Any]], np.ndarray]
# Told of examples that were read, and (key, why) of one that could not be.
Done = Callable[[int], None]
Failed = Callable[[str, Exception], None]

_CHUNK = 64  # Examples at a time: what is held of whole pictures.
_THREADS = min(8, os.cpu_count() or 1)  # Pillow decodes without the lock.


@dataclasses.dataclass(frozen=True)
class Split:
  """A part of a data set, to be read.

  Attributes:
    name: of the split.
    source: the examples to read.
    total: how many there are, perhaps more than are read.
  """
  name: str
  source: protocol.Source
  total: int


@dataclasses.dataclass(frozen=True)
class Asked:
  """What to read, and how.

  Attributes:
    name: of the data set.
    splits: its parts; examples are numbered through all of them.
    kind: of its labels.
    class_names: a name for each class.
    decode: as a run would decode an image.
    embed: the model; None for `looks`.
    keep: the shorter side of a picture that `embed` is given, at least.
    understood: what its files were taken for, in words; perhaps ''.
  """
  name: str
  splits: tuple[Split, ...]
  kind: Kind
  class_names: tuple[str, ...]
  decode: examples.Decode
  embed: Embed | None = None
  keep: int = 0
  understood: str = ''

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
    """Returns what names an example in its split."""
    split, index = self.locate(number)
    return split.source.key(index)

  def split_numbers(self) -> Int[np.ndarray, 'examples']:
    """Returns the place of each example's split."""
    return np.repeat(np.arange(len(self.splits)), [
        len(split.source) for split in self.splits])


class Shown:
  """JPEGs by number, in a file."""

  def __init__(self, file: BinaryIO, count: int):
    self._file = file
    self._places = np.zeros((count, 2), np.int64)

  def add(self, number: int, jpeg: bytes) -> None:
    """Keeps one."""
    self._places[number] = self._file.seek(0, os.SEEK_END), len(jpeg)
    self._file.write(jpeg)

  def get(self, number: int) -> bytes:
    """Returns it; empty, if it is not there."""
    start, length = self._places[number].tolist()
    self._file.seek(start)
    return self._file.read(length)


@dataclasses.dataclass(eq=False)
class Scan:
  """What was read: a row of each array is an example.

  Attributes:
    asked: what was to be read.
    readable: those that could be; the others' rows are zero.
    digests: of the bytes.
    bits: fingerprints.
    views: averages of the pixels, for `similarity`.
    features: of `looks` or a model.
    sizes: width and height in pixels.
    num_bytes: of the file.
    modes: place in `mode_names`.
    remarks: numbers of the examples that each is true of.
    labels: place in `label_values`, -1 where there is none.
    label_values: the classes or numbers of each different label.
    errors: why the others could not be read, by number.
    shown: of the readable.
  """
  asked: Asked
  readable: Bool[np.ndarray, 'examples']
  digests: UInt64[np.ndarray, 'examples']
  bits: UInt64[np.ndarray, 'examples']
  views: UInt8[np.ndarray, 'examples 16 16 3']
  features: Float16[np.ndarray, 'examples width']
  sizes: Int[np.ndarray, 'examples 2']
  num_bytes: Int[np.ndarray, 'examples']
  modes: Int[np.ndarray, 'examples']
  mode_names: list[str]
  remarks: dict[str, list[int]]
  labels: Int[np.ndarray, 'examples']
  label_values: list[tuple[float, ...]]
  errors: dict[int, str]
  shown: Shown

  def label_text(self, number: int) -> str:
    """Returns an example's label in words."""
    if self.labels[number] < 0:
      return 'no label'
    names = self.asked.class_names
    values = self.label_values[self.labels[number]]
    if self.asked.kind == 'numbers':
      return ', '.join(f'{value:.4g}' for value in values)
    return ', '.join(names[int(v)] for v in values) or 'none of the classes'


def scan(
    asked: Asked, *, store: BinaryIO, done: Done, failed: Failed) -> Scan:
  """Reads all examples, each once, in threads.

  Args:
    asked: what to read.
    store: an empty file for the JPEGs, open for as long as they are shown.
    done: told of progress.
    failed: told of each example that cannot be read.
  """
  result = _empty(asked, store)
  modes: dict[str, int] = {}
  labels: dict[tuple[float, ...], int] = {}
  for first, found in _chunks(asked):
    good: list[tuple[int, examples.Seen]] = []
    for number, (seen, label) in enumerate(found, start=first):
      if label is not None:
        result.labels[number] = labels.setdefault(label, len(labels))
      if isinstance(seen, examples.Seen):
        good.append((number, seen))
        _keep(result, number, seen, modes)
      else:
        result.errors[number] = str(seen) or type(seen).__name__
        failed(asked.key(number), seen)
    if good:
      _keep_pixels(result, [n for n, _ in good], [s for _, s in good])
    done(len(good))
  result.mode_names += modes
  result.label_values += labels
  return result


def _empty(asked: Asked, store: BinaryIO) -> Scan:
  count, side = len(asked), similarity.SIDE
  return Scan(
      asked, np.zeros(count, bool), np.zeros(count, np.uint64),
      np.zeros(count, np.uint64), np.zeros((count, side, side, 3), np.uint8),
      np.zeros((count, 0), np.float16), np.zeros((count, 2), np.int32),
      np.zeros(count, np.int64), np.zeros(count, np.int32), [], {},
      np.full(count, -1, np.int32), [], {}, Shown(store, count))


_Found = tuple[examples.Seen | Exception, tuple[float, ...] | None]


def _attempt(asked: Asked, split: Split, index: int) -> _Found:
  """Returns an example, or why it cannot be read, and its label."""
  label = None
  # Whatever a reader raises means the same: a run would fail here.
  try:
    example = split.source[index]
    label = _label_of(asked, example['label'])
    with unreadable.named_as_before(example):
      return examples.look(
          example['image'], split.source.key(index), asked.decode,
          keep=asked.keep), label
  except Exception as error:
    return error, label


def _chunks(asked: Asked) -> Iterator[tuple[int, list[_Found]]]:
  """Yields the first number and what was found; the next are read meanwhile."""
  places = ((split, index) for split in asked.splits
            for index in range(len(split.source)))
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    def start() -> list[futures.Future]:
      return [pool.submit(_attempt, asked, *place)
              for place in itertools.islice(places, _CHUNK)]

    ahead, first = start(), 0
    while ahead:
      now, ahead = ahead, start()
      yield first, [f.result() for f in now]
      first += len(now)


def _keep(
    result: Scan, number: int, seen: examples.Seen,
    mode_places: dict[str, int],
) -> None:
  result.readable[number] = True
  result.digests[number] = seen.digest
  result.sizes[number] = seen.size
  result.num_bytes[number] = seen.num_bytes
  result.modes[number] = mode_places.setdefault(seen.mode, len(mode_places))
  for remark in seen.remarks:
    result.remarks.setdefault(remark, []).append(number)
  result.shown.add(number, seen.shown)


def _keep_pixels(
    result: Scan, numbers: list[int], seen: list[examples.Seen]) -> None:
  thumbnails = np.stack([one.thumbnail for one in seen])
  result.bits[numbers] = perceptual_hash.fingerprints(thumbnails)[:, 0]
  result.views[numbers] = np.stack([
      np.round(similarity.view(t, perceptual_hash.WHOLE, mirrored=False))
      for t in thumbnails])
  embed = result.asked.embed
  rows = (image_features.features(thumbnails) if embed is None
          else embed([one.picture for one in seen]))
  if not result.features.shape[1]:
    result.features = np.zeros(
        (len(result.features), rows.shape[1]), np.float16)
  result.features[numbers] = rows


def _label_of(asked: Asked, label: Any) -> tuple[float, ...] | None:
  """Returns classes or numbers; None if there is no such class."""
  value = tuple(np.atleast_1d(np.asarray(label)).tolist())
  if asked.kind == 'numbers':
    return value
  # A test set whose labels are kept secret has -1 in their place.
  known = range(len(asked.class_names))
  return tuple(sorted(value)) if all(v in known for v in value) else None
