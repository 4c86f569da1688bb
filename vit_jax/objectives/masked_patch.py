"""Masked patch prediction (section 4.6 and appendix B.1.2 of the paper).

Half of the patch embeddings of an image are corrupted, and the output token of
each corrupted patch predicts its pixels. No labels are used.

Choices where the paper is not explicit: "a random other patch embedding" comes
from the same image, so that images stay independent of each other and of the
devices; and every image has the same number of corrupted patches of each kind,
so that predictions have a fixed shape.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Literal, NamedTuple

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray
import numpy as np
import optax

from vit_jax import models
from vit_jax import types

LEVELS = 8  # 3 bits per channel: 512 colours of three channels.
# Predicted colours along each side of a patch.
_SIDES = {'mean_color': 1, 'downsampled': 4}


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig:
  """Section `objective` of a config with `name: 'masked_patch'`.

  Attributes:
    name: 'masked_patch'.
    target: predicted values of a corrupted patch: 'mean_color' with 3 bits per
      channel (one of 512 classes), 'downsampled' to 4x4 such colours, or the
      whole 'patch' with a squared error.
    corrupted: fraction of corrupted patches; the paper also tried 0.15.
    shares: fractions of corrupted patches whose embedding is replaced by the
      mask embedding, replaced by another patch, and kept.
  """
  name: Literal['masked_patch'] = 'masked_patch'
  target: Literal['mean_color', 'downsampled', 'patch'] = 'mean_color'
  corrupted: float = 0.5
  shares: tuple[float, float, float] = (0.8, 0.1, 0.1)

  def __post_init__(self):
    if not 0 < self.corrupted <= 1:
      raise ValueError(
          'objective.corrupted must be a fraction above 0 and at most 1, but '
          f'is {self.corrupted}.')
    if min(self.shares) < 0 or not math.isclose(sum(self.shares), 1):
      raise ValueError(
          'objective.shares must be three fractions (mask, other patch, kept) '
          f'with sum 1, but are {self.shares}.')


class Corruption(NamedTuple):
  """Corrupted patches of a batch.

  Attributes:
    indices: indices of the corrupted patches of each image, in random order.
    sources: index of the patch embedding to use at each position; index
      `patches` is the mask embedding.
  """
  indices: Int[Array, 'batch corrupted']
  sources: Int[Array, 'batch patches']


class MaskedPatch:
  """Loss of the predictions of corrupted patches.

  Attributes:
    measures: ('color_accuracy',) for colour targets.
  """

  def __init__(
      self, config: MaskedPatchConfig, model: nn.Module, *,
      mean: float | tuple[float, ...], std: float | tuple[float, ...],
  ):
    """Initialises the loss; `mean` and `std` normalise images in [0, 1]."""
    self._config = config
    self._model = model
    self._mean, self._std = mean, std
    self.measures: tuple[str, ...] = (
        ('color_accuracy',) if config.target in _SIDES else ())

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example.

    Labels are not used. `key` also samples the corruption; `train` applies
    dropout and stochastic depth.
    """
    from vit_jax.models import per_example_random
    images, config = batch['image'], self._config
    _, height, width, _ = images.shape
    grid = models.grid(self._model.config, (height, width))
    corrupt_key, dropout_key = jax.random.split(key)
    corruption = per_example_random.sample(
        lambda key, batch: corrupt(
            key, config, batch_size=batch, patches=grid[0] * grid[1]),
        corrupt_key, images)
    outputs = self._model.apply(
        {'params': params}, images, train=train,
        sources=corruption.sources, indices=corruption.indices,
        rngs={'dropout': dropout_key})
    predictions = outputs['predictions']
    if config.target == 'patch':
      patches = to_patches(images, grid)
      targets = patches.reshape(*patches.shape[:2], -1)
      difference = predictions - _select(targets, corruption.indices)
      return jnp.square(difference).mean(axis=(1, 2)), {}
    pixels = images * jnp.asarray(self._std) + jnp.asarray(self._mean)
    targets = colors(to_patches(pixels, grid), _SIDES[config.target])
    return _classify(predictions, _select(targets, corruption.indices))


