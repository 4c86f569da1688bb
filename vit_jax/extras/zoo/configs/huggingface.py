"""config.json and preprocessor_config.json of Hugging Face models.

Source: the configuration classes of transformers 5.23, such as
https://huggingface.co/docs/transformers/model_doc/vit.
"""

import collections
from collections.abc import Mapping
import math
from typing import Any

from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.data.images import resize as resize_lib
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import declared
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records

GELU = {'gelu': 'exact', 'gelu_pytorch_tanh': 'tanh', 'quick_gelu': 'quick',
        'gelu_python': 'exact', 'gelu_new': 'tanh', 'gelu_fast': 'tanh'}
MODEL_KEYS = {
    'hidden_size': 'width', 'num_hidden_layers': 'depth',
    'intermediate_size': 'mlp_dim', 'patch_size': 'patch',
    'num_attention_heads': 'num_heads', 'qkv_bias': 'qkv_bias',
    'layer_norm_eps': 'layer_norm_epsilon'}

_OWN: Mapping[str, records.ModelType] = {
    kind: one for lineage in families.LINEAGES
    for kind, one in lineage.types.items()}
# Values of `model_type`, and what they declare.
TYPES: Mapping[str, records.ModelType] = {
    **_OWN, **{kind: _OWN[other] for lineage in families.LINEAGES
               for kind, other in lineage.read_as.items()}}
# Components that our models lack, of other model types of these families.
MISSING: Mapping[str, str] = {
    'vit_mae': 'the decoder of MAE; use the encoder of timm, such as '
               'hf://timm/vit_base_patch16_224.mae'}

