"""Arguments of timm's classes, which build a model, and our settings for them.

Sources: the classes in timm 1.0.31, models/vision_transformer.py, eva.py,
beit.py, vision_transformer_relpos.py and naflexvit.py.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from vit_jax import schema
from vit_jax import tree
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo.configs import timm_naflex
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import layout

POOLING = {'cls': 'token', 'average': 'avg', 'attention': 'map'}
GELU = {'exact': 'gelu', 'tanh': 'gelu_tanh', 'quick': 'quick_gelu'}
_STEM_NORM = ('stem_norm', {'none': False, 'tokens': True})
_ATTENTION_NORM = ('inner_norm', {'none': False, 'mlp': False, 'both': True})
_MLP_NORM = ('inner_norm', {'none': False, 'mlp': True, 'both': True})
_LINEAR = ('position', {'learned': 'learn', 'none': 'none'})

# Our setting for each argument of a class, and timm's values for ours if they
# are others.
_Arguments = Mapping[str, str | tuple[str, Mapping[Any, Any]]]
_DIMENSIONS: _Arguments = {
    'patch_size': 'patch', 'embed_dim': 'width', 'depth': 'depth',
    'num_heads': 'num_heads'}
_BLOCK: _Arguments = {
    **_DIMENSIONS, 'global_pool': ('pooling', POOLING), 'qkv_bias': 'qkv_bias',
    'init_values': 'layer_scale'}
_TOKENS: _Arguments = {**_BLOCK, 'class_token': 'cls', 'qk_norm': 'qk_norm'}
_NO_ATTENTION: _Arguments = {'global_pool': (
    'pooling', {name: POOLING[name] for name in ('cls', 'average')})}
_POOL: _Arguments = {'attn_pool_num_heads': 'pool_heads'}


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
  """Arguments of a class.

  Attributes:
    arguments: those that are one of our settings.
    more: settings that `arguments` computes others from.
  """
  arguments: _Arguments
  more: tuple[str, ...] = ()

  def stored(self, config: vit_config.BackboneConfig) -> set[str]:
    """Returns the settings of a model that arguments set to its values."""
    return {*self.more, *(
        name for name, values in map(setting, self.arguments.values())
        if values is None or _value(config, name) in values)}


VIT = Kind({
    **_TOKENS, 'reg_tokens': 'registers', 'fc_norm': 'pool_norm',
    'pre_norm': _STEM_NORM, 'proj_bias': 'proj_bias',
    'scale_attn_norm': _ATTENTION_NORM, 'scale_mlp_norm': _MLP_NORM,
    'pool_include_prefix': 'pool_prefix', 'act_layer': ('gelu', GELU),
    'pos_embed': _LINEAR}, ('position_cls', 'norm'))
NAFLEX = Kind({
    **{name: of for name, of in VIT.arguments.items()
       if name != 'scale_attn_norm'},
    **_POOL, 'scale_attn_inner_norm': _ATTENTION_NORM,
    'pos_embed': ('position', {'learned': 'learned', 'none': 'none',
                               'factorized': 'factorized'})},
              ('pool_mlp_dim',))
EVA = Kind({
    **_TOKENS, **_POOL, 'num_reg_tokens': 'registers',
    'attn_type': ('key_bias', {True: 'rope', False: 'eva'}),
    'swiglu_mlp': ('mlp', {'gelu': False, 'swiglu': True}),
    'scale_mlp': _MLP_NORM, 'scale_attn_inner': _ATTENTION_NORM,
    'use_pre_transformer_norm': _STEM_NORM,
    'use_post_transformer_norm': 'final_norm', 'use_fc_norm': 'pool_norm',
    'use_post_norm': 'post_norm',
    'attn_only_layer_scale': ('layer_scale_mlp', {True: False, False: True}),
    'use_abs_pos_emb': ('position', {'learned': True, 'none': False})},
           ('position_cls', 'pool_mlp_dim'))
BEIT = Kind({
    **_BLOCK, **_NO_ATTENTION, 'use_rel_pos_bias': (
        'position_at', {'stem': True, 'shared': False}),
    'use_shared_rel_pos_bias': (
        'position_at', {'stem': False, 'shared': True}),
    'use_fc_norm': 'pool_norm'})
RELPOS = Kind({
    **_TOKENS, **_NO_ATTENTION, 'fc_norm': 'pool_norm',
    'shared_rel_pos': ('position_at', {'stem': False, 'shared': True}),
    'rel_pos_type': ('position', {
        'relative_2d': 'bias', 'relative_mlp': 'mlp'}),
    'rel_pos_dim': 'position_mlp_dim'})
# Arguments of rotary positions.
ROTARY = (
    'use_rot_pos_emb', 'rope_type', 'rope_temperature', 'rope_rotate_half',
    'rope_grid_indexing', 'rope_grid_offset', 'ref_feat_shape')
KINDS: Mapping[str, Kind] = {
    'naflex': NAFLEX, 'vit': VIT, 'eva': EVA, 'beit': BEIT, 'relpos': RELPOS}
ALL: _Arguments = {**{name: of for kind in KINDS.values()
                      for name, of in kind.arguments.items()},
                   **_BLOCK}  # With all kinds of pooling.


def setting(
    argument: str | tuple[str, Mapping[Any, Any]],
) -> tuple[str, Mapping[Any, Any] | None]:
  """Returns our setting for an argument, and timm's values for ours or None."""
  return (argument, None) if isinstance(argument, str) else argument


