"""config.json and preprocessor_config.json of Hugging Face models.

Format: https://huggingface.co/docs/transformers/model_doc/vit.
"""

import collections
from collections.abc import Container, Mapping
import math
from typing import Any

from vit_jax import schema
from vit_jax.data.augment import ops as ops_lib
from vit_jax.weights.configs import declared
from vit_jax.weights.configs import huggingface_types

PROBLEM_TYPES = {'sigmoid': 'multi_label_classification', 'none': 'regression'}
# Pillow's filter numbers.
RESAMPLE: Mapping[int, ops_lib.Method] = {
    0: 'nearest', 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box'}

def recognises(config: Mapping[str, Any]) -> bool:
  """Whether a config.json is from transformers or the family 'scratch'."""
  return 'model_type' in config or 'hidden_size' in config


def parse(config: Mapping[str, Any]) -> declared.Declared:
  """Returns the settings that a config.json declares.

  Raises:
    ValueError: if our models lack a setting.
  """
  kind = config.get('model_type')
  found = _model_type(kind)
  result = declared.Declared(
      families=(found.family,) if kind else ('huggingface', 'scratch'))
  sections: list[Any] = [
      config.get(f'{found.inner}_dict'), config.get(found.inner), config]
  inner = collections.ChainMap(*filter(None, sections))
  result.model = {ours: inner[theirs]
                  for theirs, ours in huggingface_types.MODEL_KEYS.items()
                  if inner.get(theirs) is not None}
  if found.num_heads and 'num_heads' not in result.model:
    result.model['num_heads'] = found.num_heads
    result.origins['num_heads'] = f'inferred from model_type {kind}'
  if kind == 'dinov3_vit' and 'rope_theta' in config:
    result.model['rotary'] = {
        'coordinates': 'normalized', 'base': float(config['rope_theta']),
        'halves': True}
  if inner.get('image_size') is not None:
    result.resolution = declared.sides(inner['image_size'])
  result.model |= _gelu(inner, found)
  for activation, problem in PROBLEM_TYPES.items():
    if config.get('problem_type') == problem:
      result.preprocess['activation'] = activation
  labels = config.get('id2label') or {}
  architectures = config.get('architectures') or (
      ('Classification',) if found.family == 'huggingface' else ())
  if any('Classification' in str(name) for name in architectures):
    if kind == 'clip':
      result.model |= {**found.settings, 'cls': True}
      result.preprocess.setdefault('activation', 'softmax')
    count = len(labels) or config.get('num_labels', config.get('num_classes'))
    if count is not None:
      result.model['num_classes'] = count
    names = declared.class_names(labels)
    if list(names) != default_labels(len(names)):
      result.preprocess['labels'] = names
  elif found.family == 'huggingface' and (
      config.get('pooler_act') not in (None, 'tanh')):
    raise ValueError(f'pooler_act is {config["pooler_act"]!r}, but the '
                     'representation layer computes tanh.')
  return result


def _model_type(kind: str | None) -> huggingface_types.ModelType:
  """Returns the row of a `model_type`; that of 'vit' for None.

  Raises:
    ValueError: if it is not supported.
  """
  found = huggingface_types.TYPES.get('vit' if kind is None else str(kind))
  if found is None:
    missing = huggingface_types.MISSING.get(str(kind))
    raise ValueError(
        f'model_type is {kind!r}, '
        + (f'which has {missing}: our models lack that component.' if missing
           else f'expected one of {", ".join(huggingface_types.TYPES)}.'))
  return found


def _gelu(
    config: Mapping[str, Any], kind: huggingface_types.ModelType,
) -> dict[str, Any]:
  """Returns the setting `gelu`.

  Raises:
    ValueError: for another activation.
  """
  act = config.get('hidden_act')
  gated = config.get('use_gated_mlp')  # SwiGLU.
  if act is None and not gated:
    return {'gelu': kind.gelu} if kind.gelu else {}
  if gated:
    if act != 'silu':
      raise ValueError(
          f'use_gated_mlp is true and hidden_act is {act!r}, but our models '
          "have gates only with 'silu' (SwiGLU).")
    return {}
  schema.check_name(act, list(huggingface_types.GELU), what='hidden_act')
  return {'gelu': huggingface_types.GELU[str(act)]}


def default_labels(count: int) -> list[str]:
  return [f'LABEL_{i}' for i in range(count)]


def parse_preprocessor(
    config: Mapping[str, Any], overrides: Container[str] = (),
) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that a preprocessor_config.json declares.

  Raises:
    ValueError: if `Preprocess` cannot represent a setting. A normalisation that
      it cannot represent is accepted if `overrides` has mean and std.
  """
  result: dict[str, Any] = {}
  crop = config.get('crop_size')
  if not config.get('do_center_crop'):
    crop = None
  whole = config.get('size') if config.get('do_resize', True) else None
  if crop and isinstance(whole, int) and any(
      str(config.get(key)).startswith('CLIP')
      for key in ('image_processor_type', 'feature_extractor_type')):
    whole = {'shortest_edge': whole}
  elif crop and isinstance(whole, int):  # As Transformers reads it.
    whole = {'height': whole, 'width': whole}
  size = crop or whole
  if isinstance(size, Mapping) and 'height' in size:
    result['resolution'] = (size['height'], size['width'])
  elif isinstance(size, int):
    result['resolution'] = (size, size)
  result |= _normalization(config, overrides)
  resample = config.get('resample')
  if resample is not None:
    if resample not in RESAMPLE:
      raise ValueError(
          f'resample is {resample!r}, expected one of {dict(RESAMPLE)}.')
    result['interpolation'] = RESAMPLE[resample]
  whole = whole if isinstance(whole, Mapping) else {}
  shorter = whole.get('shortest_edge')
  if crop and 'resolution' in result:
    # Transformers 5 rounds offsets of crops down, unlike torchvision.
    result['ops'] = [{'op': 'central_crop'}]
    if whole:
      result['ops'].insert(0, {'op': 'resize', **(
          {'shorter': shorter, 'rounding': 'torchvision'} if shorter else
          {'size': (whole['height'], whole['width'])})})
  elif shorter:
    result['keep_aspect'] = True
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
