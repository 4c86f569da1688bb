"""Input processing on the device: scaled pixels, mixup and CutMix.

Batches are transferred as bytes, a quarter of float32. Mixing pairs images of
the global batch, which no single host holds.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Key

from vit_jax.data import config as data_config
from vit_jax.data.sources import protocol

Batch = Mapping[str, Any]  # Arrays of the host or the device.
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


def k_hot(
    label: Integer[Array, 'batch max_labels'], *, num_classes: int,
) -> Float[Array, 'batch classes']:
  """Returns k-hot labels from lists of class indices, padded with negatives."""
  # XLA fuses the comparison and the reduction; a scatter is slow on TPUs.
  classes = jnp.arange(num_classes)
  return (label[:, :, None] == classes).any(axis=1).astype(jnp.float32)


def prepare(
    config: data_config.DataConfig, dataset: protocol.Metadata, *,
    distributions: bool = False,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns the function (batch, key, train) -> batch to run on the device.

  `image` becomes float32 in [0, 1], which objectives and evaluators normalise
  for the model. `label` becomes k-hot [batch, classes]
  for multi-label data, and soft [batch, classes] in training with mixup or
  CutMix; otherwise class indices and regression targets stay as they are. With
  mixup and CutMix, each batch gets one of both at random. Mixup blends
  regression targets; a blend with an unknown target (NaN) is unknown. `key` may
  be None without mixing.

  With `distributions`, for softmax losses, k-hot labels are divided by their
  sum before they are mixed. Otherwise an image with k labels would get k times
  its weight.

  Raises:
    ValueError: for CutMix with regression targets.
  """
  if dataset.targets and config.cutmix > 0:
    raise ValueError(
        'data.cutmix blends labels by area, which has no meaning for '
        'regression targets. Use --config.data.cutmix=0, or data.mixup.')
  mixers = [functools.partial(mix, alpha=alpha) for mix, alpha in (
      (mixup, config.mixup), (cutmix, config.cutmix)) if alpha > 0]

  def apply(
      batch: Batch, key: jax.Array | None, train: bool,
  ) -> dict[str, jax.Array]:
    image = config.value_scale.to_unit(jnp.asarray(batch['image']))
    label = jnp.asarray(batch['label'])
    if dataset.multi_label:
      label = k_hot(label, num_classes=dataset.num_classes)
    if train and mixers:
      assert key is not None, 'mixing needs a random key'
      key_which, key_mix = jax.random.split(key)
      if not dataset.multi_label and not dataset.targets:
        label = jax.nn.one_hot(
            label, dataset.num_classes, dtype=jnp.float32)
      if dataset.multi_label and distributions:  # Without labels, it stays 0.
        label /= jnp.maximum(label.sum(axis=-1, keepdims=True), 1)
      which = jax.random.randint(key_which, (), 0, len(mixers))
      image, label = jax.lax.switch(which, mixers, image, label, key_mix)
    return {**batch, 'image': image, 'label': label}

  return apply
