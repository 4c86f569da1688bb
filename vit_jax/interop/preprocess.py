"""How an image becomes what a model was trained on, as the formats write it."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from vit_jax import records

Interpolation = Literal['nearest', 'box', 'bilinear', 'bicubic', 'lanczos']

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
  """
  resolution: tuple[int, int]
  mean: tuple[float, ...] = HALF
  std: tuple[float, ...] = HALF
  keep_aspect: bool = False
  crop: float = 1.0
  interpolation: Interpolation = 'bilinear'
  labels: tuple[str, ...] = ()

  def __post_init__(self):
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
      section[name] = (section[name],) * 3
  return records.parse(Preprocess, section, where='preprocess')


def from_data(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what a section `data` of a run says."""
  result = {name: section[name] for name in ('resolution', 'mean', 'std')
            if name in section}
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


def from_huggingface(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what a `preprocessor_config.json` says."""
  result: dict[str, Any] = {}
  crop = config.get('crop_size') if config.get('do_center_crop') else None
  size = crop or config.get('size')
  if isinstance(size, Mapping) and 'height' in size:
    result['resolution'] = (size['height'], size['width'])
  elif isinstance(size, int):
    result['resolution'] = (size, size)
  if config.get('do_normalize', True):
    for ours, theirs in (('mean', 'image_mean'), ('std', 'image_std')):
      if theirs in config:
        result[ours] = tuple(map(float, config[theirs]))
  else:
    result |= {'mean': (0.0,) * 3, 'std': (1.0,) * 3}
  if config.get('resample') in _RESAMPLE:
    result['interpolation'] = _RESAMPLE[config['resample']]
  whole = config.get('size')
  if isinstance(whole, Mapping) and 'shortest_edge' in whole:
    result['keep_aspect'] = True
    if 'resolution' in result:
      result['crop'] = min(
          1.0, min(result['resolution']) / whole['shortest_edge'])
  elif crop and isinstance(whole, Mapping) and 'height' in whole:
    result['crop'] = min(1.0, result['resolution'][0] / whole['height'])
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


def from_timm(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what the `pretrained_cfg` of a timm `config.json` says."""
  inner = config.get('pretrained_cfg') or {}
  result: dict[str, Any] = {}
  if str(config.get('architecture', '')).startswith('deit'):
    result |= {'mean': IMAGENET_MEAN, 'std': IMAGENET_STD}
  if 'input_size' in inner:
    result['resolution'] = tuple(inner['input_size'][1:])
  for name in ('mean', 'std'):
    if name in inner:
      result[name] = tuple(map(float, inner[name]))
  if inner.get('crop_pct'):
    result['crop'] = float(inner['crop_pct'])
    result['keep_aspect'] = inner.get('crop_mode', 'center') == 'center'
  if inner.get('interpolation') in _RESAMPLE.values():
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
