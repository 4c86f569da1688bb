"""config.json that timm builds an exported model from."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax import models
from vit_jax.data.images import resize as resize_lib
from vit_jax.models import architecture
from vit_jax.models import vit_config
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.configs import preprocessing
from vit_jax.weights.configs import timm_arguments
from vit_jax.weights.configs import timm_naflex
from vit_jax.weights.families import published_sizes

# The convolutional network is set by the architecture's name alone.
_HYBRIDS: Mapping[tuple[int, ...], str] = {
    (): 'vit_tiny_r_s16_p8_224', (2, 2, 2, 2): 'vit_small_r26_s32_224',
    (3, 4, 9): 'vit_base_r50_s16_224', (3, 4, 6, 3): 'vit_large_r50_s32_224'}
_BITS = ('R50x1', 'R50x3', 'R101x1', 'R101x3', 'R152x2', 'R152x4')
# Epsilons of the norms in timm's architectures, which no argument sets.
EPSILONS = (1e-6, 1e-5)
# Settings of models with relative biases that arguments set.
_RELATIVE = (
    *vit_config.DIMENSIONS, 'position', 'position_at', 'position_mlp_dim',
    'cls', 'qkv_bias', 'key_bias', 'qk_norm', 'post_norm', 'layer_scale',
    'gelu', 'pooling', 'pool_norm', 'final_norm')


def config_files(model: weights_lib.Weights) -> dict[str, dict[str, Any]]:
  """Returns the JSON files of an exported model, by file name.

  Raises:
    ValueError: if timm has no architecture for the model.
  """
  config, preprocess = model.config, model.preprocess
  result: dict[str, Any] = {
      'num_classes': config.num_classes,
      'pretrained_cfg': {
          'num_classes': config.num_classes,
          'input_size': [3, *preprocess.resolution],
          'mean': list(preprocess.mean), 'std': list(preprocess.std),
          **_resize_and_crop(preprocess)}}
  if preprocess.labels:
    result['label_names'] = list(preprocess.labels)
  if isinstance(config, vit_config.ViTConfig):
    naflex = timm_arguments.is_naflex(model)
    if naflex and not timm_naflex.supports(config):
      raise _no_architecture(config, *architecture.non_default(config))
    result |= {
        # The arguments override the settings of this architecture.
        'architecture': (
            timm_naflex.ARCHITECTURE if naflex else _architecture(config)),
        'global_pool': timm_arguments.GLOBAL_POOL[config.pooling],
        'num_features': config.width,
        'model_args': timm_arguments.arguments(model)}
  else:
    name = next((name for name in _BITS
                 if published_sizes.has_dimensions(config, name)), None)
    if name is None:
      raise _no_architecture(config, 'backbone')
    result['architecture'] = f'resnetv2_{name[1:]}_bit'
  return {'config.json': result}


def _resize_and_crop(preprocess: preprocessing.Preprocess) -> dict[str, Any]:
  """Returns the resize and crop in pretrained_cfg.

  Raises:
    ValueError: if timm cannot express the operations.
  """
  match preprocess.ops:
    case [resize_lib.ResizeToPatches() as op] if (
        op == op.at(preprocess.resolution)):
      return {'crop_pct': 1.0, 'crop_mode': 'center',
              'interpolation': op.method}
  resize, _ = preprocess.check_resize_and_crop(
      'timm', remedy='Save the model as orbax or npz.')
  before = resize.least
  resolution = preprocess.resolution
  # timm resizes to int(side / crop_pct), which may round down to a pixel less.
  fraction = min(1.0, resolution[0] / before[0])
  while fraction and int(resolution[0] / fraction) < before[0]:
    fraction = math.nextafter(fraction, 0)
  sizes = tuple(int(side / fraction) for side in resolution)
  square = resolution[0] == resolution[1]
  if sizes != before or (resize.shorter and not square):
    raise ValueError(
        f'timm cannot express the operations {preprocess.sections}: its '
        'central crop keeps the same fraction of both sides. Save the model as '
        'orbax or npz.')
  return {'crop_pct': fraction,
          'crop_mode': 'squash' if resize.size else 'center',
          'interpolation': resize.method}


def _architecture(config: vit_config.ViTConfig) -> str:
  """Returns the architecture with the settings that are no arguments.

  Raises:
    ValueError: if timm has none.
  """
  if name := timm_arguments.encoder_architecture(config):
    return name
  if backbone := config.backbone:
    name = _HYBRIDS.get(tuple(backbone.depths), '')
    if not name or backbone.width != 64 or backbone.preactivation:
      raise _no_architecture(config, 'backbone')
    return name
  if config.has_offset_bias:
    return _relative_architecture(config)
  swiglu = config.mlp == 'swiglu'
  special = config.parallel or config.paired or config.differential
  plain = config.stem_norm != 'patches' and (
      config.norm == 'layer' or config.layer_norm_epsilon == EPSILONS[0])
  if timm_arguments.is_eva(config):
    scaled = config.layer_scale is not None
    rotary = config.rotary
    # No argument removes the layer scale or the reference grid of rotary
    # positions.
    referred = scaled or rotary is None or rotary.reference or (
        rotary.learned or rotary.coordinates == 'normalized')
    sapiens2 = timm_arguments.is_sapiens2(config)
    possible = not special and (
        scaled or not sapiens2) and not (
            rotary and (rotary.register_base or rotary.cls
                        or rotary.video)) and (
        plain and config.proj_bias and (swiglu or config.gelu == 'exact')
        and config.pool_prefix == (config.pooling == 'attention') and referred)
    names = (2 * ('vit_base_patch16_sapiens2',) if sapiens2 else
             ('vit_small_patch16_rope_224', 'vit_small_patch16_dinov3')
             if scaled else
             ('eva02_base_patch14_224', 'vit_pe_core_base_patch16_224'))
  else:
    separate = timm_arguments.has_separate_gate(config)
    aimv2 = (config.norm == 'rms' and config.stem_norm == 'patches'
             and separate)
    possible = ((plain and not separate) or aimv2) and not (
        config.pool_heads or config.pool_mlp_dim) and config.layer_scale_mlp
    names = (2 * ('aimv2_large_patch14_224',) if aimv2 else
             2 * ('vit_giant_patch14_dinov2',) if swiglu else
             ('vit_base_patch16_224', 'vit_base_patch16_clip_224'))
  name = names[config.layer_norm_epsilon == EPSILONS[1]]
  if config.distill_token:
    possible = possible and name == 'vit_base_patch16_224' and (
        not config.registers and not special
        and timm_arguments.embeds_prefix(config))
    name = 'deit_base_distilled_patch16_224'
  elif config.post_norm and not timm_arguments.is_eva(config):
    possible = possible and name == 'vit_base_patch16_224' and not special
    name = 'vit_base_patch16_rpn_224'
  elif special:
    possible = possible and name == 'vit_base_patch16_224' and (
        not config.parallel or (
            config.proj_bias and config.inner_norm == 'none')) and not (
                config.paired and config.differential)
    name = ('vit_small_patch16_18x2_224' if config.paired else
            'vit_base_patch16_xp_224' if not config.differential else
            f'vit_d{"p" * config.parallel}wee_patch16_reg1_gap_256')
  if not (possible and config.pool_norm_affine and (
      config.mlp_bias or not config.proj_bias)):
    raise _no_architecture(
        config, 'rotary', 'norm', 'stem_norm', 'layer_scale', 'mlp', 'gelu',
        'inner_norm', 'proj_bias', 'mlp_bias', 'pool_norm_affine',
        'pool_prefix', 'pool_heads', 'pool_mlp_dim', 'distill_token',
        'registers', 'position_cls', 'post_norm', 'parallel', 'paired',
        'differential', 'layer_norm_epsilon', 'layer_scale_mlp')
  return name


def _relative_architecture(config: vit_config.ViTConfig) -> str:
  """Returns the architecture of a model with relative biases.

  Raises:
    ValueError: if timm has none.
  """
  beit = timm_arguments.is_beit(config)
  if set(architecture.non_default(config)) - {*_RELATIVE} or (
      config.gelu != 'exact' or config.key_bias == beit
      or config.final_norm == config.pool_norm
      or config.pooling not in ('cls', 'average') or (beit and (
          not config.has_cls or config.qk_norm or config.post_norm))):
    raise _no_architecture(config, *architecture.non_default(config))
  return ('beit_base_patch16_224' if beit else
          'vit_relpos_base_patch16_rpn_224' if config.post_norm else
          'vit_relpos_base_patch16_224')


def _no_architecture(config: models.ModelConfig, *names: str) -> ValueError:
  settings = ', '.join(f'{name}={getattr(config, name)!r}' for name in names)
  return ValueError(
      f'timm has no architecture with {settings}, so no config.json can be '
      'written. Write the weights alone: --target=FILE.safetensors.')
