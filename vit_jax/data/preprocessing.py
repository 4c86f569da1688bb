"""Preprocessing of images for a model, and the meaning of its outputs.

The image operations are `data.eval_ops`: a run's evaluation, `predict`
and every other user of a model execute the same record. timm and Hugging Face
describe a resize and a central crop by three terms, see `ResizeAndCrop`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Literal

import numpy as np

from vit_jax import fields
from vit_jax import schema
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.images import resize as resize_lib

Activation = Literal['softmax', 'sigmoid', 'none']

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # torchvision's, for images in [0, 1].
IMAGENET_STD = (0.229, 0.224, 0.225)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)  # OpenAI's.
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)  # The value range [-1, 1].


@dataclasses.dataclass(frozen=True)
class Preprocess:
  """Preprocessing of an image before the model.

  Attributes:
    resolution: height and width of the model's input.
    ops: image operations after decoding, see `data.images.ops`; by default, a
      resize to the resolution.
    mean: subtracted from images in [0, 1]; one number per channel.
    std: divides the result; one number per channel.
    labels: class names, where known.
    activation: turns logits into probabilities: 'softmax' over the classes, or
      'sigmoid' of each class (multi-label); 'none' for regression, where
      `labels` names the predicted numbers.
    channels: number of channels of the model's input.
    pixel_dtype: 'uint8', or the type of pixels with more than 8 bits.
    value_range: pixel values that become 0 and 1; None is (0, 255).
  """
  resolution: tuple[int, int]
  ops: tuple[Any, ...] | None = None
  mean: tuple[float, ...] = HALF
  std: tuple[float, ...] = HALF
  labels: tuple[str, ...] = ()
  activation: Activation = 'softmax'
  channels: int = 3
  pixel_dtype: Literal['uint8', 'uint16', 'float32'] = 'uint8'
  value_range: tuple[float, float] | None = None

  def __post_init__(self):
    fields.check_range(self, 'resolution', low=1)
    for name in ('mean', 'std'):
      if len(getattr(self, name)) != self.channels:
        raise ValueError(
            f'{name} must be one number, or one for each of {self.channels} '
            f'channels, but is {getattr(self, name)}.')
    fields.check_range(self, 'std', above=0)
    if self.ops is None:
      object.__setattr__(self, 'ops', (ops_lib.Resize(self.resolution),))

  @property
  def value_scale(self) -> value_scale_lib.ValueScale:
    """Scale of pixels, like that of the section `data`."""
    return value_scale_lib.ValueScale(self.mean, self.std, self.value_range)

  @property
  def sections(self) -> list[dict[str, Any]]:
    """The operations as plain data, like `data.eval_ops`."""
    return ops_lib.to_sections(self.ops or ())

  def resized(self, resolution: tuple[int, int]) -> 'Preprocess':
    """Returns the preprocessing for another resolution; sizes are scaled."""
    if resolution == self.resolution:
      return self
    (height, width), (rows, columns) = self.resolution, resolution

    def scale(old: tuple[int, int]) -> tuple[int, int]:
      # The product may be slightly less than an integer.
      return (int(old[0] * rows / height + 1e-9),
              int(old[1] * columns / width + 1e-9))

    ops = tuple(op.scaled(scale) for op in self.ops or ())
    return dataclasses.replace(self, resolution=resolution, ops=ops)


@dataclasses.dataclass(frozen=True)
class ResizeAndCrop:
  """A resize and a central crop, in the terms of timm.

  Attributes:
    keep_aspect: whether to keep the aspect ratio, rather than to resize to the
      exact size before the crop.
    crop: fraction of the resized side that the crop keeps.
    interpolation: filter of the resize.
  """
  keep_aspect: bool = False
  crop: float = 1.0
  interpolation: resize_lib.Method = 'bilinear'

  def __post_init__(self):
    fields.check_range(self, 'crop', above=0, most=1)

  @classmethod
  def of(
      cls, preprocess: Preprocess,
  ) -> tuple['ResizeAndCrop', resize_lib.Rounding]:
    """Returns the terms of a preprocessing, and its rounding.

    Raises:
      ValueError: if they do not describe its operations.
    """
    ops, sections = preprocess.ops or (), preprocess.sections
    if ops and sections[0]['op'] == 'resize' and 'rounding' in sections[-1]:
      rounding = sections[-1]['rounding']
      terms = cls(
          keep_aspect='size' not in sections[0],
          crop=min(1.0, min(preprocess.resolution) / min(ops[0].least)),
          interpolation=sections[0]['method'])
      if terms.ops(preprocess.resolution, rounding) == ops:
        return terms, rounding
    raise ValueError(
        f'The image operations of the model, {sections}, are not described by '
        'keep_aspect and crop. Override ops instead.')

  def ops(
      self, resolution: tuple[int, int],
      rounding: resize_lib.Rounding = 'torchvision',
  ) -> tuple[ops_lib.Operation, ...]:
    """Returns the operations for a resolution."""
    # Rounded down as in timm; 224 / (224 / 248) may be slightly less than 248.
    target = height, width = (int(resolution[0] / self.crop + 1e-9),
                              int(resolution[1] / self.crop + 1e-9))
    if not self.keep_aspect:
      resize = ops_lib.Resize(target, method=self.interpolation)
    elif height == width:
      resize = ops_lib.Resize(
          shorter=height, method=self.interpolation, rounding=rounding)
    else:
      resize = ops_lib.Resize(cover=target, method=self.interpolation)
    if resize.size == resolution:
      return resize,
    return resize, ops_lib.CentralCrop(resolution, rounding)


TERMS = tuple(f.name for f in dataclasses.fields(ResizeAndCrop))
NAMES = (*(f.name for f in dataclasses.fields(Preprocess)), *TERMS)


def parse(section: Mapping[str, Any]) -> Preprocess:
  """Returns the typed record, also from text of flags.

  One number stands for both sides or all channels.

  Args:
    section: fields of `Preprocess`, with `ops` as plain data, or of
      `ResizeAndCrop` instead of `ops`. With `ops`, `interpolation` is the
      method of operations that name none.
  """
  section = {
      name: schema.convert(value, Any, where=name)
      if name in ('resolution', 'mean', 'std', 'channels', 'ops') else value
      for name, value in section.items()}
  channels = section.get('channels', 3)
  for name, count in (('resolution', 2), ('mean', channels), ('std', channels)):
    value = np.asarray(section.get(name))
    if value.size == 1 and value.dtype.kind in 'if':
      section[name] = (value.item(),) * count
  terms = {name: section.pop(name) for name in TERMS if name in section}
  sections = section.pop('ops', None)
  result = schema.parse(Preprocess, section, where='preprocess')
  described = schema.parse(ResizeAndCrop, terms, where='preprocess')
  if sections is None:
    ops = described.ops(result.resolution)
  elif {'keep_aspect', 'crop'} & terms.keys():
    raise ValueError(
        'ops describes the image operations, so that keep_aspect and crop must '
        'be left out.')
  else:
    ops = build_ops(sections, result, method=terms.get('interpolation'))
  return dataclasses.replace(result, ops=ops)


def build_ops(
    sections: Sequence[Any], preprocess: Preprocess, *,
    method: str | None = None,
) -> tuple[Any, ...]:
  """Returns typed operations; raises ValueError for unsuitable ones.

  `method` is that of each resize that names none.
  """
  if not isinstance(sections, (list, tuple)):
    raise ValueError(f'ops must be a list, but is {sections!r}.')
  if all(isinstance(op, ops_lib.Operation) for op in sections):
    return tuple(sections)
  if method:
    sections = [{'method': method, **section}
                if section.get('op') == 'resize' else section
                for section in sections]
  return ops_lib.build(
      sections, size=preprocess.resolution, where='ops',
      any_channels=not decode.is_picture(
          channels=preprocess.channels, dtype=preprocess.pixel_dtype))


def override(preprocess: Preprocess, given: Mapping[str, Any]) -> Preprocess:
  """Returns the preprocessing with the settings that a caller gives.

  Args:
    preprocess: the preprocessing of weights.
    given: as the argument of `parse`.

  Raises:
    ValueError: if the operations are no resize and crop, whose terms could be
      changed.
  """
  if not given:
    return preprocess
  resolution = parse(
      {'resolution': preprocess.resolution, **given}).resolution
  result = preprocess.resized(resolution)
  section = {**vars(result), **given, 'resolution': resolution}
  terms = {name: section.pop(name) for name in TERMS
           if name in given and 'ops' not in given}
  if terms.keys() == {'interpolation'}:
    section['ops'] = [
        {**op, 'method': terms['interpolation']}
        if op['op'] == 'resize' else op for op in result.sections]
  elif terms:
    described, rounding = ResizeAndCrop.of(result)
    section['ops'] = schema.parse(
        ResizeAndCrop, {**vars(described), **terms},
        where='preprocess').ops(resolution, rounding)
  return parse(section)


def to_plain(preprocess: Preprocess) -> dict[str, Any]:
  """Returns the record as JSON values; `parse` reads it back."""
  return {**schema.to_plain(preprocess), 'ops': preprocess.sections}


def from_data(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of `Preprocess` in the section `data` of a run."""
  names = {'resolution': 'resolution', 'mean': 'mean', 'std': 'std',
           'channels': 'channels', 'value_range': 'value_range',
           'dtype': 'pixel_dtype', 'eval_ops': 'ops'}
  return {ours: section[name] for name, ours in names.items()
          if name in section}
