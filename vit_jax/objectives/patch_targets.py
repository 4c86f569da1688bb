"""Targets of predicted patches: pixels, or colours as classes."""

from collections.abc import Mapping
import math
from typing import Literal

import einops
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer
import numpy as np
import optax

from vit_jax.objectives import objective

# 'normalized' are the pixels of a patch, standardised by its own mean and
# deviation (MAE, arXiv 2111.06377, section 3).
Target = Literal['mean_color', 'downsampled', 'patch', 'normalized']
Patches = Float[Array, 'batch patches patch_height patch_width channels']

LEVELS = 8  # 3 bits per channel: 512 colours of three channels.
# Predicted colours along each side of a patch.
SIDES: Mapping[str, int] = {'mean_color': 1, 'downsampled': 4}
EPSILON = 1e-6  # Added to the variance of a patch, as in the code of MAE.


def num_outputs(target: Target, shape: tuple[int, int, int]) -> int:
  """Returns the outputs of a patch of shape (height, width, channels)."""
  if target in SIDES:
    return SIDES[target]**2 * LEVELS**shape[-1]
  return math.prod(shape)


def compute(
    target: Target, patches: Patches, context: objective.Context,
) -> Integer[Array, 'batch patches colors'] | Float[
    Array, 'batch patches values']:
  """Returns the targets of patches in [0, 1].

  Pixels are predicted in the units of the model's inputs.
  """
  if target in SIDES:
    return colors(patches, SIDES[target])
  values = flat(context.value_scale.normalize(patches))
  if target == 'patch':
    return values
  center, scale = statistics(values)
  return (values - center) / scale


def loss(
    target: Target, predictions: Float[Array, 'batch predicted outputs'],
    targets: jax.Array,
) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
  """Returns the loss of each image, and its accuracy of colours.

  The loss is the mean over predicted patches: the squared error of pixels, or
  the cross-entropy of colours.
  """
  if target not in SIDES:
    return jnp.square(predictions - targets).mean(axis=(1, 2)), {}
  logits = predictions.reshape(*targets.shape, -1)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  hit = logits.argmax(axis=-1) == targets
  return (losses.mean(axis=(1, 2)),
          {'color_accuracy': hit.astype(jnp.float32).mean(axis=(1, 2))})


def flat(patches: Patches) -> Float[Array, 'batch patches values']:
  """Returns the values of each patch in one row."""
  return patches.reshape(*patches.shape[:2], -1)


def statistics(
    values: Float[Array, 'batch patches values'],
) -> tuple[Float[Array, 'batch patches 1'], Float[Array, 'batch patches 1']]:
  """Returns mean and unbiased deviation of each patch, over all channels."""
  variance = values.var(axis=-1, ddof=1, keepdims=True)
  return values.mean(axis=-1, keepdims=True), jnp.sqrt(variance + EPSILON)


def split(
    images: Float[Array, 'batch height width channels'],
    grid: tuple[int, int],
) -> Patches:
  """Splits images into patches in row-major order."""
  return einops.rearrange(
      images, 'b (r h) (c w) ch -> b (r c) h w ch', r=grid[0], c=grid[1])


def colors(
    pixels: Patches, side: int,
) -> Integer[Array, 'batch patches colors']:
  """Downsamples patches to side x side colours with 3 bits per channel.

  A colour is the area-weighted mean over its part of the patch. Each channel is
  quantised to eight equal intervals of [0, 1]; the class is 64 red + 8 green +
  blue.

  Args:
    pixels: in [0, 1], whole bytes / 255.
    side: colours along each side; 1 for the mean colour.
  """
  height, width, channels = pixels.shape[2:]
  # Sums of integers are exact in float32, so that means on the border of two
  # levels do not depend on rounding errors.
  sums = jnp.einsum(
      'bnhwc,ih,jw->bnijc', jnp.round(pixels * 255),
      _overlaps(height, side), _overlaps(width, side), precision='highest')
  levels = jnp.clip(
      sums.astype(jnp.int32) * LEVELS // (255 * height * width), 0, LEVELS - 1)
  weights = LEVELS ** np.arange(channels)[::-1]
  return (levels * weights).sum(axis=-1).reshape(*pixels.shape[:2], -1)


def _overlaps(pixels: int, bins: int) -> Float[np.ndarray, 'bins pixels']:
  """Returns the overlap of bins and pixels, in units of 1 / bins of a pixel."""
  index, pixel = np.arange(bins)[:, None], np.arange(pixels)
  end = np.minimum((index + 1) * pixels, (pixel + 1) * bins)
  start = np.maximum(index * pixels, pixel * bins)
  return np.maximum(end - start, 0).astype(np.float32)
