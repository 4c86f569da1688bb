"""timm's config.json: an architecture by its name, and what is otherwise."""

from collections.abc import Container, Mapping
import re
from typing import Any

from vit_jax.models import variants
from vit_jax.weights import claims
from vit_jax.weights import overrides
from vit_jax.weights.configs import preprocessing as preprocessing_lib
from vit_jax.weights.configs import timm_architectures

_GELU = {'gelu': 'exact', 'gelu_tanh': 'tanh'}
_POOLS = {'token': 'cls', 'avg': 'average', 'map': 'attention'}
_SIZES = {'tiny': 'Ti', 'small': 'S', 'base': 'B', 'large': 'L',
          'huge': 'H', 'giant': 'g', 'gigantic': 'G'}

# Arguments that are read, or that the arrays tell.
_READ = {
    'vit': ('embed_dim', 'depth', 'patch_size', 'num_heads', 'qkv_bias',
            'reg_tokens', 'class_token', 'img_size', 'mlp_ratio',
            'global_pool', 'fc_norm', 'final_norm', 'pos_embed', 'act_layer',
            'no_embed_class', 'init_values', 'num_classes'),
    'resnet': ('layers', 'stem_chs', 'channels', 'global_pool', 'num_classes')}
# Arguments of training, and of which images come in.
_HARMLESS = (
    'drop_rate', 'pos_drop_rate', 'patch_drop_rate', 'proj_drop_rate',
    'attn_drop_rate', 'drop_path_rate', 'weight_init', 'fix_init',
    'zero_init_last', 'dynamic_img_size', 'dynamic_img_pad')
# Arguments that may say what our models do, and nothing else.
_DEFAULTS: Mapping[str, Any] = {
    'in_chans': 3, 'qk_norm': False, 'scale_attn_norm': False,
    'scale_mlp_norm': False, 'proj_bias': True, 'pre_norm': False,
    'pool_include_prefix': False, 'norm_layer': 'layernorm'}
_ELSEWHERE = ('If config.json is of another model, take the weights out of its '
              'folder.')


def parse(config: Mapping[str, Any], given: Container[str]) -> claims.Config:
  """Returns what timm's config.json says.

  Args:
    config: of which a model is to be built.
    given: overrides, by their names: they are not asked for.

  Raises:
    ValueError: if a value is not what it must be.
  """
  inner = config.get('pretrained_cfg') or {}
  name = str(config.get('architecture') or inner.get('architecture', ''))
  name = name.split('.')[0]
  arguments = {k: v for k, v in (config.get('model_args') or {}).items()
               if v is not None}  # As timm takes them.
  resnet = name.startswith('resnetv2_')
  is_vit = not name or re.match(
      r'vit_|test_vit\d*(_.*)?$|deit3?_|flexivit_', name)
  if not (resnet or is_vit):
    return claims.Config((), f'architecture {name!r}')
  families = ('timm_bit',) if resnet else (
      ('timm',) if name else ('timm', 'timm_bit'))
  result = claims.Config(families, f'architecture {name!r}')
  _refuse_arguments(arguments, result, 'resnet' if resnet else 'vit')
  variant = _variant(name)
  if variant:
    for ours, value in overrides.of_variant(variant).items():
      result.claims[ours] = value
      result.spelled[ours] = f'{ours} of {name}'
  result.preprocess |= preprocessing_lib.from_timm(config, skip=given)
  for ours, theirs in (('num_classes', 'num_classes'),
                       ('features', 'num_features')):
    if config.get(theirs) is not None:
      result.claim(ours, theirs, config[theirs])
  pool = _pool(config, arguments, result)
  if resnet:
    _read_stages(name, pool, arguments, result)
  else:
    _read_vit(name, pool, arguments, result)
  return result


def _refuse_arguments(
    arguments: Mapping[str, Any], result: claims.Config, kind: str,
) -> None:
  for key, value in arguments.items():
    if key in _READ[kind] or key in _HARMLESS or (
        key in _DEFAULTS and value == _DEFAULTS[key]):
      continue
    ours = (f'; ours are all of {key}={_DEFAULTS[key]!r}'
            if key in _DEFAULTS else ', an argument that is not understood')
    result.refuse(f'model_args has {key}={value!r}{ours}. {_ELSEWHERE}')


def _pool(
    config: Mapping[str, Any], arguments: Mapping[str, Any],
    result: claims.Config,
) -> Any:
  said = [where['global_pool'] for where in (arguments, config)
          if where.get('global_pool') is not None]
  if len(said) == 2 and said[0] != said[1]:
    result.refuse(
        f'it says global_pool {said[1]!r}, and in model_args {said[0]!r}: '
        'which is it? Say it: pooling=...', unless='pooling')
  return said[0] if said else None


