"""config.json of timm: an architecture name, and arguments that override it.

Format: timm.models.save_for_hf, https://huggingface.co/docs/timm/hf_hub. The
arrays determine every dimension except the number of heads; declared dimensions
are compared with them.
"""

from collections.abc import Container, Mapping
import dataclasses
import re
from typing import Any, Literal

from vit_jax.weights.configs import declared
from vit_jax.weights.configs import preprocessing

_GELU = {'gelu': 'exact', 'gelu_tanh': 'tanh'}
_POOLING = {'token': 'cls', 'avg': 'average', 'map': 'attention'}
_MODEL_KEYS = {
    'embed_dim': 'width', 'depth': 'depth', 'patch_size': 'patch',
    'num_heads': 'num_heads', 'qkv_bias': 'qkv_bias', 'reg_tokens': 'registers'}
# Arguments that are read, or that the arrays determine.
_KNOWN = {
    'vit': (*_MODEL_KEYS, 'class_token', 'img_size', 'mlp_ratio',
            'global_pool', 'fc_norm', 'final_norm', 'pos_embed', 'act_layer',
            'no_embed_class', 'init_values', 'num_classes'),
    'resnet': ('layers', 'stem_chs', 'channels', 'global_pool', 'num_classes')}
# Arguments of training and of the input, which are ignored.
_IRRELEVANT = (
    'drop_rate', 'pos_drop_rate', 'patch_drop_rate', 'proj_drop_rate',
    'attn_drop_rate', 'drop_path_rate', 'weight_init', 'fix_init',
    'zero_init_last', 'dynamic_img_size', 'dynamic_img_pad')
# Arguments with the only value that our models support.
_REQUIRED: Mapping[str, Any] = {
    'in_chans': 3, 'qk_norm': False, 'scale_attn_norm': False,
    'scale_mlp_norm': False, 'proj_bias': True, 'pre_norm': False,
    'pool_include_prefix': False, 'norm_layer': 'layernorm'}


def recognises(config: Mapping[str, Any]) -> bool:
  """Whether a config.json is written by timm."""
  return 'architecture' in config or 'pretrained_cfg' in config


def parse(
    config: Mapping[str, Any], overrides: Container[str] = (),
) -> declared.Declared:
  """Returns the settings that a config.json declares.

  Raises:
    ValueError: if a setting that is not in `overrides` is malformed, or our
      models lack it.
  """
  inner = config.get('pretrained_cfg') or {}
  name = str(config.get('architecture') or inner.get('architecture', ''))
  name = name.split('.')[0]  # Drops the tag of the weights.
  resnet = re.fullmatch(r'resnetv2_\d+x\d+_bit.*', name) is not None
  if name and not resnet and not re.match(
      r'vit_|test_vit\d*(_.*)?$|deit3?_|flexivit_', name):
    raise ValueError(f'architecture is {name!r}, expected a ViT, DeiT or BiT.')
  families = ('timm_bit',) if resnet else (
      ('timm',) if name else ('timm', 'timm_bit'))
  result = declared.Declared(families=families)
  # timm itself ignores arguments that are null.
  arguments = {k: v for k, v in (config.get('model_args') or {}).items()
               if v is not None}
  _check_arguments(arguments, 'resnet' if resnet else 'vit')
  if config.get('num_classes') is not None:
    result.model['num_classes'] = config['num_classes']
  result.preprocess = parse_preprocessing(config, overrides)
  pool = arguments.get('global_pool', config.get('global_pool'))
  if not resnet:
    if 'num_features' in config:
      result.model['width'] = config['num_features']
    _parse_vit(name, pool, arguments, result, overrides)
  elif pool not in (None, 'avg'):
    raise ValueError(f'global_pool is {pool!r}, expected avg.')
  return result


def _check_arguments(arguments: Mapping[str, Any], kind: str) -> None:
  for key, value in arguments.items():
    if key in _KNOWN[kind] or key in _IRRELEVANT or (
        key in _REQUIRED and value == _REQUIRED[key]):
      continue
    supported = (f'only {key}={_REQUIRED[key]!r} is supported'
                 if key in _REQUIRED else 'the argument is unknown')
    raise ValueError(f'model_args has {key}={value!r}: {supported}.')


def _parse_vit(
    name: str, pool: Any, arguments: Mapping[str, Any],
    result: declared.Declared, overrides: Container[str],
) -> None:
  model = result.model
  model.update((ours, arguments[theirs])
               for theirs, ours in _MODEL_KEYS.items() if theirs in arguments)
  if 'mlp_ratio' in arguments and 'width' in model:
    model['mlp_dim'] = int(arguments['mlp_ratio'] * model['width'])
  if 'img_size' in arguments:
    result.resolution = declared.sides(arguments['img_size'])
  if pool is not None and 'pooling' not in overrides:
    if not isinstance(pool, str) or pool not in _POOLING:
      raise ValueError(
          f'global_pool is {pool!r}, expected one of {", ".join(_POOLING)}. '
          'Override it: pooling=...')
    model['pooling'] = _POOLING[pool]
  if 'final_norm' in arguments:
    final = arguments['final_norm']
    after_pooling = arguments.get('fc_norm', pool == 'avg')
    model['pool_norm'] = bool(final and after_pooling)
    model['final_norm'] = bool(final and not after_pooling)
  if arguments.get('pos_embed') in ('none', ''):
    model['position'] = 'none'
  _parse_blocks(name, arguments, result, overrides)


