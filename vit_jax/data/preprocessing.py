"""Preprocessing of images for a model, and the meaning of its outputs.

The image operations are `data.eval_ops`: a run's evaluation, `predict`
and every other user of a model execute the same record.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

import numpy as np

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib
from vit_jax.exceptions import UserError

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
        raise UserError(
            f'{name} must be one number, or one for each of {self.channels} '
            f'channels, but is {getattr(self, name)}.')
    fields.check_range(self, 'std', above=0)
    value_scale_lib.check_range(self.value_range, self.pixel_dtype)
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

  @property
  def description(self) -> str:
    """The operations as text: 'resize(shorter=256), central_crop(size=...)'."""
    return ', '.join(
        f'{section["op"]}(' + ', '.join(
            f'{f.name}={getattr(op, f.name)}' for f in dataclasses.fields(op)
            if getattr(op, f.name) != f.default) + ')'
        for op, section in zip(self.ops or (), self.sections))

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


FIELDS = tuple(f.name for f in dataclasses.fields(Preprocess))


def names() -> tuple[str, ...]:
  """Returns the settings that `override` takes."""
  terms = registry.optional(registry.PREPROCESSING_TERMS)
  return (*FIELDS, *(terms.NAMES if terms else ()))


def parse(section: Mapping[str, Any]) -> Preprocess:
  """Returns the typed record, also from text of flags.

  One number stands for both sides or all channels. `ops` are plain data, or
  typed; terms of `registry.PREPROCESSING_TERMS` may replace them.
  """
  others = section.keys() - {*FIELDS}
  if others and others & {*names()}:
    return registry.load(registry.PREPROCESSING_TERMS).parse(section)
  section = {
      name: schema.convert(value, Any, where=name)
      if name in ('resolution', 'mean', 'std', 'channels', 'ops') else value
      for name, value in section.items()}
  channels = schema.convert(section.get('channels', 3), int, where='channels')
  for name, count in (('resolution', 2), ('mean', channels), ('std', channels)):
    value = np.asarray(section.get(name), object)
    if value.size == 1 and isinstance(value.item(), (int, float)):
      section[name] = (value.item(),) * count
  ops = section.pop('ops', None)
  result = schema.parse(Preprocess, section, where='preprocess')
  return result if ops is None else dataclasses.replace(
      result, ops=_build_ops(ops, result))


def _build_ops(sections: Any, preprocess: Preprocess) -> tuple[Any, ...]:
  """Returns typed operations; raises UserError for unsuitable ones."""
  if not isinstance(sections, (list, tuple)):
    raise UserError(f'ops must be a list, but is {sections!r}.')
  if all(isinstance(op, ops_lib.Operation) for op in sections):
    return tuple(sections)
  return ops_lib.build(
      sections, size=preprocess.resolution, where='ops',
      any_channels=not decode.is_picture(
          channels=preprocess.channels, dtype=preprocess.pixel_dtype))


def override(preprocess: Preprocess, given: Mapping[str, Any]) -> Preprocess:
  """Returns the preprocessing with the settings that a caller gives.

  Args:
    preprocess: the preprocessing of weights.
    given: fields of `Preprocess`, as for `parse`. The settings of
      `registry.PREPROCESSING_TERMS` change a resize and a crop.

  Raises:
    UserError: if the operations are no resize and crop, whose terms could be
      changed.
  """
  if not given:
    return preprocess
  fields_given = {
      name: value for name, value in given.items() if name in FIELDS}
  resolution = parse(
      {'resolution': preprocess.resolution, **fields_given}).resolution
  result = preprocess.resized(resolution)
  if len(fields_given) < len(given):
    fields_given['ops'] = registry.load(registry.PREPROCESSING_TERMS).change(
        result, given)
  return parse({**vars(result), **fields_given, 'resolution': resolution})


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
