"""What timm's names of architectures imply that no array tells.

timm's names are those of functions, and what such a function passes on is in no
file. Here is what each of them passes, for the names that we know; a name that
is not here says nothing.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Architecture:
  """What a name implies.

  Attributes:
    num_heads: of each layer.
    gelu: in each layer, and in the pooling by attention.
    embedded: whether class token and registers have position embeddings.
  """
  num_heads: int
  gelu: Literal['exact', 'tanh'] = 'exact'
  embedded: bool = True


_HEADS: Mapping[str, int] = {
    'tiny': 3, 'wee': 4, 'little': 5, 'small': 6, 'medium': 8, 'mediumd': 8,
    'betwixt': 10, 'base': 12, 'so150m2': 13, 'so150m': 14, 'large': 16,
    'huge': 16, 'so400m': 16, 'giant': 16, 'giantopt': 16, 'gigantic': 16}
_SIZE = f'(?P<size>{"|".join(_HEADS)})'
# Of these words, none changes what a block is. `clip`, `plus`, `xp`, ... do.
_WORDS = r'(_(\d+|dinov2|tipsv2|miil|36x1|gap|map|siglip|reg\d))*'
_PLAIN = (
    rf'(vit|deit3?)_{_SIZE}_patch\d+{_WORDS}',
    rf'vit_{_SIZE}_r\d*_s\d+(_p8)?(_\d+)?', rf'flexivit_{_SIZE}')
_NAMED: Mapping[str, Architecture] = {
    'vit_base_patch16_gap_224': Architecture(16),
    'test_vit': Architecture(2), 'test_vit2': Architecture(2)}
# SigLIP 2 and what came after it; the first SigLIP is exact.
_TANH = (r'vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*'
         r'|vit_large_patch16_siglip_(gap_)?512')
_NOT_EMBEDDED = r'vit_(?!so150m).*_reg\d.*|deit3_.*|flexivit_.*'
# Their arrays may have the names and shapes of a plain ViT.
_OTHERWISE: Mapping[str, str] = {
    r'.*_rpn(_.*)?': 'its blocks normalise what comes out of each branch, not '
                     'what goes in',
    r'vit_giant_.*(dinov2|tipsv2).*': 'its MLPs are gated (SwiGLU)',
    r'.*_clip(_.*)?': 'it normalises tokens before the first block',
    r'test_vit3': 'its registers are pooled as well',
    r'test_vit4': 'its norms are of the root mean square alone',
    r'.*_(relpos|srelpos|rope|pe|dinov3|sapiens2|lingbot)(_.*)?': (
        'positions enter its attention')}


def find(name: str) -> Architecture | None:
  """Returns what an architecture implies; None if it is not understood."""
  if otherwise(name):
    return None
  if name in _NAMED:
    return _NAMED[name]
  for pattern in _PLAIN:
    if match := re.fullmatch(pattern, name):
      return Architecture(
          num_heads=_HEADS[match['size']],
          gelu='tanh' if re.fullmatch(_TANH, name) else 'exact',
          embedded=not re.fullmatch(_NOT_EMBEDDED, name))
  return None


def otherwise(name: str) -> str:
  """Returns what an architecture computes that ours do not; '' if nothing."""
  return next((said for pattern, said in _OTHERWISE.items()
               if re.fullmatch(pattern, name)), '')
