"""Sections `model` of earlier versions, where one record held every ViT."""

from collections.abc import Mapping
import dataclasses
import typing
from typing import Any

from vit_jax.exceptions import UserError
from vit_jax.models import vit

# Keys that are no longer those of `vit`, and their defaults.
_ENDED: Mapping[str, Any] = {
    **dict.fromkeys(('backbone', 'rotary', 'layer_scale')),
    **dict.fromkeys((
        'num_kv_heads', 'registers', 'merge', 'merge_mlp_dim', 'merge_dim',
        'pool_heads', 'pool_mlp_dim', 'projection'), 0),
    **dict.fromkeys((
        'distill_token', 'axial', 'parallel', 'paired', 'post_norm', 'qk_norm',
        'differential', 'pool_prefix', 'cosine_head'), False),
    **dict.fromkeys((
        'position_cls', 'qkv_bias', 'key_bias', 'proj_bias', 'mlp_bias',
        'layer_scale_mlp', 'pool_norm_affine'), True),
    'position_at': 'stem', 'position_mlp_dim': 128, 'stem_norm': 'none',
    'mlp': 'gelu', 'inner_norm': 'none', 'norm': 'layer'}
# Patch sizes that training drew from; parameters are those of `patch`.
_DRAWN = 'patch_sizes'
_VALUES = ('position', 'pooling', 'gelu')  # Keys with more values then.
_ABLATIONS = ('2d', 'factorized', 'relative')


def translate(section: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a section whose `name` is that of the record that has its keys.

  A `vit` with keys or values that ended, unless at their defaults, becomes a
  `hybrid`, an `ablation` or a `backbone`. Others are returned unchanged.
  Without `patch_sizes`, which change nothing after training.
  """
  if section.get('name', 'vit') != 'vit':
    return dict(section)
  kept = {key: value for key, value in section.items() if key != _DRAWN and (
      key not in _ENDED or _plain(value) != _ENDED[key])}
  if isinstance(kept.get('rotary'), Mapping):
    kept['rotary'] = {key: value for key, value in kept['rotary'].items()
                      if key not in ('cls', 'video') or value is not False}
  hints = typing.get_type_hints(vit.ViTConfig)
  names = {field.name for field in dataclasses.fields(vit.ViTConfig)}
  beyond = {key for key in kept if key not in names or (
      key in _VALUES and kept[key] not in typing.get_args(hints[key]))}
  if not beyond or not beyond <= {*_ENDED, *_VALUES}:
    name = 'vit'  # Which reports unknown keys and values.
  elif beyond == {'backbone'}:
    name = 'hybrid'
  elif beyond <= {'position', 'position_at', 'axial'} and kept.get(
      'position', 'learned') in ('learned', 'sincos', 'none', *_ABLATIONS):
    name = 'ablation'
  else:
    name = 'backbone'
  return {**kept, 'name': name}


def check_training(section: Mapping[str, Any]) -> None:
  """Raises a `UserError` for a section that asks for training of a FlexiViT.
  """
  if sizes := section[_DRAWN]:
    given = sizes if isinstance(sizes, str) else ','.join(map(str, sizes))
    raise UserError(
        f'model.patch_sizes is {given}, but the objective draws patch sizes '
        'now. Replace it with --config.objective.name=flexivit '
        f'--config.objective.patch_sizes={given}, which trains on labels.')


def fixed_size(
    preprocess: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[str, ...]]:
  """Returns stored preprocessing with images of one size, and notes.

  NaFlex weights that were converted earlier kept the aspect ratio of images.
  """
  ops = [{'op': 'resize', 'method': op.get('method', 'bilinear')}
         if isinstance(op, Mapping) and op.get('op') == 'resize_to_patches'
         else op for op in preprocess.get('ops') or ()]
  if ops == (preprocess.get('ops') or []):
    return dict(preprocess), ()
  return {**preprocess, 'ops': ops}, (
      f'images are resized to {preprocess.get("resolution")}: the operation '
      'resize_to_patches, which kept their aspect ratio, ended',)


def _plain(value: Any) -> Any:
  return tuple(value) if isinstance(value, list) else value
