"""config.json of timm: an architecture name, and arguments that override it.

Format: timm.models.save_for_hf, https://huggingface.co/docs/timm/hf_hub. The
arrays determine every dimension except the number of heads; declared dimensions
are compared with them.
"""

from collections.abc import Mapping
import re
from typing import Any

from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import declared
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo import timm_names
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.configs import timm_naflex
from vit_jax.extras.zoo.families import families as lineages

# Arguments that set what the arrays do not show.
_READ = (
    'embed_dim', 'depth', 'patch_size', 'num_heads', 'reg_tokens',
    'num_reg_tokens', 'pool_include_prefix', 'attn_pool_num_heads',
    'use_post_norm', 'use_abs_pos_emb', 'act_layer', 'attn_only_layer_scale')
_KNOWN = (
    *timm_arguments.ALL,
    # Arguments that are read otherwise, or that the arrays determine.
    *timm_naflex.INTERPOLATION, 'img_size', 'num_classes', 'no_embed_class',
    'norm_layer', 'mlp_layer', 'mlp_ratio', 'final_norm', 'layers', 'stem_chs',
    'channels', 'qkv_fused', 'swiglu_align_to', 'attn_pool_mlp_ratio',
    'num_kv_heads', 'pos_embed_grid_size')
# Arguments of training and of the input.
_UNUSED = re.compile(
    r'((pos|patch|proj|attn)_)?drop_rate|drop_path_rate|weight_init|fix_init'
    r'|zero_init_last|head_init_scale|rope_(shift|jitter|rescale)_coords'
    r'|dynamic_img_(size|pad)')
# What timm uses where a config.json lacks a setting.
_DEFAULTS: Mapping[str, Any] = {
    'mean': preprocessing.IMAGENET_MEAN, 'std': preprocessing.IMAGENET_STD,
    'crop': 0.875, 'keep_aspect': True, 'interpolation': 'bicubic'}


def recognises(config: Mapping[str, Any]) -> bool:
  """Whether a config.json is written by timm."""
  return 'architecture' in config or 'pretrained_cfg' in config


def parse(config: Mapping[str, Any]) -> declared.Declared:
  """Returns the settings that a config.json declares.

  Raises:
    UserError: if a setting is malformed, or our models lack it.
  """
  # Older files have the settings of `pretrained_cfg` at the top level.
  inner = config.get('pretrained_cfg') or config
  name = str(config.get('architecture') or inner.get('architecture', ''))
  name = _current_name(name.split('.')[0])  # Drops the tag of the weights.
  removed.check_name(name)
  resnet = re.fullmatch(r'resnetv2_\d+x\d+_bit.*', name) is not None
  if missing := timm_names.missing_component(name):
    raise UserError(f'architecture is {name!r}, which has {missing}: our '
                    'models lack that component.')
  naflex = name.startswith('naflexvit_')
  families = (
      ('timm_bit',) if resnet else ('naflex',) if naflex else
      ('timm', 'timm_parallel', 'timm_paired', 'sapiens2') if name else
      ('timm', 'timm_bit'))
  result = declared.Declared(families=families)
  # timm itself ignores arguments that are null.
  arguments = {k: v for k, v in (config.get('model_args') or {}).items()
               if v is not None}
  for key, value in arguments.items():
    known = (*_KNOWN, *(() if naflex else timm_arguments.ROTARY))
    if key not in known and not _UNUSED.fullmatch(key) and (
        (key, value) != ('in_chans', 3)):
      raise UserError(f'model_args has {key}={value!r}, which is not '
                      'supported.')
  if config.get('num_classes') is not None:
    result.model['num_classes'] = config['num_classes']
  result.preprocess = parse_preprocessing(inner)
  result.add_defaults(_DEFAULTS, 'assumed, as timm does for this file')
  labels = config.get('label_names') or inner.get('label_names') or (
      inner.get('labels'))
  if labels:
    result.preprocess['labels'] = declared.class_names(labels)
  if activation := huggingface.activation(config):
    result.preprocess['activation'] = activation
  pool = arguments.get('global_pool', config.get('global_pool'))
  if naflex:
    arguments.pop('img_size', None)  # The grid of positions is another.
  if not resnet:
    if 'num_features' in config:
      result.model['width'] = config['num_features']
    _parse_vit(name, pool, arguments, result)
  elif pool not in (None, 'avg'):
    raise UserError(f'global_pool is {pool!r}, expected avg.')
  return result


