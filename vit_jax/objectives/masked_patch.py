"""Masked patch prediction: to say what a patch shows from the others.

Section 4.6 and appendix B.1.2 of the paper: half of the patch embeddings of an
image are corrupted, and each corrupted patch's own representation predicts
what it showed. No labels are used.

What the paper leaves open is decided here. "A random other patch embedding" is
another one of the same image, so that images stay independent of each other
and of how a batch lies on devices. Every image has the same number of
corrupted patches and of each kind, to the nearest whole one: only these are
predicted, in arrays of a fixed shape.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray
import numpy as np
import optax

from vit_jax import models
from vit_jax import types
from vit_jax.models import per_example_random

LEVELS = 8  # 3 bits a channel: 512 colours of three channels.
# Colours predicted along each side of a patch.
_SIDES = {'mean_color': 1, 'downsampled': 4}


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig:
  """Section `objective` of a config, for `name: 'masked_patch'`.

  Attributes:
    name: always 'masked_patch'.
    target: what is predicted of a corrupted patch: its 'mean_color' in 3 bits a
      channel, one class of 512; it 'downsampled' to 4x4 such colours; or the
      whole 'patch', by its squared error.
    corrupted: share of the patches; the paper also tried 0.15.
    shares: of the corrupted patches, those whose embedding is replaced by the
      mask embedding or by another patch's, and those where it is kept.
  """
  name: Literal['masked_patch'] = 'masked_patch'
  target: Literal['mean_color', 'downsampled', 'patch'] = 'mean_color'
  corrupted: float = 0.5
  shares: tuple[float, float, float] = (0.8, 0.1, 0.1)

  def __post_init__(self):
    if not 0 < self.corrupted <= 1:
      raise ValueError(
          'objective.corrupted is a share of the patches above 0 and up to 1, '
          f'but is {self.corrupted}.')
    if min(self.shares) < 0 or not math.isclose(sum(self.shares), 1):
      raise ValueError(
          'objective.shares are three parts of one (mask, another patch, '
          f'kept), but are {self.shares}.')


class Corruption(NamedTuple):
  """Which patches are corrupted, and how.

  Attributes:
    places: the corrupted patches of each image, in a random order.
    sources: for each place of an image, the patch whose embedding stands there;
      the number of patches means the mask embedding.
  """
  places: Int[Array, 'batch corrupted']
  sources: Int[Array, 'batch patches']


class MaskedPatch:
  """The loss of a model's predictions of corrupted patches.

  Attributes:
    measures: 'color_accuracy', where colours are predicted.
  """

  def __init__(
      self, config: MaskedPatchConfig, model: models.MaskedPatch, *,
      mean: float | tuple[float, ...], std: float | tuple[float, ...],
  ):
    """Takes a model of `build_model`.

    Args:
      config: the section.
      model: makes the predictions.
      mean: what was subtracted from images in [0, 1].
      std: what they were divided by.
    """
    self._config = config
    self._model = model
    self._mean, self._std = mean, std
    self.measures: tuple[str, ...] = (
        ('color_accuracy',) if config.target in _SIDES else ())

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns loss and measures of each example.

    Args:
      params: of the model.
      batch: as the model sees it; the labels are not used.
      key: of all that is random, the corruption included.
      train: with dropout and stochastic depth.
    """
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
        sources=corruption.sources, places=corruption.places,
        rngs={'dropout': dropout_key})
    predictions = outputs['predictions']
    if config.target == 'patch':
      patches = cut(images, grid)
      wanted = patches.reshape(*patches.shape[:2], -1)
      difference = predictions - _at(wanted, corruption.places)
      return jnp.square(difference).mean(axis=(1, 2)), {}
    pixels = images * jnp.asarray(self._std) + jnp.asarray(self._mean)
    wanted = colors(cut(pixels, grid), _SIDES[config.target])
    return _classify(predictions, _at(wanted, corruption.places))


