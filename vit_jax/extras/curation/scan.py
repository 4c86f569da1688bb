"""Reads every example once and keeps its label and image properties."""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any, Literal

from jaxtyping import Float, Int, UInt8
import numpy as np
from PIL import Image

from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets
from vit_jax.extras import pictures
from vit_jax.extras.curation import similarity

Label = tuple[float, ...]
LabelKind = Literal['classes', 'several classes', 'numbers', 'none']
# Maps each image to a row of features.
Embed = Callable[[list[Any]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Example:
  """A checked example; `number` counts through all splits."""
  number: int
  split: str
  key: str
  label: str


@dataclasses.dataclass(frozen=True)
class Unreadable:
  """An example that training could not decode."""
  example: Example
  reason: str


@dataclasses.dataclass(frozen=True)
class Split:
  """Examples of a split to check, out of `total`."""
  name: str
  source: protocol.Source
  total: int


@dataclasses.dataclass(frozen=True)
class ScanRequest:
  """Splits to read, and settings for decoding them.

  Examples are numbered consecutively across splits. The description explains
  the interpretation of the dataset's files.

  Attributes:
    class_names: empty if labels are numbers, or there are none.
    decode: decodes an image as training does; raises a ValueError.
    embed: model features, to compare single classes; else None.
    min_side: shorter side of the images that `embed` needs.
    without_images: see `protocol.Metadata`.
  """
  name: str
  splits: tuple[Split, ...]
  label_kind: LabelKind
  class_names: tuple[str, ...]
  decode: Callable[[Any], ops_lib.Picture]
  embed: Embed | None = None
  min_side: int = 0
  description: str = ''
  without_images: tuple[str, ...] = ()

  @functools.cached_property
  def examples(self) -> split_strings.Subset:
    """The examples of all splits."""
    return split_strings.Subset(tuple(
        (split.source, range(len(split.source))) for split in self.splits))

  @functools.cached_property
  def split_numbers(self) -> Int[np.ndarray, 'examples']:
    """The position of each example's split."""
    return np.repeat(np.arange(len(self.splits)), [
        len(split.source) for split in self.splits])


def prepare(
    config: data.DataConfig, *, max_examples: int = 0,
    embed: Embed | None = None, min_side: int = 0,
) -> ScanRequest:
  """Opens all splits of a dataset; reads no image.

  A hash of the keys selects `max_examples` of all splits together; 0 selects
  all. For `embed` and `min_side` see `ScanRequest`.
  """
  # A check reports folders without images in place of an error.
  opened = open_source.open_splits(
      dataclasses.replace(config, unreadable='skip'))
  # A dataset of a few files may have an empty split.
  sources = {name: source for name, source in opened.splits.items()
             if len(source)}
  total = sum(map(len, sources.values()))
  fraction = min(1, max_examples / total) if max_examples and total else 1
  label_kind: LabelKind = ('none' if opened.no_labels else
                           'numbers' if opened.targets else
                           'several classes' if opened.multi_label else
                           'classes')
  if label_kind != 'classes':
    embed, min_side = None, 0
  return ScanRequest(
      config.source,
      tuple(Split(name, subsets.select_random(
          source, max(1, round(fraction * len(source))),
          name=f'{config.source} {name}'), len(source))
            for name, source in sources.items()),
      label_kind=label_kind,
      class_names=() if label_kind in ('none', 'numbers') else (
          opened.names_or_indices),
      decode=config.decode, embed=embed, min_side=min_side,
      description='\n'.join(filter(None, [
          opened.description, opened.no_labels
          and f'Labels are not checked: {opened.no_labels}'])),
      without_images=opened.without_images)


@dataclasses.dataclass(eq=False)
class ImageRecord:
  """A readable image; about two kilobytes.

  Attributes:
    digest: 64-bit hash of the file's bytes, or of the pixels.
    size: width and height in pixels, after EXIF rotation.
    num_bytes: size of the file, or of the pixels.
    hash: perceptual hash.
    view: pixel averages, for `similarity`.
    image: RGB, at least `min_side` pixels, until a model has seen it.
    features: of the model, for nearest neighbours; None without a model.
  """
  digest: int
  size: tuple[int, int]
  num_bytes: int
  hash: np.uint64
  view: UInt8[np.ndarray, '16 16 3']
  image: Image.Image | None = None
  features: Float[np.ndarray, 'width'] | None = None


@dataclasses.dataclass(eq=False)
class Scan:
  """Properties of all examples.

  Attributes:
    request: the request of the scan.
    records: image properties of readable examples, by number.
    labels: class indices or numbers; None without a label.
    errors: why examples are unreadable, by number.
  """
  request: ScanRequest
  records: dict[int, ImageRecord]
  labels: list[Label | None]
  errors: dict[int, str]

  def labelled(self) -> dict[int, Label]:
    """Returns the labels of readable examples that have one."""
    return {number: label for number in self.records
            if (label := self.labels[number]) is not None}

  def example(self, number: int) -> Example:
    """Returns the record of an example."""
    split = self.request.splits[self.request.split_numbers[number]]
    return Example(
        number, split.name, self.request.examples.key(number),
        self._label_text(number))

  def _label_text(self, number: int) -> str:
    values = self.labels[number]
    if values is None:
      return 'no label'
    if self.request.label_kind == 'numbers':
      return ', '.join(f'{value:.4g}' for value in values)
    return ', '.join(
        self.request.class_names[int(v)] for v in values) or 'no class'


def scan(request: ScanRequest, *, advance: Callable[[int], None]) -> Scan:
  """Reads all examples; calls `advance` with the number of images just read."""
  count = len(request.examples)
  result = Scan(request, {}, [None] * count, {})
  for found, unreadable in decode.read_chunks(
      range(count), functools.partial(_read, result),
      errors=(Exception,)):  # Any error would stop a training run, too.
    records = dict(found)
    for number, error in unreadable:
      result.errors[number] = str(error) or type(error).__name__
    if request.embed and records:
      rows = request.embed([record.image for record in records.values()])
      for record, row in zip(records.values(), rows):
        record.features, record.image = row.astype(np.float16), None
    result.records |= records
    advance(len(found) + len(unreadable))
  return result


def spread(total: int, count: int) -> list[int]:
  """Returns at most `count` indices below `total`, evenly spaced."""
  chosen = np.linspace(0, total - 1, min(count, total)).astype(int)
  return np.unique(chosen).tolist()


def _read(result: Scan, number: int) -> ImageRecord:
  """Stores the label of an example, and returns its image's properties."""
  request = result.request
  example = request.examples[number]
  result.labels[number] = _label(request, example['label'])
  stored = example['image']
  decoded = request.decode(stored)
  content = stored if isinstance(stored, bytes) else (
      f'{stored.shape}{stored.dtype}'.encode() + stored.tobytes())
  image = to_rgb(decoded)
  thumbnail = similarity.thumbnail(image)
  # A chunk of images is held in memory.
  factor = min(image.size) // max(1, request.min_side)
  return ImageRecord(
      split_strings.stable_hash(content), decoded.size,
      len(stored) if isinstance(stored, bytes) else stored.nbytes,
      similarity.fingerprints(thumbnail[None])[0, 0],
      np.round(similarity.view(thumbnail)).astype(np.uint8),
      None if request.embed is None else
      image.reduce(factor) if factor > 1 else image)


def to_rgb(decoded: ops_lib.Picture) -> Image.Image:
  """Returns a displayable image; see `pictures.to_image`."""
  return (decoded if isinstance(decoded, Image.Image) else pictures.to_image(
      np.nan_to_num(decoded.pixels.astype(np.float32)))).convert('RGB')


def _label(request: ScanRequest, label: Any) -> Label | None:
  """Returns class indices or numbers; None for an unknown class."""
  value = tuple(np.atleast_1d(np.asarray(label)).tolist())
  if request.label_kind == 'numbers':
    if np.isnan(value).all():
      return None
    # One object stands for all missing numbers, so that tuples are comparable.
    return tuple(math.nan if math.isnan(v) else v for v in value)
  # Test sets with withheld labels have -1 in their place.
  known = range(len(request.class_names))
  return tuple(sorted(value)) if all(v in known for v in value) else None