def _current_name(name: str) -> str:
  """Returns the name since timm 0.8, which moved the weights to a tag."""
  name = re.sub(r'_(in21k|in22k|in21ft1k|miil_in21k|sam|dino)$',
                lambda found: '_miil' * ('miil' in found[0]), name)
  return re.sub(r'_(\d+)_clip_laion2b$', r'_clip_\1', name).replace(
      '_resnet50_', '_r50_s16_')


def _parse_vit(
    name: str, pool: Any, arguments: Mapping[str, Any],
    result: declared.Declared,
) -> None:
  """Reads what the architecture implies, and the arguments that override it."""
  model = result.model
  implied = timm_names.find_architecture(name)
  if implied:
    result.embeds_prefix = implied.pop('position_cls')
    model |= implied
    if arguments.get('num_heads') is None:
      result.origins['num_heads'] = f'inferred from the architecture {name}'
  # `_create_vision_transformer` in timm 1.0.31.
  result.positions = next((
      method for lineage in lineages.LINEAGES
      for pattern, method in lineage.positions.items()
      if re.fullmatch(pattern, name)), None)
  if name.startswith('naflexvit_'):
    result.positions = timm_naflex.positions(name, arguments)
  read = {key: arguments[key] for key in _READ if key in arguments}
  if pool is not None:
    read['global_pool'] = pool
  for key, value in read.items():
    ours, values = timm_arguments.setting(timm_arguments.ALL[key])
    if values is not None:
      theirs = {found: one for one, found in values.items()}
      schema.check_name(str(value), [*map(str, theirs)], what=key)
      value = theirs[value]
    model[ours] = value
  if 'img_size' in arguments:
    result.resolution = declared.sides(arguments['img_size'])
  if implied and 'rotary' in implied:
    model['rotary'] = timm_arguments.parse_rotary(arguments, implied['rotary'])
    # Attention pooling of the class Eva has all tokens as input.
    model['pool_prefix'] = model['pooling'] == 'attention'
  schema.check_name(arguments.get('norm_layer', 'layernorm'),
                    ['layernorm', 'rmsnorm'], what='norm_layer')
  if arguments.get('final_norm') is False:
    model['final_norm'] = False
  if arguments.get('pos_embed', 'learn') != 'learn':
    model['position'] = arguments['pos_embed'] or 'none'
  if 'no_embed_class' in arguments:
    result.embeds_prefix = not arguments['no_embed_class']
  missing = [key for key in ('num_heads', 'gelu') if key not in model]
  if name and missing:
    raise UserError(
        f'architecture is {name!r}, which is unknown, and so are '
        f'{" and ".join(missing)}. docs/models.md lists the families.')


# -------------------------------------------------------------- preprocessing


def parse_preprocessing(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the keys of `Preprocess` that a `pretrained_cfg` declares.

  Raises:
    UserError: if `Preprocess` cannot represent a setting.
  """
  result: dict[str, Any] = {}
  if config.get('input_size') is not None:
    channels, *size = config['input_size']
    if channels != 3 or len(size) != 2:
      raise UserError('input_size must be [3, height, width], but is '
                      f'{config["input_size"]!r}.')
    result['resolution'] = tuple(size)
  for name in ('mean', 'std'):
    if config.get(name) is not None:
      result[name] = tuple(config[name])
  if config.get('crop_pct'):
    result['crop'] = float(config['crop_pct'])
  if mode := config.get('crop_mode'):
    schema.check_name(mode, ['center', 'squash'], what='crop_mode')
    result['keep_aspect'] = mode == 'center'
  if config.get('interpolation'):
    result['interpolation'] = config['interpolation']
  return result