def build_model(
    config: MaskedPatchConfig, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int], num_classes: int,
) -> models.MaskedPatch:
  """Returns the model that makes the predictions.

  Args:
    config: the section.
    model: the section `model`.
    image_shape: height, width and channels.
    num_classes: of the head, which learns nothing here.

  Raises:
    ValueError: if the model has no patches or is a hybrid, if there are too few
      to corrupt that share, or if the pixels do not divide into them.
  """
  if model.name != 'vit':
    raise ValueError(
        f'objective masked_patch is for a ViT, but the model is a '
        f'{model.name}, which has no patches. Choose another model.variant.')
  if model.backbone is not None:
    raise ValueError(
        'objective masked_patch is for a ViT without model.backbone: the '
        'ResNet of a hybrid sees beyond a patch, so that its neighbours tell '
        'what it showed. Choose another model.variant, such as B/16.')
  height, width, channels = image_shape
  rows, columns = models.grid(model, (height, width))
  if height % rows or width % columns:
    raise ValueError(
        f'objective masked_patch: an image of {height}x{width} does not divide '
        f'into the {rows}x{columns} patches of the model. Choose another '
        'data.resolution.')
  if channels > 3 and config.target in _SIDES:
    raise ValueError(
        f'objective.target {config.target} is one of {LEVELS} ** {channels} '
        f'colours of {channels} channels: too many to be classes. Use '
        '--config.objective.target=patch.')
  counts(config, rows * columns)
  if config.target == 'patch':
    num_outputs = (height // rows) * (width // columns) * channels
  else:
    num_outputs = _SIDES[config.target]**2 * LEVELS**channels
  return models.MaskedPatch(
      dataclasses.replace(model, num_classes=num_classes), num_outputs)


def counts(config: MaskedPatchConfig, patches: int) -> tuple[int, int, int]:
  """Returns how many patches of an image are masked, swapped and kept.

  Raises:
    ValueError: if none is corrupted, or there is no other to swap with.
  """
  corrupted = round(config.corrupted * patches)
  if not corrupted:
    raise ValueError(
        f'objective.corrupted: {config.corrupted} of {patches} patches is '
        'none. Use a larger share, or smaller patches.')
  masked = round(config.shares[0] * corrupted)
  swapped = min(round(config.shares[1] * corrupted), corrupted - masked)
  if swapped and patches < 2:
    raise ValueError(
        'objective.shares: an image of one patch has no other to take an '
        'embedding from. Use smaller patches.')
  return masked, swapped, corrupted - masked - swapped


def corrupt(
    key: PRNGKeyArray, config: MaskedPatchConfig, *, batch_size: int,
    patches: int,
) -> Corruption:
  """Draws which patches of each image are corrupted, and how.

  Args:
    key: random key.
    config: rate and shares.
    batch_size: number of images.
    patches: of an image.
  """
  masked, swapped, kept = counts(config, patches)
  order_key, other_key = jax.random.split(key)
  order = jnp.argsort(
      jax.random.uniform(order_key, (batch_size, patches)), axis=1)
  places = order[:, :masked + swapped + kept]
  # Any but itself: 1 to patches - 1 further on, round the image.
  step = jax.random.randint(
      other_key, (batch_size, swapped), 1, max(patches, 2))
  at_swap = places[:, masked:masked + swapped]
  sources = jnp.broadcast_to(jnp.arange(patches), (batch_size, patches))
  rows = jnp.arange(batch_size)[:, None]
  sources = sources.at[rows, places[:, :masked]].set(patches)
  sources = sources.at[rows, at_swap].set((at_swap + step) % patches)
  return Corruption(places, sources)


def cut(
    images: Float[Array, 'batch height width channels'],
    grid: tuple[int, int],
) -> Float[Array, 'batch patches patch_height patch_width channels']:
  """Cuts images into patches, row by row."""
  batch, height, width, channels = images.shape
  rows, columns = grid
  return images.reshape(
      batch, rows, height // rows, columns, width // columns, channels,
  ).swapaxes(2, 3).reshape(
      batch, rows * columns, height // rows, width // columns, channels)


def colors(
    pixels: Float[Array, 'batch patches patch_height patch_width channels'],
    side: int,
) -> Integer[Array, 'batch patches colors']:
  """Returns patches as side x side colours of 3 bits a channel.

  A colour is the mean over its part of the patch, by area where the patch does
  not divide; each channel is in one of eight equal parts of [0, 1], and red
  counts 64, green 8 and blue 1.

  Args:
    pixels: in [0, 1], whole bytes / 255.
    side: 1 for the mean colour.
  """
  height, width, channels = pixels.shape[2:]
  # Sums of whole numbers, exact in float32: a mean that lies on a border of
  # two levels must not fall to either side by a rounding error.
  sums = jnp.einsum(
      'bnhwc,ih,jw->bnijc', jnp.round(pixels * 255),
      _overlaps(height, side), _overlaps(width, side), precision='highest')
  levels = jnp.minimum(
      sums.astype(jnp.int32) * LEVELS // (255 * height * width), LEVELS - 1)
  weights = LEVELS ** np.arange(channels)[::-1]
  return (levels * weights).sum(axis=-1).reshape(*pixels.shape[:2], -1)


def _overlaps(pixels: int, parts: int) -> Float[np.ndarray, 'parts pixels']:
  """How much of each part is of each pixel, in 1 / parts of a pixel."""
  part, pixel = np.arange(parts)[:, None], np.arange(pixels)
  end = np.minimum((part + 1) * pixels, (pixel + 1) * parts)
  start = np.maximum(part * pixels, pixel * parts)
  return np.maximum(end - start, 0).astype(np.float32)


def _at(
    values: Integer[Array, 'batch patches values'] |
    Float[Array, 'batch patches values'],
    places: Int[Array, 'batch corrupted'],
) -> jax.Array:
  return jnp.take_along_axis(values, places[..., None], axis=1)


def _classify(
    predictions: Float[Array, 'batch corrupted outputs'],
    wanted: Integer[Array, 'batch corrupted colors'],
) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
  """Returns each image's mean cross-entropy over colours, and accuracy."""
  logits = predictions.reshape(*wanted.shape, -1)
  loss = optax.softmax_cross_entropy_with_integer_labels(logits, wanted)
  hit = logits.argmax(axis=-1) == wanted
  return (loss.mean(axis=(1, 2)),
          {'color_accuracy': hit.astype(jnp.float32).mean(axis=(1, 2))})
