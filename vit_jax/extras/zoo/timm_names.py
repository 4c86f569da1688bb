"""Settings that timm's architecture names imply.

A name is that of a function in timm, whose own arguments are in no file. The
families list its effects, as in the functions of timm 1.0.31,
models/vision_transformer.py and models/eva.py.
"""

from collections.abc import Mapping
import functools
import re
from typing import Any

from vit_jax.extras.zoo.families import families

# Attention heads by the word for the size.
HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'pwee': 4, 'dwee': 4, 'dpwee': 4, 'xsmall': 4,
    'little': 5, 'dlittle': 5, 'small': 6, 'medium': 8, 'mediumd': 8,
    'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14, 'intern300m': 16,
    'large': 16, 'huge': 16, 'so400m': 16, 'giant': 16, 'giantopt': 16,
    'gigantic': 16, 'enormous': 16}
_SIZE = f'(?P<size>{"|".join(HEADS)})'
# Components that our models lack, by words of a name.
_MISSING = (
    (r'.*_mci_.*', 'a convolutional stem'),
    (r'vit_.*_resnet\d+d_.*', 'a ResNet-D with batch norm'),
    ('gemma4_.*', 'norms before and after each branch, and clipped inputs'),
    ('hiera.*', 'pooling between layers (Hiera)'),
    ('sam(vit|2|_.*)?(_.*)?', 'attention within windows (SAM)'),
    ('swin.*', 'attention within shifted windows (Swin)'),
    ('(dinov3_)?convnext.*', 'a convolutional network (ConvNeXt)'))


def find_architecture(name: str) -> dict[str, Any] | None:
  """Returns the keys of section `model` that an architecture implies.

  Models that timm builds with its class Eva have `rotary`, which may be None.
  The result is None if the architecture is unknown.
  """
  found = [(re.fullmatch(_complete(pattern), name), is_eva)
           for is_eva in (False, True) for lineage in families.LINEAGES
           for pattern in (lineage.eva if is_eva else lineage.vit)]
  match, is_eva = next((one for one in found if one[0]), (None, False))
  if match is None:
    return None
  settings: dict[str, Any] = {
      'num_heads': HEADS.get(match.groupdict().get('size') or '', 16),
      'gelu': 'exact', 'layer_norm_epsilon': 1e-6, 'position_cls': True,
      'post_norm': False}
  if is_eva:
    settings |= {'rotary': None, 'pooling': 'average'}
  for lineage in families.LINEAGES:
    for pattern, implied in lineage.implied:
      if re.fullmatch(pattern, name):
        settings |= implied
  return settings


@functools.cache
def _complete(pattern: str) -> str:
  """Returns a pattern of `Lineage.vit` or `eva` as a regular expression."""
  words = '|'.join(
      word for lineage in families.LINEAGES for word in lineage.words)
  return pattern.replace('SIZE', _SIZE).replace('WORDS', f'(_({words}))*')


def missing_component(name: str) -> str:
  """Returns the component of an architecture that our models lack, or ''."""
  return next((component for pattern, component in _MISSING
               if re.fullmatch(pattern, name)), '')