def build_model(
    config: MaskedPatchConfig, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int], num_classes: int,
) -> nn.Module:
  """Returns the model with the prediction layer of the target.

  Raises:
    ValueError: for a ResNet or hybrid, too few patches, or an image size that
      is not divisible by the grid.
  """
  if model.name != 'vit':
    raise ValueError(
        f'objective masked_patch needs a ViT, but the model is a '
        f'{model.name}, which has no patches. Choose another model.variant.')
  if model.backbone is not None:
    raise ValueError(
        'objective masked_patch needs a ViT without model.backbone: the '
        'receptive field of a ResNet leaks the pixels of a patch to its '
        'neighbours. Choose another model.variant, such as B/16.')
  height, width, channels = image_shape
  rows, columns = models.grid(model, (height, width))
  if height % rows or width % columns:
    raise ValueError(
        f'objective masked_patch: an image of {height}x{width} does not divide '
        f'into the {rows}x{columns} patches of the model. Choose another '
        'data.resolution.')
  if channels > 3 and config.target in _SIDES:
    raise ValueError(
        f'objective.target {config.target} has {LEVELS} ** {channels} classes '
        f'with {channels} channels, which are too many. Use '
        '--config.objective.target=patch.')
  counts(config, rows * columns)
  if config.target == 'patch':
    num_outputs = (height // rows) * (width // columns) * channels
  else:
    num_outputs = _SIDES[config.target]**2 * LEVELS**channels
  from vit_jax.models import masked_patch
  return masked_patch.MaskedPatch(
      dataclasses.replace(model, num_classes=num_classes), num_outputs)


def counts(config: MaskedPatchConfig, patches: int) -> tuple[int, int, int]:
  """Returns the numbers of masked, swapped and kept patches of an image.

  Raises:
    ValueError: without corrupted patches, or without another patch to swap.
  """
  corrupted = round(config.corrupted * patches)
  if not corrupted:
    raise ValueError(
        f'objective.corrupted: {config.corrupted} of {patches} patches rounds '
        'to 0. Use a larger fraction or smaller patches.')
  masked = round(config.shares[0] * corrupted)
  swapped = min(round(config.shares[1] * corrupted), corrupted - masked)
  if swapped and patches < 2:
    raise ValueError(
        'objective.shares: an image of one patch has no other patch to swap '
        'with. Use smaller patches.')
  return masked, swapped, corrupted - masked - swapped


def corrupt(
    key: PRNGKeyArray, config: MaskedPatchConfig, *, batch_size: int,
    patches: int,
) -> Corruption:
  """Samples the corrupted patches of each image."""
  masked, swapped, kept = counts(config, patches)
  order_key, other_key = jax.random.split(key)
  order = jnp.argsort(
      jax.random.uniform(order_key, (batch_size, patches)), axis=1)
  indices = order[:, :masked + swapped + kept]
  # Any other patch: an offset of 1 to patches - 1, modulo patches.
  step = jax.random.randint(
      other_key, (batch_size, swapped), 1, max(patches, 2))
  at_swap = indices[:, masked:masked + swapped]
  sources = jnp.broadcast_to(jnp.arange(patches), (batch_size, patches))
  rows = jnp.arange(batch_size)[:, None]
  sources = sources.at[rows, indices[:, :masked]].set(patches)
  sources = sources.at[rows, at_swap].set((at_swap + step) % patches)
  return Corruption(indices, sources)


def to_patches(
    images: Float[Array, 'batch height width channels'],
    grid: tuple[int, int],
) -> Float[Array, 'batch patches patch_height patch_width channels']:
  """Splits images into patches in row-major order."""
  return einops.rearrange(
      images, 'b (r h) (c w) ch -> b (r c) h w ch', r=grid[0], c=grid[1])


def colors(
    pixels: Float[Array, 'batch patches patch_height patch_width channels'],
    side: int,
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
  levels = jnp.minimum(
      sums.astype(jnp.int32) * LEVELS // (255 * height * width), LEVELS - 1)
  weights = LEVELS ** np.arange(channels)[::-1]
  return (levels * weights).sum(axis=-1).reshape(*pixels.shape[:2], -1)


def _overlaps(pixels: int, bins: int) -> Float[np.ndarray, 'bins pixels']:
  """Returns the overlap of bins and pixels, in units of 1 / bins of a pixel."""
  index, pixel = np.arange(bins)[:, None], np.arange(pixels)
  end = np.minimum((index + 1) * pixels, (pixel + 1) * bins)
  start = np.maximum(index * pixels, pixel * bins)
  return np.maximum(end - start, 0).astype(np.float32)


def _select(
    values: Integer[Array, 'batch patches values'] |
    Float[Array, 'batch patches values'],
    indices: Int[Array, 'batch corrupted'],
) -> jax.Array:
  return jnp.take_along_axis(values, indices[..., None], axis=1)


def _classify(
    predictions: Float[Array, 'batch corrupted outputs'],
    targets: Integer[Array, 'batch corrupted colors'],
) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
  """Returns the mean cross-entropy over colours and the accuracy per image."""
  logits = predictions.reshape(*targets.shape, -1)
  loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  hit = logits.argmax(axis=-1) == targets
  return (loss.mean(axis=(1, 2)),
          {'color_accuracy': hit.astype(jnp.float32).mean(axis=(1, 2))})
