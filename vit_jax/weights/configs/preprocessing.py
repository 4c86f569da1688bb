"""Preprocessing of images for a model, and the meaning of its outputs."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from vit_jax import schema

Interpolation = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']
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
    mean: subtracted from images in [0, 1]; one number per channel.
    std: divides the result; one number per channel.
    keep_aspect: whether to resize the shorter side and crop the centre, rather
      than to resize to the exact size.
    crop: fraction of the resized side that the crop keeps.
    interpolation: filter of the resize.
    labels: class names, where known.
    activation: turns logits into probabilities: 'softmax' over the classes, or
      'sigmoid' of each class (multi-label); 'none' for regression, where
      `labels` names the predicted numbers.
    channels: number of channels of the model's input.
    pixel_dtype: 'uint8', or the type of pixels with more than 8 bits.
    value_range: pixel values that become 0 and 1; None is (0, 255).
  """
  resolution: tuple[int, int]
  mean: tuple[float, ...] = HALF
  std: tuple[float, ...] = HALF
  keep_aspect: bool = False
  crop: float = 1.0
  interpolation: Interpolation = 'bilinear'
  labels: tuple[str, ...] = ()
  activation: Activation = 'softmax'
  channels: int = 3
  pixel_dtype: Literal['uint8', 'uint16', 'float32'] = 'uint8'
  value_range: tuple[float, float] | None = None

  def __post_init__(self):
    if min(self.resolution) < 1:
      raise ValueError(
          f'resolution must be positive, but is {self.resolution}.')
    for name in ('mean', 'std'):
      if len(getattr(self, name)) != self.channels:
        raise ValueError(
            f'{name} must be one number, or one for each of {self.channels} '
            f'channels, but is {getattr(self, name)}.')
    if min(self.std) <= 0:
      raise ValueError(f'std must be positive, but is {self.std}.')
    if not 0 < self.crop <= 1:
      raise ValueError(
          f'crop must be a fraction in (0, 1], but is {self.crop}.')

  @property
  def resized(self) -> tuple[int, int]:
    """Height and width before the crop, rounded down as in timm."""
    height, width = (  # 224 / (224 / 248) may be slightly less than 248.
        int(side / self.crop + 1e-6) for side in self.resolution)
    return height, width


NAMES = tuple(f.name for f in dataclasses.fields(Preprocess))


def parse(section: Mapping[str, Any]) -> Preprocess:
  """Returns the typed record, also from text of flags.

  One number stands for both sides or all channels.
  """
  section = {
      name: schema.convert(value, Any, where=name)
      if name in ('resolution', 'mean', 'std', 'channels') else value
      for name, value in section.items()}
  channels = section.get('channels', 3)
  for name, count in (('resolution', 2), ('mean', channels), ('std', channels)):
    value = section.get(name)
    if isinstance(value, (list, tuple)) and len(value) == 1 and (
        name != 'resolution'):
      (value,) = value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
      section[name] = (value,) * count
  return schema.parse(Preprocess, section, where='preprocess')


def _shorter_side(size: Any) -> Any:
  return min(size) if isinstance(size, (list, tuple)) else size


def from_data(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that the section `data` of a run implies.
  """
  result = {name: section[name] for name in (
      'resolution', 'mean', 'std', 'channels', 'value_range')
            if name in section}
  if 'dtype' in section:
    result['pixel_dtype'] = section['dtype']
  short = _shorter_side(section.get('resolution', 0))
  operations = list(section.get('eval_ops', ()))
  for number, op in enumerate(operations):
    if op.get('op') == 'resize':
      result['interpolation'] = op.get('method', 'bilinear')
      if op.get('shorter'):
        result['keep_aspect'] = True
        if short:
          result['crop'] = min(1.0, short / op['shorter'])
      elif op.get('size') and short and any(
          later.get('op') == 'central_crop' for later in operations[number:]):
        result['crop'] = min(1.0, short / _shorter_side(op['size']))
  return result