def _parse_blocks(
    name: str, arguments: Mapping[str, Any], result: declared.Declared,
    overrides: Container[str],
) -> None:
  """Reads settings of the blocks that no array determines."""
  implied = find_architecture(name)
  if implied:
    result.model = {'gelu': implied.gelu, 'num_heads': implied.num_heads,
                    **result.model}
    result.embeds_prefix = implied.embeds_prefix
  if 'no_embed_class' in arguments:
    result.embeds_prefix = not arguments['no_embed_class']
  act = arguments.get('act_layer')
  if act is not None:
    if 'gelu' not in overrides and act not in _GELU:
      raise ValueError(
          f'act_layer is {act!r}, expected {" or ".join(_GELU)}. To load the '
          "weights anyway: gelu='exact' or gelu='tanh'.")
    result.model['gelu'] = _GELU.get(act)
  for key, advice in (('num_heads', 'N'), ('gelu', "'exact' or 'tanh'")):
    if name and key not in result.model and key not in overrides:
      raise ValueError(
          f'The architecture {name!r} is unknown, and so is {key}. If its '
          f'blocks are those of a plain ViT: {key}={advice}.')


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Settings that an architecture's name implies and that no array determines.

  The name is that of a function in timm, whose own arguments are in no file.
  `embeds_prefix` is whether class token and registers have position embeddings.
  """
  num_heads: int
  gelu: Literal['exact', 'tanh'] = 'exact'
  embeds_prefix: bool = True


_HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'little': 5, 'small': 6, 'medium': 8, 'mediumd': 8,
    'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14, 'large': 16,
    'huge': 16, 'so400m': 16, 'giant': 16, 'giantopt': 16, 'gigantic': 16}
_SIZE = f'(?P<size>{"|".join(_HEADS)})'
# The arrays show all effects of these words on a block. They do not for other
# words, such as clip, plus, rpn and xp.
_WORDS = r'(_(\d+|dinov2|tipsv2|miil|36x1|gap|map|siglip|reg\d))*'
_PLAIN = (
    rf'(vit|deit3?)_{_SIZE}_patch\d+{_WORDS}',
    rf'vit_{_SIZE}_r\d*_s\d+(_p8)?(_\d+)?', rf'flexivit_{_SIZE}')
_NAMED: Mapping[str, Architecture] = {
    'vit_base_patch16_gap_224': Architecture(16),
    'test_vit': Architecture(2), 'test_vit2': Architecture(2)}
# SigLIP 2 and later models; the first SigLIP uses the exact GELU.
_TANH = (r'vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*'
         r'|vit_large_patch16_siglip_(gap_)?512')
_PREFIX_NOT_EMBEDDED = r'vit_(?!so150m).*_reg\d.*|deit3_.*|flexivit_.*'


def find_architecture(name: str) -> Architecture | None:
  """Returns the settings that an architecture implies; None if unknown."""
  if name in _NAMED:
    return _NAMED[name]
  for pattern in _PLAIN:
    if match := re.fullmatch(pattern, name):
      return Architecture(
          num_heads=_HEADS[match['size']],
          gelu='tanh' if re.fullmatch(_TANH, name) else 'exact',
          embeds_prefix=not re.fullmatch(_PREFIX_NOT_EMBEDDED, name))
  return None


# -------------------------------------------------------------- preprocessing


def parse_preprocessing(
    config: Mapping[str, Any], overrides: Container[str] = (),
) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that a config.json declares.

  Raises:
    ValueError: if `Preprocess` cannot represent a setting that is not in
      `overrides`.
  """
  inner = config.get('pretrained_cfg') or {}
  result: dict[str, Any] = {}
  if str(config.get('architecture', '')).startswith('deit'):
    result |= {'mean': preprocessing.IMAGENET_MEAN,
               'std': preprocessing.IMAGENET_STD}
  if 'input_size' in inner:
    channels, *size = inner['input_size']
    if channels != 3 or len(size) != 2:
      raise ValueError('input_size must be [3, height, width], but is '
                       f'{inner["input_size"]!r}.')
    result['resolution'] = tuple(size)
  for name in ('mean', 'std'):
    if name in inner and name not in overrides:
      result[name] = tuple(inner[name])
  if inner.get('crop_pct'):
    result['crop'] = float(inner['crop_pct'])
    mode = inner.get('crop_mode') or 'center'
    if mode not in ('center', 'squash') and 'keep_aspect' not in overrides:
      raise ValueError(
          f'crop_mode is {mode!r}, expected center or squash. Override it: '
          'keep_aspect=True or False.')
    result['keep_aspect'] = mode == 'center'
  if inner.get('interpolation') and 'interpolation' not in overrides:
    result['interpolation'] = inner['interpolation']
  labels = config.get('label_names') or inner.get('label_names')
  if labels:
    result['labels'] = tuple(map(str, labels))
  return result
