"""config.json and preprocessor_config.json that transformers reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_jax import fields
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import huggingface_types
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.families import families
from vit_jax.weights import weights as weights_lib

# Settings that every model type stores, and others.
_STORED = ('name', 'cls', 'gelu', 'layer_norm_epsilon',
           *vit_config.BackboneConfig.dimensions)
_CHECKED = (*(name for name in fields.switches(vit_config.BackboneConfig)
              if name not in _STORED), 'representation_layer', 'num_classes')


def model_type(model: weights_lib.Weights) -> str:
  """Returns the model type that a ViT is written as.

  Raises:
    ValueError: naming a setting that the nearest model type does not have.
  """
  config = model.config
  assert isinstance(config, vit_config.BackboneConfig)
  values = {name: getattr(config, name) for name in _CHECKED}
  values['cls'] = config.has_cls
  found = []
  for kind, one in huggingface_types.TYPES.items():
    family = families.FAMILIES[one.family]
    if one.base or config.num_classes:
      expected = huggingface_types.expected(one, config)
      unlike = [name for name, value in values.items()
                if name not in one.free and value != expected[name]]
      found.append((len(unlike), config.gelu != family.settings.get('gelu'),
                    kind, expected, unlike))
  *_, kind, expected, unlike = min(found, key=lambda one: one[:2])
  for name in unlike:
    raise ValueError(
        f'The format huggingface cannot store {name}={values[name]!r} in a '
        f'model of type {kind}, only {expected[name]!r}. Save the model as '
        'timm or orbax.')
  return kind


def config_files(model: weights_lib.Weights) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported ViT, by file name."""
  config, preprocess = model.config, model.preprocess
  assert isinstance(config, vit_config.BackboneConfig)
  classes = config.num_classes
  labels = preprocess.labels or huggingface.default_labels(classes)
  kind = model_type(model)
  found = huggingface_types.TYPES[kind]
  result: dict[str, Any] = _model(config, model.resolution, kind)
  if found.inner and found.classifier:
    result = {found.inner: result, 'text_config': {}}
  problem = huggingface.PROBLEM_TYPES.get(preprocess.activation)
  result |= {
      'architectures': [found.classifier if classes else found.base],
      'model_type': kind, 'torch_dtype': 'float32'}
  if kind == 'clip_vision_model':
    result['projection_dim'] = classes or config.width
  else:
    result |= {'id2label': {str(i): label for i, label in enumerate(labels)},
               'label2id': {label: i for i, label in enumerate(labels)},
               **({'problem_type': problem} if problem else {})}
  processor = _preprocessor(preprocess)
  if families.FAMILIES[found.family].normalizes:
    result |= {f'norm_{key}': processor.pop(f'image_{key}')
               for key in ('mean', 'std')}
    processor['do_normalize'] = False
  return {'config.json': result, 'preprocessor_config.json': processor}


def buffers(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns the arrays of C-RADIO, by name, that repeat its config.json."""
  return {} if config.get('model_type') != 'radio' else {
      **{f'radio_model.input_conditioner.{key}': np.reshape(
          np.asarray(config[key], np.float32), (3, 1, 1))
         for key in ('norm_mean', 'norm_std')},
      'radio_model.summary_idxs': np.asarray(config['summary_idxs'])}


def _model(
    config: vit_config.BackboneConfig, resolution: tuple[int, int], kind: str,
) -> dict[str, Any]:
  """Returns the keys of config.json that describe the image model.

  Raises:
    ValueError: if the model type has no such model.
  """
  height, width = resolution
  if huggingface_types.TYPES[kind].square and (
      height != width or not isinstance(config.patch, int)):
    raise ValueError(
        f'Models of type {kind} in transformers need square images and '
        f'patches, but these are for {height}x{width} and patches of '
        f'{config.patch}. Save the model as timm or orbax.')
  result: dict[str, Any] = {
      **{theirs: getattr(config, ours)
         for theirs, ours in huggingface.MODEL_KEYS.items()},
      'hidden_act': _key(huggingface.GELU, config.gelu),
      'initializer_range': 0.02,
      'image_size': height if height == width else [height, width],
      'num_channels': 3}
  if config.registers:
    result['num_register_tokens'] = config.registers
  result |= huggingface_types.TYPES[kind].written(config, height)
  return {key: value for key, value in result.items() if value is not None}


def _key(table: Mapping[Any, str], value: str) -> Any:
  """Returns the first key of a value."""
  return next(key for key, found in table.items() if found == value)


def _preprocessor(preprocess: preprocessing.Preprocess) -> dict[str, Any]:
  """Returns preprocessor_config.json.

  Raises:
    ValueError: if transformers cannot express the operations.
  """
  height, width = preprocess.resolution
  common = {
      'do_resize': True, 'do_rescale': True, 'rescale_factor': 1 / 255,
      'do_normalize': True, 'image_mean': list(preprocess.mean),
      'image_std': list(preprocess.std)}
  resize = resize_and_crop.check(preprocess, 'transformers')
  if resize.cover and (height != width or resize.least[0] != resize.least[1]):
    raise ValueError(
        f'transformers cannot express the operations {preprocess.sections}: it '
        'resizes the shorter side. Save the model as orbax, npz or timm.')
  config: dict[str, Any] = {
      **common, 'size': {'height': height, 'width': width},
      'resample': _key(huggingface.RESAMPLE, resize.method)}
  crop = {'do_center_crop': True, 'crop_size': config['size']}
  # These types are in transformers 4 and 5.
  if not resize.size:
    return {**config, **crop, 'image_processor_type': 'CLIPImageProcessor',
            'size': {'shortest_edge': resize.least[0]}}
  height, width = resize.least
  if resize.least != preprocess.resolution:
    return {**config, **crop, 'image_processor_type': 'DeiTImageProcessor',
            'size': {'height': height, 'width': width}}
  return {**config, 'image_processor_type': 'ViTImageProcessor'}
