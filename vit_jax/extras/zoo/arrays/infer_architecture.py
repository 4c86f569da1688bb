"""Model config inferred from the names and shapes of parameters."""

from collections.abc import Mapping
from typing import Any

from vit_jax.exceptions import UserError
from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records
from vit_jax.models import variants
from vit_jax.weights import inferred

_LAYERS = 'encoder/layers'


def section(
    params: Mapping[str, Any], family: records.Family, *,
    declared: Mapping[str, Any], heads_in_shapes: bool,
) -> dict[str, Any]:
  """Returns the section `model` of a model with these parameters.

  `declared` settings override the family's settings.

  Raises:
    UserError: if an array that every model has is missing.
  """
  name = family.settings.get('name', 'vit')
  if (declared.get('name', name) == 'resnet') != (name == 'resnet'):
    raise UserError(
        f'name: expected {declared["name"]!r}, found the arrays of a {name}.')
  result: dict[str, Any] = {
      **family.settings,
      'num_classes': inferred.num_classes(params)}
  if name == 'vit':
    result = {**_encoder(params, family, declared), **result}
    if heads_in_shapes:
      result['num_heads'] = inferred.heads(params)
    result |= _pooling(params, family, declared)
    if family.ambiguous:
      _check_undetermined(params, declared)
      if result['stem_norm'] != 'none':
        result['layer_norm_epsilon'] = 1e-5  # CLIP and AIMv2.
  result |= {**declared, 'name': name}  # `factory.parse` finds another.
  return result | inferred.stem(params, family.backbone, declared)


def _encoder(
    params: Mapping[str, Any], family: records.Family,
    declared: Mapping[str, Any],
) -> dict[str, Any]:
  result: dict[str, Any] = {
      **inferred.encoder(params, family.table),
      'distill_token': 'distill' in params,
      'registers': _length(params, 'registers'),
      **_blocks(params), **_positions(params),
      'pool_norm': 'pool_norm/scale' in params}
  if f'{_LAYERS}/attention_scale' in params:
    result['layer_scale'] = 1e-5  # Initial value, replaced by the weights.
  if result['pool_norm'] and 'final_norm/scale' not in params:
    result['final_norm'] = False
  return result


def _check_undetermined(
    params: Mapping[str, Any], declared: Mapping[str, Any],
) -> None:
  """Checks that settings which the arrays do not reveal are declared.

  Raises:
    UserError: if rotary positions, the GELU of CLIP or the order of norms are
      unknown.
  """
  def has(name: str) -> bool:
    return f'{_LAYERS}/{name}' in params

  clip = 'stem_norm/scale' in params
  rotates = not _positions(params) and (
      has('attention/qv_bias')
      or (clip and 'pooling/probe' in params)
      # DINOv3 and RoPE-ViT.
      or ('positions' not in params and has('attention_scale')))
  advice = ('Put the config.json of the model next to its weights, or load it '
            'with ')
  if rotates and 'rotary' not in declared:
    raise UserError(
        'These arrays are those of a model with rotary positions, which are '
        'not stored in any array. '
        f'{advice}rotary={{...}}, or with rotary=None.')
  if clip and 'gelu' not in declared:
    raise UserError(
        'These arrays are those of a CLIP model, whose GELU no array shows. '
        f"{advice}gelu='quick' (OpenAI) or gelu='exact' (OpenCLIP).")
  # EVA and EVA-02-CLIP E, unlike BEiT; then models with and without '_rpn'.
  either = has('attention_norm/bias') and not has('attention_scale') and (
      (has('attention/qv_bias') and not has('mlp/gate/kernel')
       and not _positions(params))
      or not (has('attention/qv_bias') or has('attention/qkv_bias')
              or 'cls' in params))
  if either and 'post_norm' not in declared:
    raise UserError(
        'These arrays are those of models with norms before or after attention '
        f'and MLP, which no array shows. {advice}post_norm=False (such as '
        'eva_giant) or post_norm=True (such as eva02_enormous and rpn).')


def _blocks(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of norms, biases and the MLP."""
  def has(name: str) -> bool:
    return f'{_LAYERS}/{name}' in params

  return {
      'qkv_bias': has('attention/qkv_bias') or has('attention/qv_bias'),
      'key_bias': not has('attention/qv_bias'),
      'proj_bias': has('attention/out/bias'),
      'qk_norm': has('attention/query_norm/scale'),
      'paired': has('second_attention_norm/scale'),
      'differential': has('attention/difference/lambdas'),
      'norm': 'layer' if has('attention_norm/bias') else 'rms',
      'mlp': 'swiglu' if has('mlp/gate/kernel') else 'gelu',
      'inner_norm': ('both' if has('attention/inner_norm/scale') else
                     'mlp' if has('mlp/inner_norm/scale') else 'none'),
      'stem_norm': ('tokens' if 'stem_norm/scale' in params else
                    'patches' if 'patch_norm/scale' in params else 'none')}


def _positions(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of positions; {} for one array or none."""
  if 'positions_rows' in params:
    return {'position': 'factorized'}
  for module, place in ((names.RELATIVE, 'stem'),
                        (names.SHARED_RELATIVE, 'shared')):
    if f'{module}/offsets' in params:
      return {'position': 'relative_2d', 'position_at': place}
    hidden = params.get(f'{module}/hidden/kernel')
    if hidden is not None:
      return {'position': 'relative_mlp', 'position_at': place,
              'position_mlp_dim': int(hidden.shape[-1])}
  return {}


def _pooling(
    params: Mapping[str, Any], family: records.Family,
    declared: Mapping[str, Any],
) -> dict[str, Any]:
  has_cls = 'cls' in params
  pooling = declared.get('pooling') or (
      'attention' if 'pooling/probe' in params
      else 'average' if 'pool_norm/scale' in params or not has_cls
      # The head reads both, as in DINOv2.
      else 'cls_average' if 'head/dense/kernel' in params and (
          len(params['head/dense/kernel']) == 2 * params['cls'].shape[-1])
      # With a head, the second token is that of a DeiT, which does not use it.
      else family.several_cls if 'registers' in params and (
          'head/dense/kernel' not in params) else 'cls')
  cls = None if has_cls == pooling.startswith('cls') else has_cls
  result = {'pooling': pooling, 'cls': cls}
  hidden = params.get('pooling/mlp/hidden/kernel')
  if hidden is not None and (
      hidden.shape[-1] != params[f'{_LAYERS}/mlp/hidden/kernel'].shape[-1]):
    result['pool_mlp_dim'] = int(hidden.shape[-1])
  return result


def _length(params: Mapping[str, Any], name: str) -> int:
  return int(params[name].shape[0]) if name in params else 0


def num_heads(
    section: Mapping[str, Any], *, family: records.Family, path: str,
) -> tuple[int, str]:
  """Returns the number of heads of the published size, and whose it is.

  Raises:
    UserError: if no published size has these widths.
  """
  width = section['width']
  if width in family.num_heads:
    return family.num_heads[width], f'as {family.label} has at this width'
  for name, size in variants.SIZES.items():
    if (size.width, size.mlp_dim) == (section['width'], section['mlp_dim']):
      return size.num_heads, f'as ViT-{name} has'
  raise UserError(
      f'{path}: the number of heads is unknown: the arrays do not contain '
      f'it, no config.json declares it, and no published size has width '
      f'{section["width"]}. Set it: num_heads=N.')
