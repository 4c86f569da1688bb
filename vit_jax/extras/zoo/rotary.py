"""Rotary position embeddings of image patches.

Queries and keys are rotated by angles proportional to the position of their
patch, so that attention logits depend on relative positions (RoFormer, arXiv
2104.09864; images: EVA-02, arXiv 2303.11331, and RoPE-ViT, arXiv 2403.13298).
"""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax import fields
from vit_jax.exceptions import UserError


@dataclasses.dataclass(frozen=True)
class RotaryConfig:
  """Settings of rotary position embeddings.

  Attributes:
    coordinates: position of a patch: 'index', its row and column; or
      'normalized', its centre in [-2 pi, 2 pi] for any grid (DINOv3, arXiv
      2508.10104).
    base: the frequencies of an axis are base ** -(i / n) for i in 0 ... n - 1,
      with n = head_dim / 4.
    reference: side of the grid that indices are rescaled to, so that a model
      works at other resolutions than in pre-training (EVA-02); 0 for
      no rescaling.
    offset: added to indices before rescaling (1 in Perception Encoder).
    x_first: whether the column, rather than the row, rotates the first half of
      the channel pairs.
    halves: whether channel i is paired with channel i + head_dim / 2, rather
      than 2 i with 2 i + 1.
    learned: each head of each layer learns its frequencies for both axes
      ("RoPE-Mixed", arXiv 2403.13298, section 3.2).
    register_base: like `base`, for registers, which are then at the positions
      of a square grid (ViT-5, arXiv 2602.08071); 0 does not rotate them.
  """
  coordinates: Literal['index', 'normalized'] = 'index'
  base: float = 10_000.0
  reference: int = 0
  offset: float = 0.0
  x_first: bool = False
  halves: bool = False
  learned: bool = False
  register_base: float = 0.0

  def __post_init__(self):
    fields.check_range(self, 'base', above=1)
    fields.check_range(self, 'reference', 'register_base')
    if self.learned and self.register_base:
      raise UserError('rotary.learned excludes rotary.register_base.')
    if self.coordinates == 'normalized' and (self.reference or self.offset):
      raise UserError(
          "coordinates 'normalized' are the same for every grid: leave "
          'reference and offset at 0.')


def coordinates(
    config: RotaryConfig, grid: tuple[int, int],
) -> Float[np.ndarray, 'patches 2']:
  """Returns the coordinates of each patch, in the order of the axes."""
  axes: list[np.ndarray] = []
  for size in grid:
    if config.coordinates == 'normalized':
      axes.append(2 * np.pi * (2 * (np.arange(size) + 0.5) / size - 1))
    else:
      scale = config.reference / size if config.reference else 1
      axes.append((np.arange(size) + config.offset) * scale)
  rows, columns = (
      axis.reshape(-1) for axis in np.meshgrid(*axes, indexing='ij'))
  return np.stack(
      [columns, rows] if config.x_first else [rows, columns], axis=1)


def frequencies(
    config: RotaryConfig, head_dim: int,
) -> Float[np.ndarray, 'frequencies']:
  """Returns the frequencies of an axis, from 1 to nearly 1 / `base`."""
  count = head_dim // 4
  return config.base ** -(np.arange(count) / count)


def random_frequencies(
    key: Any, shape: tuple[int, int, int], *, config: RotaryConfig,
) -> Float[Array, '2 heads pairs']:
  """Returns initial frequencies, rotated by a random angle in each head.

  `shape` is (2, heads, head_dim / 2).
  """
  _, heads, pairs = shape
  length = jnp.asarray(frequencies(config, 2 * pairs), jnp.float32)
  angle = jax.random.uniform(key, (heads, 1), maxval=2 * np.pi)
  turned = [jnp.concatenate([length * wave(angle),
                             length * wave(angle + np.pi / 2)], axis=1)
            for wave in (jnp.cos, jnp.sin)]
  return jnp.stack(turned)


def angles(
    config: RotaryConfig, grid: tuple[int, int], head_dim: int,
    learned: Float[Array, '2 heads pairs'] | None = None, registers: int = 0,
) -> Any:
  """Returns the angle of each patch and pair of channels.

  Returns:
    [patches, 1 or heads, head_dim / 2], the same for all heads unless they have
    `learned` frequencies; with `register_base`, after those of `registers`.
  """
  if config.register_base:
    config, own = (
        dataclasses.replace(config, base=base, register_base=0.0)
        for base in (config.base, config.register_base))
    side = math.isqrt(registers)
    return np.concatenate([angles(own, (side, side), head_dim),
                           angles(config, grid, head_dim)])
  at = coordinates(config, grid)
  if learned is not None:
    return jnp.einsum('pa,ahc->phc', at.astype(np.float32),
                      learned.astype(jnp.float32), precision='highest')
  axes = at[:, :, None] * frequencies(config, head_dim)
  return axes.reshape(len(at), 1, -1)


def rotate(
    array: Float[Array, 'batch tokens heads head_dim'],
    angles_of_patches: Any, *, halves: bool,
) -> Float[Array, 'batch tokens heads head_dim']:
  """Rotates the channels of patch tokens in float32.

  Tokens before the patches are not rotated. The result has the first channels
  of all pairs, then the second ones: queries and keys in the same order have
  the same dot products.

  Args:
    array: queries or keys.
    angles_of_patches: [patches, 1 or heads, head_dim / 2]; see `angles`.
    halves: see `RotaryConfig`.
  """
  module: Any = np if isinstance(angles_of_patches, np.ndarray) else jnp
  # Angle 0 for the tokens before the patches: a slice and a concatenation of
  # the tokens would cost a copy.
  prefix = array.shape[1] - angles_of_patches.shape[0]
  padded = module.pad(angles_of_patches, [(prefix, 0), (0, 0), (0, 0)])
  cos, sin = (wave(padded).astype(np.float32)
              for wave in (module.cos, module.sin))
  wide = array.astype(jnp.float32)
  first, second = (jnp.split(wide, 2, axis=-1) if halves
                   else (wide[..., 0::2], wide[..., 1::2]))
  return jnp.concatenate(
      [first * cos - second * sin, second * cos + first * sin],
      axis=-1).astype(array.dtype)
