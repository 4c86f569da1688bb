"""The published models by name, such as B/16, R50x1 or R50+B/16."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from vit_jax import registry
from vit_jax import schema
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class Size:
  """Dimensions of an encoder (a row of table 1 of the paper)."""
  width: int
  depth: int
  mlp_dim: int
  num_heads: int


SIZES: Mapping[str, Size] = {
    # arXiv 2106.10270 (AugReg), table 2; Ti and S are DeiT's (2012.12877).
    'Ti': Size(width=192, depth=12, mlp_dim=768, num_heads=3),
    'S': Size(width=384, depth=12, mlp_dim=1536, num_heads=6),
    # arXiv 2010.11929 (ViT), figure 4: B "with all hidden dimensions
    # halved", and its number of heads.
    'b': Size(width=384, depth=12, mlp_dim=1536, num_heads=12),
    # arXiv 2010.11929 (ViT), table 1.
    'B': Size(width=768, depth=12, mlp_dim=3072, num_heads=12),
    'L': Size(width=1024, depth=24, mlp_dim=4096, num_heads=16),
    'H': Size(width=1280, depth=32, mlp_dim=5120, num_heads=16),
    # arXiv 2106.04560 (Scaling Vision Transformers), table 2.
    'g': Size(width=1408, depth=40, mlp_dim=6144, num_heads=16),
    'G': Size(width=1664, depth=48, mlp_dim=8192, num_heads=16),
    # arXiv 2302.05442 (Scaling ViTs to 22 Billion Parameters), table 1.
    '22B': Size(width=6144, depth=48, mlp_dim=24576, num_heads=48),
}
# Settings of a size that differ from the plain encoder.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # arXiv 2302.05442, section 2.1: parallel layers, QK normalisation, no bias
    # in qkv projections, norms without bias and centring. Attention pooling, as
    # in the paper, is the setting `pooling`.
    '22B': {'name': 'backbone', 'parallel': True, 'qkv_bias': False,
            'qk_norm': True, 'norm': 'rms'},
}

# Residual units of each stage by number of layers.
STAGES: Mapping[int, tuple[int, ...]] = {
    26: (2, 2, 2, 2),  # arXiv 2106.10270 (AugReg), section 3.4.
    # arXiv 1512.03385 (ResNet), table 1.
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),  # arXiv 1603.05027 (ResNet v2), table 5.
}

# Hybrids: a ViT on a ResNet feature map, usually with patches of 1x1. The
# number after the slash is then the stride of the feature map: /32 after stage
# 4 of a ResNet, or /16 with the layers of stage 4 in stage 3 (section 4.1).
# AugReg's R+Ti/16 has only the root (stride 4) and patches of 8x8.
HYBRIDS: Mapping[str, tuple[str, tuple[int, ...], int]] = {
    # Variant: (encoder size, stages, patch).
    # arXiv 2010.11929 (ViT), table 6.
    'R50+B/16': ('B', (3, 4, 9), 1),
    'R50+B/32': ('B', (3, 4, 6, 3), 1),
    'R50+L/16': ('L', (3, 4, 9), 1),
    'R50+L/32': ('L', (3, 4, 6, 3), 1),
    # arXiv 2106.10270 (AugReg), section 3.4.
    'R+Ti/16': ('Ti', (), 8),
    'R26+S/32': ('S', (2, 2, 2, 2), 1),
    'R26+B/32': ('B', (2, 2, 2, 2), 1),
}

# "ResNet (BiT)": arXiv 2010.11929, table 6 and table 2 (R152x4); 1912.11370.
RESNETS = ('R50x1', 'R50x2', 'R50x3', 'R101x1', 'R101x3', 'R152x1', 'R152x2',
           'R152x4', 'R200x3')

# All published variants.
PUBLISHED = (
    'Ti/16', 'S/16', 'S/32', 'b/16', 'b/32', 'B/8', 'B/16', 'B/32', 'L/16',
    'L/32', 'H/14', 'g/14', 'G/14', '22B/14',
    *HYBRIDS, *RESNETS)

# Settings of BiT's ResNets that differ from the hybrids (its published code).
BIT = {'preactivation': True, 'group_norm_epsilon': 1e-5, 'std_epsilon': 0.0,
        'variance_epsilon': 1e-10}


def section(variant: str) -> dict[str, Any]:
  """Returns the keys of section `model` that a variant sets.

  These are `name`, the dimensions of a ViT or `backbone`, and the settings
  that differ from a plain ViT.

  Raises:
    UserError: for an unknown size or name, or if the form is not SIZE/PATCH.
  """
  if match := re.fullmatch(r'R(\d+)x(\d+)', variant):
    layers, factor = int(match[1]), int(match[2])
    if layers not in STAGES or not factor:
      raise UserError(
          f'A ResNet has the form R<layers>x<width>, such as "R50x1", but is '
          f'{variant!r}. Layers: {", ".join(map(str, STAGES))}.')
    return {'name': 'resnet', 'backbone': {
        'depths': STAGES[layers], 'width': 64 * factor, **BIT}}
  if '+' in variant:
    schema.check_name(variant, list(HYBRIDS), what='hybrid')
    size, depths, patch = HYBRIDS[variant]
    return _vit(SIZES[size], patch, name='hybrid', backbone={'depths': depths})
  if '_' in variant and (backbones := registry.optional(registry.BACKBONES)):
    table = backbones()
    schema.check_name(variant, list(table), what='backbone')
    return _vit(table[variant].size, name='backbone', **table[variant].settings)
  match = re.fullmatch(r'(\w+)/(\d+)', variant)
  if not match or int(match[2]) == 0:
    raise UserError(
        f'A variant has the form SIZE/PATCH, such as "B/16", but is '
        f'{variant!r}. Sizes: {", ".join(SIZES)}.')
  schema.check_name(match[1], list(SIZES), what='model size')
  return _vit(SIZES[match[1]], int(match[2]), **SETTINGS.get(match[1], {}))


def _vit(size: Size, patch: int, **settings: Any) -> dict[str, Any]:
  """Returns the keys of a ViT with `settings` unlike a plain one's."""
  return {'name': 'vit', **dataclasses.asdict(size), 'patch': patch, **settings}
