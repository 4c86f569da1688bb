"""How an image becomes what a model was trained on, as the formats write it.

And what the model's answers mean: names of its classes, and their activation.
"""

from collections.abc import Container, Mapping
import dataclasses
import math
from typing import Any, Literal

from vit_jax import schema

Interpolation = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']
Activation = Literal['softmax', 'sigmoid', 'none']

# Pillow's numbers, which Hugging Face writes.
_RESAMPLE: Mapping[int, Interpolation] = {
    0: 'nearest', 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box'}

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # torchvision's, of images in [0, 1].
IMAGENET_STD = (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)  # The value range [-1, 1].


@dataclasses.dataclass(frozen=True)
class Preprocess:
  """What is done to an image of a file before the model sees it.

  Attributes:
    resolution: height and width of the image that the model gets.
    mean: of images in [0, 1], subtracted; one for each channel.
    std: the same, divided by.
    keep_aspect: resizes the shorter side and cuts the middle out, rather than
      to the exact size.
    crop: part of the resized side that is kept; 1 cuts only what is longer.
    interpolation: of the resize.
    labels: names of the classes, where the source has them.
    activation: what makes probabilities of logits: 'softmax' over all classes,
      or 'sigmoid' of each, where a picture may have several; 'none' where they
      are the predicted numbers themselves, of which `labels` are the names.
    channels: of the image that the model gets.
    pixel_dtype: 'uint8', or what pixels of other than 8 bits are read as.
    value_range: pixel values that become 0 and 1, if not 0 and 255.
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
    for name in ('mean', 'std'):
      if len(getattr(self, name)) != self.channels:
        raise ValueError(
            f'{name} is {getattr(self, name)}, but must be one number for each '
            f'of {self.channels} channels.')
    if min(self.std) <= 0:
      raise ValueError(f'std must be positive, but is {self.std}.')
    if not 0 < self.crop <= 1:
      raise ValueError(
          f'crop is a part of the image, in (0, 1], but is {self.crop}.')


NAMES = tuple(f.name for f in dataclasses.fields(Preprocess))


def parse(section: Mapping[str, Any]) -> Preprocess:
  """Returns the typed record; a single number or side stands for all."""
  section = dict(section)
  if isinstance(section.get('resolution'), int):
    section['resolution'] = (section['resolution'],) * 2
  for name in ('mean', 'std'):
    if isinstance(section.get(name), (int, float)):
      section[name] = (section[name],) * section.get('channels', 3)
  return schema.parse(Preprocess, section, where='preprocess')


def from_data(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what a section `data` of a run says."""
  result = {name: section[name] for name in (
      'resolution', 'mean', 'std', 'channels', 'value_range')
            if name in section}
  if 'dtype' in section:
    result['pixel_dtype'] = section['dtype']
  for name in ('mean', 'std'):
    if isinstance(result.get(name), (list, tuple)) and len(result[name]) == 1:
      result[name] = result[name][0]
  size = section.get('resolution')
  short = min(size) if isinstance(size, (list, tuple)) else size
  for op in section.get('eval_ops', ()):
    if op.get('op') == 'resize':
      result['interpolation'] = op.get('method', 'bilinear')
      if op.get('shorter'):
        result['keep_aspect'] = True
        if short:
          result['crop'] = min(1.0, short / op['shorter'])
  return result


def from_huggingface(
    config: Mapping[str, Any], skip: Container[str] = (),
) -> dict[str, Any]:
  """Returns what a `preprocessor_config.json` says.

  Args:
    config: what is in it.
    skip: keys of `Preprocess` that are not asked for.

  Raises:
    ValueError: if it is something that `Preprocess` cannot say.
  """
  result: dict[str, Any] = {}
  crop = config.get('crop_size') if config.get('do_center_crop') else None
  size = crop or config.get('size')
  if isinstance(size, Mapping) and 'height' in size:
    result['resolution'] = (size['height'], size['width'])
  elif isinstance(size, int):
    result['resolution'] = (size, size)
  result |= {name: value for name, value in _huggingface_range(config).items()
             if name not in skip}
  if config.get('resample') is not None and 'interpolation' not in skip:
    number = config['resample']
    if isinstance(number, bool) or number not in _RESAMPLE:
      raise ValueError(
          f'resample is {number!r}, but must be one of '
          f'{", ".join(f"{k} ({v})" for k, v in _RESAMPLE.items())}. Or say '
          'it: interpolation=...')
    result['interpolation'] = _RESAMPLE[number]
  whole = config.get('size')
  if isinstance(whole, Mapping) and 'shortest_edge' in whole:
    result['keep_aspect'] = True
    if 'resolution' in result:
      result['crop'] = min(
          1.0, min(result['resolution']) / whole['shortest_edge'])
  elif crop and isinstance(whole, Mapping) and 'height' in whole:
    result['crop'] = min(1.0, result['resolution'][0] / whole['height'])
  return result


def _huggingface_range(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns mean and std for images in [0, 1], where the file has pixels."""
  result: dict[str, Any] = {}
  if config.get('do_normalize', True):
    for ours, theirs in (('mean', 'image_mean'), ('std', 'image_std')):
      if theirs in config:
        result[ours] = _three(theirs, config[theirs])
  else:
    result |= {'mean': (0.0,) * 3, 'std': (1.0,) * 3}
  factor = config.get('rescale_factor', 1 / 255)
  if not config.get('do_rescale', True):
    factor = 1
  if not isinstance(factor, (int, float)) or not 0 < factor < math.inf:
    raise ValueError(
        f'rescale_factor must be a positive number, but is {factor!r}.')
  if config.get('rescale_offset') or config.get('offset'):
    raise ValueError(
        'it moves pixels after it scales them (offset), which ours do not: '
        'take that into image_mean.')
  if not math.isclose(255 * factor, 1, rel_tol=1e-6):
    # (255 f x - m) / s, of x in [0, 1].
    if set(result) != {'mean', 'std'}:
      raise ValueError(
          f'it scales pixels by {factor!r}, but says no image_mean and '
          'image_std of that. Add both.')
    result = {name: tuple(v / (255 * factor) for v in values)
              for name, values in result.items()}
  return result


def _three(theirs: str, values: Any) -> tuple[float, ...]:
  result = tuple(map(float, values))
  if len(result) != 3:
    raise ValueError(
        f'{theirs} must be three numbers, of red, green and blue, but is '
        f'{values!r}.')
  return result


def to_huggingface(preprocess: Preprocess) -> dict[str, Any]:
  """Returns a `preprocessor_config.json`."""
  height, width = preprocess.resolution
  size: dict[str, int] = {'height': height, 'width': width}
  config: dict[str, Any] = {
      'image_processor_type': 'ViTImageProcessor',
      'do_resize': True,
      'resample': next(number for number, name in _RESAMPLE.items()
                       if name == preprocess.interpolation),
      'do_rescale': True, 'rescale_factor': 1 / 255,
      'do_normalize': True,
      'image_mean': list(preprocess.mean), 'image_std': list(preprocess.std)}
  if preprocess.keep_aspect:
    short = round(min(height, width) / preprocess.crop)
    return {**config, 'size': {'shortest_edge': short}, 'do_center_crop': True,
            'crop_size': size}
  return {**config, 'size': size}


def from_timm(
    config: Mapping[str, Any], skip: Container[str] = (),
) -> dict[str, Any]:
  """Returns what the `pretrained_cfg` of a timm `config.json` says.

  Args:
    config: what is in the file.
    skip: keys of `Preprocess` that are not asked for.

  Raises:
    ValueError: if it is something that `Preprocess` cannot say.
  """
  inner = config.get('pretrained_cfg') or {}
  result: dict[str, Any] = {}
  if str(config.get('architecture', '')).startswith('deit'):
    result |= {'mean': IMAGENET_MEAN, 'std': IMAGENET_STD}
  if 'input_size' in inner:
    channels, *sides = inner['input_size']
    if channels != 3 or len(sides) != 2:
      raise ValueError(
          'input_size must be [3, height, width], but is '
          f'{inner["input_size"]!r}.')
    result['resolution'] = tuple(sides)
  for name in ('mean', 'std'):
    if name in inner and name not in skip:
      result[name] = _three(name, inner[name])
  if inner.get('crop_pct'):
    result['crop'] = float(inner['crop_pct'])
    mode = inner.get('crop_mode') or 'center'
    if mode not in ('center', 'squash') and 'keep_aspect' not in skip:
      raise ValueError(
          f'crop_mode is {mode!r}, but must be center or squash. Or say what '
          'comes nearest: keep_aspect=True or False.')
    result['keep_aspect'] = mode == 'center'
  if inner.get('interpolation') and 'interpolation' not in skip:
    if inner['interpolation'] not in _RESAMPLE.values():
      raise ValueError(
          f'interpolation is {inner["interpolation"]!r}, but must be one of '
          f'{", ".join(_RESAMPLE.values())}. Or say it: interpolation=...')
    result['interpolation'] = inner['interpolation']
  labels = config.get('label_names') or inner.get('label_names')
  if labels:
    result['labels'] = tuple(map(str, labels))
  return result


def to_timm(preprocess: Preprocess) -> dict[str, Any]:
  """Returns the `pretrained_cfg` of a timm `config.json`."""
  return {
      'input_size': [3, *preprocess.resolution],
      'mean': list(preprocess.mean), 'std': list(preprocess.std),
      'crop_pct': preprocess.crop,
      'crop_mode': 'center' if preprocess.keep_aspect else 'squash',
      'interpolation': preprocess.interpolation}