def _value(config: vit_config.BackboneConfig, name: str) -> Any:
  return config.has_cls if name == 'cls' else getattr(config, name)


def kind_of(model: weights_lib.Weights) -> Kind:
  """Returns the class that builds a ViT."""
  config = model.config
  assert isinstance(config, vit_config.BackboneConfig)
  if config.position == 'factorized':
    return NAFLEX
  if config.has_offset_bias:
    return BEIT if is_beit(config) else RELPOS
  return EVA if is_eva(config) else VIT


def is_eva(config: vit_config.BackboneConfig) -> bool:
  """Whether timm builds a model with its class Eva."""
  return config.rotary is not None or not config.key_bias


def is_beit(config: vit_config.BackboneConfig) -> bool:
  """Whether timm builds a model with its class Beit."""
  return not config.key_bias and config.position == 'relative_2d'


def is_sapiens2(config: vit_config.BackboneConfig) -> bool:
  """Whether the norms of a model of timm's class Eva are those of Sapiens2."""
  return is_eva(config) and config.norm == 'rms'


def has_separate_qkv(config: vit_config.BackboneConfig) -> bool:
  """Whether queries, keys and values are separate arrays.

  In timm, EVA-02 B and L and Sapiens2 have three arrays.
  """
  return is_sapiens2(config) or (
      is_eva(config) and config.inner_norm != 'none' and not (
          is_beit(config) or (config.qkv_bias and config.key_bias)))


def has_separate_gate(config: vit_config.BackboneConfig) -> bool:
  """Whether the gate of SwiGLU has its own array.

  In timm, DINOv3, AIMv2 and EVA-02 B and L have one; DINOv2, Sapiens2 and
  EVA-02 Ti and S do not.
  """
  return config.mlp == 'swiglu' and not is_sapiens2(config) and (
      config.inner_norm != 'none' or config.stem_norm == 'patches'
      or (config.rotary is not None
          and config.rotary.coordinates == 'normalized'))


def written(
    table: layout.Table, config: vit_config.BackboneConfig) -> layout.Table:
  """Returns the table of a family with the rows that a model has in timm."""
  return without(
      table, '.mlp_bias' if config.qkv_bias else '.in_proj.bias',
      *(('_out_proj.',) if config.differential else ('.out_proj.',)),
      *(('.ls1.', '.ls2.') if is_eva(config) else ('.gamma_',)),
      *(('rel_pos.',) if is_beit(config) else
        ('attn.relative_position_bias_table', 'rel_pos_bias.')),
      *(('attn.qkv.', 'v}_bias') if has_separate_qkv(config)
        else ('v}_proj.',)),
      *(('.fc1.',) if has_separate_gate(config) else ('.fc1_x.', '.fc1_g.')))


def without(table: layout.Table, *parts: str) -> layout.Table:
  """Returns a table that does not write names with one of these parts."""
  return dataclasses.replace(table, rows=tuple(
      dataclasses.replace(row, read_only=row.read_only or any(
          part in row.theirs for part in parts)) for row in table.rows))