PROBLEM_TYPES = {'sigmoid': 'multi_label_classification', 'none': 'regression'}
# Pillow's filter numbers.
RESAMPLE: Mapping[int, resize_lib.Method] = {
    0: 'nearest', 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box'}


def activation(config: Mapping[str, Any]) -> str:
  """Returns the activation that `problem_type` declares; '' for none."""
  return next((name for name, problem in PROBLEM_TYPES.items()
               if problem == config.get('problem_type')), '')


def recognises(config: Mapping[str, Any]) -> bool:
  """Whether a config.json is from transformers or the family 'scratch'."""
  return 'model_type' in config or 'hidden_size' in config


def parse(config: Mapping[str, Any]) -> declared.Declared:
  """Returns the settings that a config.json declares.

  Raises:
    UserError: if our models lack a setting.
  """
  kind = config.get('model_type')
  found = _model_type(kind)
  result = declared.Declared(
      families=(found.family,) if kind else ('huggingface', 'scratch'))
  sections: list[Any] = [
      config.get(f'{found.inner}_dict'), config.get(found.inner), config]
  inner = collections.ChainMap(*filter(None, sections))
  result.model = {ours: inner[theirs]
                  for theirs, ours in MODEL_KEYS.items()
                  if inner.get(theirs) is not None}
  if epsilon := inner.get('rms_norm_eps') or found.epsilon:
    result.model.setdefault('layer_norm_epsilon', epsilon)
  if inner.get('is_native'):
    raise UserError('is_native is true: sine-cosine positions of any grid, '
                    'which our models lack.')
  if found.num_heads and 'num_heads' not in result.model:
    result.model['num_heads'] = found.num_heads
    result.origins['num_heads'] = f'inferred from model_type {kind}'
  theta = (config.get('rope_parameters') or config).get('rope_theta')
  rotary = {**families.FAMILIES[found.family].settings, **found.settings}.get(
      'rotary')
  if rotary and theta:
    result.model['rotary'] = {**rotary, 'base': float(theta)}
  result.positions = found.positions
  result.add_defaults(found.preprocess, f'assumed, as for model_type {kind}')
  size = next((inner[key] for key in (
      'max_img_size', 'image_size', 'crop_size') if key in inner), None)
  if size is not None:
    result.resolution = declared.sides(size)
  result.preprocess |= {ours: tuple(inner[f'norm_{ours}'])
                        for ours in ('mean', 'std') if f'norm_{ours}' in inner}
  result.model |= _gelu(inner, found)
  if found_activation := activation(config):
    result.preprocess['activation'] = found_activation
  labels = config.get('id2label') or {}
  architectures = config.get('architectures') or (
      ('Classification',) if found.family == 'huggingface' else ())
  if any('Classification' in str(name) for name in architectures):
    if found.family == 'clip':
      result.model |= found.settings
      result.preprocess.setdefault('activation', 'softmax')
    count = len(labels) or config.get('num_labels', config.get('num_classes'))
    if count is not None:
      result.model['num_classes'] = count
    names = declared.class_names(labels)
    if list(names) != default_labels(len(names)):
      result.preprocess['labels'] = names
  elif found.family == 'huggingface' and (
      config.get('pooler_act') not in (None, 'tanh')):
    raise UserError(f'pooler_act is {config["pooler_act"]!r}, but the '
                    'representation layer computes tanh.')
  return result


def _model_type(kind: str | None) -> records.ModelType:
  """Returns the row of a `model_type`; that of 'vit' for None.

  Raises:
    UserError: if it is not supported.
  """
  removed.check_name(str(kind))
  found = TYPES.get('vit' if kind is None else str(kind))
  if found is None:
    missing = MISSING.get(str(kind)) or timm_names.missing_component(str(kind))
    raise UserError(
        f'model_type is {kind!r}, '
        + (f'which has {missing}: our models lack that component.' if missing
           else f'expected one of {", ".join(TYPES)}.'))
  return found


def _gelu(
    config: Mapping[str, Any], kind: records.ModelType,
) -> dict[str, Any]:
  """Returns the setting `gelu`.

  Raises:
    UserError: for another activation.
  """
  act = config.get('hidden_act')
  gated = config.get('use_gated_mlp')  # SwiGLU.
  if act is None and not gated:
    return {'gelu': kind.gelu} if kind.gelu else {}
  if gated or kind.family == 'aimv2':
    if act != 'silu':
      raise UserError(
          f'use_gated_mlp is true and hidden_act is {act!r}, but our models '
          "have gates only with 'silu' (SwiGLU).")
    return {}
  schema.check_name(act, list(GELU), what='hidden_act')
  return {'gelu': GELU[str(act)]}


def default_labels(count: int) -> list[str]:
  return [f'LABEL_{i}' for i in range(count)]


def in_model(
    processor: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the keys of a processor, with C-RADIO's own normalization after it.

  (x - m) / s, then (x - mean) / std, is (x - m - s mean) / (s std).
  """
  first = {'mean': (0.0,) * 3, 'std': (1.0,) * 3, **processor}
  then = {'mean': preprocessing.CLIP_MEAN, 'std': preprocessing.CLIP_STD,
          **model}
  return {
      **processor, 'mean': tuple(m + s * mean for m, s, mean in zip(
          first['mean'], first['std'], then['mean'])),
      'std': tuple(s * std for s, std in zip(first['std'], then['std']))}


def parse_preprocessor(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that a preprocessor_config.json declares.

  Raises:
    UserError: if `Preprocess` cannot represent a setting.
  """
  result: dict[str, Any] = _normalization(config)
  crop = config.get('crop_size') if config.get('do_center_crop') else None
  whole = config.get('size') if config.get('do_resize', True) else None
  if crop and isinstance(whole, int):  # As Transformers reads it.
    is_clip = any(str(config.get(key)).startswith('CLIP') for key in (
        'image_processor_type', 'feature_extractor_type'))
    whole = {'shortest_edge': whole} if is_clip else {
        'height': whole, 'width': whole}
  size = crop or whole
  if isinstance(size, Mapping) and 'height' in size:
    result['resolution'] = (size['height'], size['width'])
  elif isinstance(size, int):
    result['resolution'] = (size, size)
  patch, count = config.get('patch_size'), config.get('max_num_patches')
  if patch and count:  # NaFlex, here with a square grid.
    side = math.isqrt(count) * patch
    result['resolution'] = (side, side)
  resample = config.get('resample')
  if resample is not None:
    if resample not in RESAMPLE:
      raise UserError(
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


def _normalization(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns mean and std for images in [0, 1]."""
  if config.get('rescale_offset') or config.get('offset'):
    raise UserError(
        'Pixels are shifted by an offset, which is not supported. Move the '
        'file out of the folder, and load the weights with mean=..., std=...')
  keys = {'mean': 'image_mean', 'std': 'image_std'}
  result = {ours: tuple(config[theirs]) for ours, theirs in keys.items()
            if theirs in config}
  if not config.get('do_normalize', True):
    result = {'mean': (0.0,) * 3, 'std': (1.0,) * 3}
  scale = 255 * (config.get('rescale_factor', 1 / 255)
                 if config.get('do_rescale', True) else 1)
  if math.isclose(scale, 1, rel_tol=1e-6):
    return result
  # (scale x - mean) / std = (x - mean / scale) / (std / scale)
  return {name: tuple(value / scale for value in values)
          for name, values in result.items()}
