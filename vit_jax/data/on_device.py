"""Input processing on the device: scaled pixels, k-hot and mixed labels.

Batches are transferred as bytes, a quarter of float32. Mixing pairs images of
the global batch, which no single host holds.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

Batch = Mapping[str, Any]  # Arrays of the host or the device.


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

  `image` becomes float32 in [0, 1], which `objectives.Context.apply` normalises
  for the model. `label` becomes k-hot [batch, classes] for multi-label data,
  and soft [batch, classes] in training with mixup or CutMix; otherwise class
  indices and regression targets stay as they are. With mixup and CutMix, each
  batch gets one of both at random. Mixup blends regression targets; a blend
  with an unknown target (NaN) is unknown. `key` may be None without mixing.

  With `distributions`, for softmax losses, k-hot labels are divided by their
  sum before they are mixed. Otherwise an image with k labels would get k times
  its weight.

  Raises:
    UserError: for CutMix with regression targets.
  """
  if dataset.targets and config.cutmix > 0:
    raise UserError(
        'data.cutmix blends labels by area, which has no meaning for '
        'regression targets. Use --config.data.cutmix=0, or data.mixup.')
  mixers = [functools.partial(registry.load(target), alpha=alpha)
            for name, target in registry.MIXERS.items()
            if (alpha := getattr(config, name)) > 0]

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
        label = jax.nn.one_hot(label, dataset.num_classes, dtype=jnp.float32)
      if dataset.multi_label and distributions:  # Without labels, it stays 0.
        label /= jnp.maximum(label.sum(axis=-1, keepdims=True), 1)
      which = jax.random.randint(key_which, (), 0, len(mixers))
      image, label = jax.lax.switch(which, mixers, image, label, key_mix)
    return {**batch, 'image': image, 'label': label}

  return apply