def arguments(model: weights_lib.Weights, kind: Kind) -> dict[str, Any]:
  """Returns the arguments of a ViT.

  Raises:
    UserError: if the class lacks a grid or an interpolation of positions.
  """
  config, size = model.config, model.preprocess.resolution
  assert isinstance(config, vit_config.BackboneConfig)
  if kind is not NAFLEX and model.resolution != size and any(
      name.split('/')[-1] in config.position_params
      for name in tree.flatten(model.shapes)):
    raise UserError(
        f'timm would refuse images of {size[0]} x {size[1]}, because the '
        f'position embeddings are for {model.resolution[0]} x '
        f'{model.resolution[1]}. Load the model with resolution='
        f'{schema.to_plain(model.resolution)}, or save it as orbax.')
  result: dict[str, Any] = {
      'img_size': list(size),
      'mlp_ratio': mlp_ratio(config.mlp_dim, config.width)}
  for name, (ours, values) in (
      (name, setting(of)) for name, of in kind.arguments.items()):
    value = _value(config, ours)
    result[name] = value if values is None else values.get(value)
  if kind in (BEIT, RELPOS):
    result['init_values'] = config.layer_scale or 0.0
  else:
    result['no_embed_class'] = not embeds_prefix(config)
    result |= (_eva_arguments if kind is EVA else _vit_arguments)(config)
  if 'attn_pool_num_heads' in kind.arguments:
    result |= _pool_arguments(config)
  if kind is NAFLEX:
    for name in ('img_size', 'no_embed_class'):
      del result[name]
    result |= timm_naflex.arguments(
        config.grid(model.resolution), model.positions)
  # timm has its own defaults for those that are null.
  return {name: value for name, value in result.items() if value is not None}


def _vit_arguments(config: vit_config.BackboneConfig) -> dict[str, Any]:
  """Returns arguments of timm's classes VisionTransformer and NaFlexVit."""
  packed = config.mlp == 'swiglu' and not has_separate_gate(config)
  explicit = config.layer_norm_epsilon != 1e-5 and (
      config.norm == 'rms' or config.parallel)
  return {
      # 0 removes the factors of an architecture, except in parallel layers.
      'init_values': config.layer_scale or (None if config.parallel else 0.0),
      'mlp_ratio': mlp_ratio((1 + packed) * config.mlp_dim, config.width),
      'final_norm': config.final_norm or config.pool_norm,
      'act_layer': GELU[config.gelu] if config.mlp == 'gelu' else None,
      'norm_layer': f'{config.norm}norm' if explicit else None}


def _eva_arguments(config: vit_config.BackboneConfig) -> dict[str, Any]:
  """Returns arguments of timm's class Eva."""
  result: dict[str, Any] = {
      'dynamic_img_size': False, 'qkv_fused': not has_separate_qkv(config),
      'swiglu_align_to': int(has_separate_gate(config)),
      'num_kv_heads': config.num_heads if is_sapiens2(config) else None,
      'attn_only_layer_scale': None if config.layer_scale_mlp else True,
      'use_rot_pos_emb': config.rotary is not None}
  if rotary := config.rotary:
    result |= {
        'rope_type': ('mixed' if rotary.learned else 'dinov3'
                      if rotary.coordinates == 'normalized' else 'cat'),
        'rope_temperature': rotary.base, 'rope_rotate_half': rotary.halves,
        'rope_grid_indexing': 'xy' if rotary.x_first else 'ij',
        'rope_grid_offset': rotary.offset,
        'ref_feat_shape': [rotary.reference] * 2 if rotary.reference else None}
  return result


def parse_rotary(
    arguments: Mapping[str, Any], implied: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
  """Returns the section `rotary` of a model of timm's class Eva.

  `implied` is that of its architecture, which arguments override.
  """
  if not arguments.get('use_rot_pos_emb', implied is not None):
    return None
  result = dict(implied or {})
  for theirs, ours in (('rope_temperature', 'base'),
                       ('rope_rotate_half', 'halves'),
                       ('rope_grid_offset', 'offset')):
    if theirs in arguments:
      result[ours] = arguments[theirs]
  if 'rope_grid_indexing' in arguments:
    result['x_first'] = arguments['rope_grid_indexing'] == 'xy'
  if 'ref_feat_shape' in arguments:
    result['reference'] = arguments['ref_feat_shape'][0]
  if kind := arguments.get('rope_type'):
    schema.check_name(kind, ('cat', 'dinov3', 'mixed'), what='rope_type')
    result |= {'learned': kind == 'mixed', 'coordinates': (
        'normalized' if kind == 'dinov3' else 'index')}
  return result


def _pool_arguments(config: vit_config.BackboneConfig) -> dict[str, Any]:
  """Returns arguments of attention pooling."""
  return {'attn_pool_num_heads': None} if config.pooling != 'attention' else {
      'attn_pool_num_heads': config.pool_heads or config.num_heads,
      'attn_pool_mlp_ratio': mlp_ratio(
          config.pool_mlp_dim or config.mlp_dim, config.width)}


def mlp_ratio(hidden: int, width: int) -> float:
  """Returns the ratio whose product with the width timm rounds to `hidden`."""
  ratio = hidden / width
  # timm rounds the product down.
  return ratio if int(width * ratio) == hidden else math.nextafter(
      ratio, math.inf)


def embeds_prefix(config: vit_config.BackboneConfig) -> bool:
  """Whether timm's class token and registers have position embeddings."""
  return (config.position_cls and config.has_cls
          and config.position == 'learned')
