"""TIPSv2: arXiv 2604.12012. Its names are those of `dino`."""

from typing import Any

from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.families import names
from vit_jax.extras.zoo.families import records

_SETTINGS = {'layer_scale': 1.0, 'registers': 1}


def _written(config: Any, side: int) -> dict[str, Any]:
  del side
  gated = config.mlp == 'swiglu'
  return {'use_swiglu_ffn': gated, 'mlp_ratio': (
      names.dinov2_ratio(config) if gated else
      timm_arguments.mlp_ratio(config.mlp_dim, config.width))}


_TYPE = records.ModelType(
    'meta', 'Tipsv2VisionModel', settings={'registers': 1},
    free=('qkv_bias', 'mlp'), implied=records.scaled, inner=records.VISION,
    positions='bilinear', preprocess={'mean': (0.0,) * 3, 'std': (1.0,) * 3},
    written=_written, unused={'mask_token': (1, 0)},
    absent=('reg_token', '.fc', '.gamma_', 'v}_'))
LINEAGE = records.Lineage(
    backbones=(
        records.Backbones('vit_{}_patch14_reg1_tipsv2', {
            'base': records.B, 'large': records.L, 'so400m': records.SO400M},
                          (448,), _SETTINGS),
        records.Backbones('vit_{}_patch14_reg1_tipsv2', records.GIANT, (448,),
                          {**_SETTINGS, **records.SWIGLU})),
    words=('tipsv2',),
    implied=((r'vit_giant_patch\d+_.*tipsv2', {'num_heads': 24}),),
    types={'tipsv2_vision_model': _TYPE},
    read_as={'tipsv2': 'tipsv2_vision_model'})  # With a tower of texts.