def _read_vit(
    name: str, pool: Any, arguments: Mapping[str, Any], result: claims.Config,
) -> None:
  for theirs, ours in (
      ('embed_dim', 'width'), ('depth', 'depth'), ('patch_size', 'patch'),
      ('num_heads', 'num_heads'), ('qkv_bias', 'qkv_bias'),
      ('reg_tokens', 'registers'), ('class_token', 'cls'),
      ('img_size', 'resolution')):
    if theirs in arguments:
      result.claim(ours, theirs, arguments[theirs])
  if 'embed_dim' in arguments:
    result.claims.pop('mlp_dim', None)  # Of the architecture's own width.
  if 'mlp_ratio' in arguments and 'width' in result.claims:
    result.claim('mlp_dim', 'mlp_ratio',
                 int(arguments['mlp_ratio'] * result.claims['width']))
  _read_tokens(pool, arguments, result)
  _read_blocks(name, arguments, result)
  for setting in ('num_heads', 'depth'):
    if setting in result.claims:
      result.settings[setting] = result.claims[setting]
  if 'resolution' in result.claims:
    result.preprocess['resolution'] = result.claims['resolution']


def _read_blocks(
    name: str, arguments: Mapping[str, Any], result: claims.Config,
) -> None:
  """Reads what a block computes, which no array tells."""
  implied = timm_architectures.find(name)
  if implied:
    result.settings |= {'num_heads': implied.num_heads, 'gelu': implied.gelu}
    result.embedded = implied.embedded
  if 'no_embed_class' in arguments:
    result.embedded = not arguments['no_embed_class']
  if other := timm_architectures.otherwise(name):
    result.refuse(f'{result.what} computes what our models do not: {other}. '
                  f'{_ELSEWHERE}')
  known = not name or implied is not None
  if 'num_heads' not in arguments and not known:
    result.refuse(
        f'{result.what} is none whose number of heads is known here. If its '
        'blocks are those of a plain ViT, say it: num_heads=N.',
        unless='num_heads')
  act = arguments.get('act_layer')
  if isinstance(act, str) and act in _GELU:
    result.settings['gelu'] = _GELU[act]
  elif act is not None:
    result.refuse(
        f'act_layer is {act!r}, but our models have {" or ".join(_GELU)}. If '
        "it is one of them, say which: gelu='exact' or gelu='tanh'.",
        unless='gelu')
  elif not known:
    result.refuse(
        f'{result.what} is none whose activation is known here. If its blocks '
        "are those of a plain ViT, say it: gelu='exact' or gelu='tanh'.",
        unless='gelu')


def _read_tokens(
    pool: Any, arguments: Mapping[str, Any], result: claims.Config,
) -> None:
  """Reads how timm's ViT comes from tokens to a representation."""
  if isinstance(pool, str) and pool in _POOLS:
    result.claim('pooling', 'global_pool', _POOLS[pool])
    result.settings['pooling'] = _POOLS[pool]
  elif pool is not None:
    result.refuse(
        f'global_pool is {pool!r}, but our models pool by '
        f'{", ".join(_POOLS)}. If it is one of them, say which: '
        f'pooling={" or ".join(map(repr, _POOLS.values()))}.',
        unless='pooling')
  norm_after = arguments.get('fc_norm', pool == 'avg')
  if 'final_norm' in arguments:
    final = arguments['final_norm']
    result.claim('pool_norm', 'fc_norm', final and norm_after)
    result.claim('final_norm', 'final_norm', final and not norm_after)
    result.settings['final_norm'] = result.claims['final_norm']
  if arguments.get('pos_embed') in ('none', ''):
    result.claim('position', 'pos_embed', 'none')
    result.settings['position'] = 'none'


def _read_stages(
    name: str, pool: Any, arguments: Mapping[str, Any], result: claims.Config,
) -> None:
  """Reads what timm's BiT has otherwise than the architecture of its name."""
  if not re.fullmatch(r'resnetv2_\d+x\d+_bit.*', name):
    result.refuse(f'{result.what} is no BiT: what its units compute is not '
                  f'known here. {_ELSEWHERE}')
  if pool not in (None, 'avg'):
    result.refuse(f'global_pool is {pool!r}, but our ResNets pool by avg. '
                  f'{_ELSEWHERE}')
  backbone = result.claims.get('backbone')
  if backbone and 'stem_chs' in arguments:
    # The name's factor multiplies the argument as well.
    factor = backbone['width'] // 64
    backbone['width'] = factor * claims.typed(
        'width', arguments['stem_chs'], 'stem_chs')
    result.claims.pop('features', None)
  if backbone and 'layers' in arguments:
    backbone['depths'] = tuple(arguments['layers'])


def _variant(name: str) -> str:
  """Returns our name of one of timm's architectures; '' if we have none."""
  sizes = '|'.join(_SIZES)
  for pattern, text in (
      (rf'(?:vit|deit3?)_({sizes})_patch(\d+)(?:_\d+)?', '{}/{}'),
      (rf'vit_({sizes})_r(\d*)_s(\d+)(?:_p8)?(?:_\d+)?', 'R{1}+{0}/{2}')):
    match = re.fullmatch(pattern, name)
    if match:
      variant = text.format(_SIZES[match[1]], *match.groups()[1:])
      hybrid = '+' in variant
      return variant if not hybrid or variant in variants.HYBRIDS else ''
  match = re.fullmatch(r'resnetv2_(\d+)x(\d+)_bit', name)
  variant = f'R{match[1]}x{match[2]}' if match else ''
  return variant if variant in variants.RESNETS else ''
