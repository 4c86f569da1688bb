"""Dimensions of the published encoders, with their sources."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Size:
  """Dimensions of an encoder (a row of table 1 of the paper)."""
  width: int
  depth: int
  mlp_dim: int
  num_heads: int


SIZES = {
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
