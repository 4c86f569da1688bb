"""Settings that timm's architecture names imply and that no array determines.

An architecture's name is the name of a function in timm; the arguments that
this function passes on are in no file. An unknown name implies nothing.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Literal

# timm's names of the published sizes.
SIZES: Mapping[str, str] = {
    'tiny': 'Ti', 'small': 'S', 'base': 'B', 'large': 'L', 'huge': 'H',
    'giant': 'g', 'gigantic': 'G'}


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Implied settings.

  Attributes:
    num_heads: of each layer.
    gelu: of each layer, and of the pooling by attention.
    embeds_prefix: whether class token and registers have position embeddings.
  """
  num_heads: int
  gelu: Literal['exact', 'tanh'] = 'exact'
  embeds_prefix: bool = True


_HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'little': 5, 'small': 6, 'medium': 8, 'mediumd': 8,
    'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14, 'large': 16,
    'huge': 16, 'so400m': 16, 'giant': 16, 'giantopt': 16, 'gigantic': 16}
_SIZE = f'(?P<size>{"|".join(_HEADS)})'
# These words change nothing in a block; others (clip, plus, xp ...) do.
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
# Architectures whose arrays may have the names and shapes of a plain ViT.
_UNSUPPORTED: Mapping[str, str] = {
    r'.*_rpn(_.*)?': 'its blocks normalise the output of each branch',
    r'vit_giant_.*(dinov2|tipsv2).*': 'its MLPs are gated (SwiGLU)',
    r'.*_clip(_.*)?': 'it has a norm before the first block',
    r'test_vit3': 'its pooling includes the registers',
    r'test_vit4': 'its norms are RMS norms',
    r'.*_(relpos|srelpos|rope|pe|dinov3|sapiens2|lingbot)(_.*)?': (
        'its position embeddings are inside the attention')}


def find(name: str) -> Architecture | None:
  """Returns the settings that an architecture implies; None if unknown."""
  if unsupported(name):
    return None
  if name in _NAMED:
    return _NAMED[name]
  for pattern in _PLAIN:
    if match := re.fullmatch(pattern, name):
      return Architecture(
          num_heads=_HEADS[match['size']],
          gelu='tanh' if re.fullmatch(_TANH, name) else 'exact',
          embeds_prefix=not re.fullmatch(_PREFIX_NOT_EMBEDDED, name))
  return None


def unsupported(name: str) -> str:
  """Returns why our models cannot compute an architecture; '' if they can."""
  return next((reason for pattern, reason in _UNSUPPORTED.items()
               if re.fullmatch(pattern, name)), '')
