"""The sizes of the published models, each with its source."""

import dataclasses
import re

from vit_jax import records


@dataclasses.dataclass(frozen=True)
class Size:
  """Dimensions of an encoder: a row of the paper's Table 1."""
  width: int
  depth: int
  mlp_dim: int
  num_heads: int


SIZES = {
    # arXiv 2106.10270 (AugReg), table 2; Ti and S are DeiT's (2012.12877).
    'Ti': Size(width=192, depth=12, mlp_dim=768, num_heads=3),
    'S': Size(width=384, depth=12, mlp_dim=1536, num_heads=6),
    # arXiv 2010.11929 (ViT), table 1.
    'B': Size(width=768, depth=12, mlp_dim=3072, num_heads=12),
    'L': Size(width=1024, depth=24, mlp_dim=4096, num_heads=16),
    'H': Size(width=1280, depth=32, mlp_dim=5120, num_heads=16),
    # arXiv 2106.04560 (Scaling Vision Transformers), table 2.
    'g': Size(width=1408, depth=40, mlp_dim=6144, num_heads=16),
    'G': Size(width=1664, depth=48, mlp_dim=8192, num_heads=16),
}


def parse_variant(variant: str) -> tuple[Size, int]:
  """Returns size and patch size of a name such as 'B/16'.

  Raises:
    ValueError: if the name is not SIZE/PATCH or the size is not in the table.
  """
  match = re.fullmatch(r'(\w+)/(\d+)', variant)
  if not match or int(match[2]) == 0:
    raise ValueError(
        f'A variant is written SIZE/PATCH, for example "B/16", but is '
        f'{variant!r}. Sizes: {", ".join(SIZES)}.')
  records.check_name(match[1], list(SIZES), what='model size')
  return SIZES[match[1]], int(match[2])
