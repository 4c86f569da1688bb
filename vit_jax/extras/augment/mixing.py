"""Mixup and CutMix: images and labels of a batch are mixed on the device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

_Mixed = tuple[Float[Array, 'batch height width channels'],
               Float[Array, 'batch classes']]


def mixup(
    image: Float[Array, 'batch height width channels'],
    label: Float[Array, 'batch classes'], key: Key[Array, ''], *, alpha: float,
) -> _Mixed:
  """Returns images and labels blended with the previous row.

    x = lam x_i + (1 - lam) x_j,  y = lam y_i + (1 - lam) y_j,
    lam ~ Beta(alpha, alpha), shared by the batch

  Zhang et al., https://arxiv.org/abs/1710.09412, equation 1 and figure 1a.
  """
  weight = jax.random.beta(key, alpha, alpha)
  return (weight * image + (1 - weight) * _partner(image),
          weight * label + (1 - weight) * _partner(label))


def cutmix(
    image: Float[Array, 'batch height width channels'],
    label: Float[Array, 'batch classes'], key: Key[Array, ''], *, alpha: float,
) -> _Mixed:
  """Returns images with a box pasted from the previous row.

  The box is shared by the batch. Its sides are sqrt(1 - lam) of the image's,
  lam ~ Beta(alpha, alpha), around a uniform centre, and clipped at the edges.
  Labels are blended by the remaining area.

  Yun et al., https://arxiv.org/abs/1905.04899, equations 1 and 2, and the
  appendix's algorithm 1.
  """
  key_weight, key_centre = jax.random.split(key)
  height, width = image.shape[1:3]
  side = jnp.sqrt(1 - jax.random.beta(key_weight, alpha, alpha))
  centre_y, centre_x = jax.random.uniform(key_centre, (2,))
  in_box = (_interval(height, centre_y, side)[:, None]
            & _interval(width, centre_x, side)[None, :])
  weight = 1 - jnp.mean(in_box, dtype=jnp.float32)
  return (jnp.where(in_box[None, :, :, None], _partner(image), image),
          weight * label + (1 - weight) * _partner(label))


def _partner(rows: Float[Array, 'batch ...']) -> Float[Array, 'batch ...']:
  """Returns the previous row of each row.

  Batches are shuffled already. With a random permutation, every device would
  need all images of the batch; here each sends one row to the next.
  """
  return jnp.roll(rows, 1, axis=0)


def _interval(
    size: int, centre: Float[Array, ''], side: Float[Array, ''],
) -> jax.Array:
  """Returns a mask of the `size` pixels within side / 2 of the centre."""
  first = jnp.round((centre - side / 2) * size)
  last = jnp.round((centre + side / 2) * size)
  pixels = jnp.arange(size)
  return (pixels >= first) & (pixels < last)
