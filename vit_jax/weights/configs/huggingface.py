"""config.json and preprocessor_config.json of a Hugging Face ViT.

Format: https://huggingface.co/docs/transformers/model_doc/vit.
"""

from collections.abc import Container, Mapping
import math
from typing import Any

from vit_jax import models
from vit_jax.models import vit_config
from vit_jax.weights.configs import declared
from vit_jax.weights.configs import preprocessing

_MODEL_TYPES = ('vit', 'deit')
_GELU = {'gelu': 'exact', 'gelu_python': 'exact', 'gelu_new': 'tanh',
         'gelu_pytorch_tanh': 'tanh', 'gelu_fast': 'tanh',
         'quick_gelu': 'quick'}
_PROBLEM_TYPES = {'sigmoid': 'multi_label_classification', 'none': 'regression'}
_MODEL_KEYS = {
    'hidden_size': 'width', 'num_hidden_layers': 'depth',
    'intermediate_size': 'mlp_dim', 'patch_size': 'patch',
    'num_attention_heads': 'num_heads', 'qkv_bias': 'qkv_bias',
    'layer_norm_eps': 'layer_norm_epsilon'}
# Pillow's filter numbers.
_RESAMPLE: Mapping[int, preprocessing.Interpolation] = {
    0: 'nearest', 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box'}


def recognises(config: Mapping[str, Any]) -> bool:
  """Whether a config.json is from transformers or the family 'scratch'."""
  return 'model_type' in config or 'hidden_size' in config


def parse(
    config: Mapping[str, Any], overrides: Container[str] = (),
) -> declared.Declared:
  """Returns the settings that a config.json declares.

  Raises:
    ValueError: if our models lack a setting that is not in `overrides`.
  """
  kind = config.get('model_type')
  if kind is not None and kind not in _MODEL_TYPES:
    raise ValueError(f'model_type is {kind!r}, expected one of '
                     f'{", ".join(_MODEL_TYPES)}.')
  result = declared.Declared(
      families=('huggingface',) if kind else ('huggingface', 'scratch'))
  result.model = {ours: config[theirs] for theirs, ours in _MODEL_KEYS.items()
                  if config.get(theirs) is not None}
  if config.get('image_size') is not None:
    result.resolution = declared.sides(config['image_size'])
  act = config.get('hidden_act')
  if act is not None and 'gelu' not in overrides:
    if act not in _GELU:
      raise ValueError(
          f'hidden_act is {act!r}, expected one of {", ".join(_GELU)}. To load '
          "the weights anyway: gelu='exact' or gelu='tanh'.")
    result.model['gelu'] = _GELU[act]
  for activation, problem in _PROBLEM_TYPES.items():
    if config.get('problem_type') == problem:
      result.preprocess['activation'] = activation
  architectures = config.get('architectures') or ('Classification',)
  if any('Classification' in str(name) for name in architectures):
    labels = config.get('id2label') or {}
    count = len(labels) or config.get('num_labels', config.get('num_classes'))
    if count is not None:
      result.model['num_classes'] = count
    names = [str(labels[k]) for k in sorted(labels, key=int)]
    if names != _default_labels(len(names)):
      result.preprocess['labels'] = tuple(names)
  elif config.get('pooler_act') not in (None, 'tanh'):
    raise ValueError(f'pooler_act is {config["pooler_act"]!r}, but the '
                     'representation layer computes tanh.')
  return result


def _default_labels(count: int) -> list[str]:
  return [f'LABEL_{i}' for i in range(count)]


def parse_preprocessor(
    config: Mapping[str, Any], overrides: Container[str] = (),
) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that a preprocessor_config.json declares.

  Raises:
    ValueError: if `Preprocess` cannot represent a setting that is not in
      `overrides`.
  """
  result: dict[str, Any] = {}
  crop = config.get('crop_size') if config.get('do_center_crop') else None
  whole = config.get('size')
  size = crop or whole
  if isinstance(size, Mapping) and 'height' in size:
    result['resolution'] = (size['height'], size['width'])
  elif isinstance(size, int):
    result['resolution'] = (size, size)
  result |= _normalization(config, overrides)
  resample = config.get('resample')
  if resample is not None and 'interpolation' not in overrides:
    if isinstance(resample, bool) or resample not in _RESAMPLE:
      raise ValueError(
          f'resample is {resample!r}, expected one of {dict(_RESAMPLE)}. '
          'Override it: interpolation=...')
    result['interpolation'] = _RESAMPLE[resample]
  if isinstance(whole, Mapping) and 'shortest_edge' in whole:
    result['keep_aspect'] = True
    if 'resolution' in result:
      result['crop'] = min(
          1.0, min(result['resolution']) / whole['shortest_edge'])
  elif crop and isinstance(whole, Mapping) and 'height' in whole:
    result['crop'] = min(1.0, result['resolution'][0] / whole['height'])
  return result


def _normalization(
    config: Mapping[str, Any], overrides: Container[str],
) -> dict[str, Any]:
  """Returns mean and std for images in [0, 1]."""
  factor = (config.get('rescale_factor', 1 / 255)
            if config.get('do_rescale', True) else 1)
  offset = config.get('rescale_offset') or config.get('offset')
  if (offset or not math.isclose(255 * factor, 1, rel_tol=1e-6)) and not (
      'mean' in overrides and 'std' in overrides):
    raise ValueError(
        f'The pixels are multiplied by {factor!r}, expected 1 / 255 and no '
        'offset. Override the normalisation of images in [0, 1]: mean=..., '
        'std=...')
  result: dict[str, Any] = {'mean': (0.0,) * 3, 'std': (1.0,) * 3}
  if config.get('do_normalize', True):
    result = {ours: tuple(config[theirs]) for ours, theirs in (
        ('mean', 'image_mean'), ('std', 'image_std')) if theirs in config}
  return {name: value for name, value in result.items()
          if name not in overrides}


def config_files(
    config: models.ModelConfig, resolution: tuple[int, int],
    preprocess: preprocessing.Preprocess,
) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported ViT, by file name.

  `resolution` is the image size of the position embeddings.

  Raises:
    ValueError: if the number of labels is not the number of classes.
  """
  assert isinstance(config, vit_config.ViTConfig)
  classes = config.num_classes
  labels = preprocess.labels or _default_labels(classes)
  if len(labels) != classes:
    raise ValueError(f'{len(labels)} labels for {classes} classes.')
  height, width = resolution
  problem = _PROBLEM_TYPES.get(preprocess.activation)
  result = {
      'architectures': [
          'ViTForImageClassification' if classes else 'ViTModel'],
      'model_type': 'vit',
      **{theirs: getattr(config, ours) for theirs, ours in _MODEL_KEYS.items()},
      'hidden_act': {'exact': 'gelu', 'tanh': 'gelu_pytorch_tanh',
                     'quick': 'quick_gelu'}[config.gelu],
      'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0,
      'initializer_range': 0.02,
      'image_size': height if height == width else [height, width],
      'num_channels': 3,
      'id2label': {str(i): label for i, label in enumerate(labels)},
      'label2id': {label: i for i, label in enumerate(labels)},
      **({'problem_type': problem} if problem else {}),
      'torch_dtype': 'float32'}
  return {'config.json': result,
          'preprocessor_config.json': _preprocessor(preprocess)}


def _preprocessor(preprocess: preprocessing.Preprocess) -> dict[str, Any]:
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
