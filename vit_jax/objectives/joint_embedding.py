"""LeJEPA: embeddings that agree between views and are Gaussian over a batch.

    loss = (1 - weight) prediction + weight SIGReg

    prediction = mean (z_v - c)^2,  over views and components
    c: mean embedding of the global views
    SIGReg = mean_a N int |1/N sum_n exp(i t a.z_n) - exp(-t^2 / 2)|^2
                          exp(-t^2 / 2) dt

for embeddings z_v of the views of an image and random directions a of length 1.
SIGReg, the Epps-Pulley statistic of a normal distribution, prevents collapse:
there is no teacher and no stop-gradient. Because of its mean over the N images
of the batch, the loss of each image depends on all others.

Balestriero and LeCun, arXiv 2511.08544, algorithms 1 and 2. No labels are used.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vit_jax import models
from vit_jax import types
from vit_jax.models import joint_embedding
from vit_jax.objectives import lejepa
from vit_jax.objectives import views as views_lib

# Integration from -5 to 5 by the trapezoidal rule with 17 points (algorithm 1).
# The integrand is symmetric, and 0 at t = 0.
_STEP = 5 / 8


class LeJepa:
  """Loss of a `models.joint_embedding.JointEmbedding`.

  Attributes:
    measures: ('prediction', 'sigreg'), the terms of the loss.
  """
  measures: tuple[str, ...] = ('prediction', 'sigreg')

  def __init__(
      self, config: lejepa.LeJepaConfig, model: nn.Module, *,
      mean: float | tuple[float, ...], std: float | tuple[float, ...],
  ):
    """Initialises the loss; `mean` and `std` normalise images in [0, 1]."""
    self._config, self._model = config, model
    self._scale = {'mean': mean, 'std': std}

  def draw(
      self, images: views_lib.Images, key: PRNGKeyArray,
  ) -> dict[str, jax.Array]:
    """Returns the views of a batch, which `embed` expects in `batch`."""
    return views_lib.draw(self._config.views, images, key, **self._scale)

  def embed(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> Float[Array, 'batch views embedding']:
    """Returns the embeddings of views; examples do not affect each other.

    If `batch` has no views, `key` samples them.
    """
    view_key, dropout_key = jax.random.split(key)
    inputs = ({name: batch[name] for name in ('global_views', 'local_views')
               if name in batch} or self.draw(batch['image'], view_key))
    return self._model.apply(
        {'params': params}, batch['image'], train=train,
        rngs={'dropout': dropout_key}, **inputs)['predictions']

  def compare(
      self, embeddings: Float[Array, 'batch views embedding'],
      mask: Float[Array, 'batch'], key: PRNGKeyArray,
  ) -> tuple[Float[Array, 'batch'], dict[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example of a whole batch."""
    config = self._config
    embeddings = jnp.where(mask[:, None, None] > 0, embeddings, 0)
    centre = embeddings[:, :config.views.num_global].mean(
        axis=1, keepdims=True)
    prediction = jnp.square(embeddings - centre).mean(axis=(1, 2))
    directions = jax.random.normal(
        jax.random.fold_in(key, 2), (config.embedding, config.directions))
    statistic = sigreg(
        embeddings, mask, directions / jnp.linalg.norm(directions, axis=0))
    gaussian = jnp.full_like(prediction, statistic)
    return ((1 - config.weight) * prediction + config.weight * gaussian,
            {'prediction': prediction, 'sigreg': gaussian})

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example. Labels are not used."""
    return self.compare(
        self.embed(params, batch, key, train), batch['mask'], key)


@jax.checkpoint
def sigreg(
    embeddings: Float[Array, 'batch views embedding'],
    mask: Float[Array, 'batch'],
    directions: Float[Array, 'embedding directions'],
) -> Float[Array, '']:
  """Returns the mean over directions and views of the Epps-Pulley statistic.

  The backward pass recomputes the complex exponentials, because storing them
  would take batch x views x directions x knots numbers.

  Args:
    embeddings: 0 where masked.
    mask: 1 for real examples.
    directions: columns of length 1.
  """
  count = jnp.maximum(mask.sum(), 1)
  first = jnp.exp(1j * _STEP * (embeddings @ directions))
  wave, statistic = jnp.ones_like(first), jnp.zeros(())
  for knot in range(1, 9):
    wave = wave * first  # A product costs less than an exponential.
    difference = (mask[:, None, None] * wave).sum(axis=0) / count - (
        normal := math.exp(-(knot * _STEP)**2 / 2))
    weight = normal * _STEP * (2 if knot < 8 else 1)
    statistic += weight * (
        jnp.square(difference.real) + jnp.square(difference.imag)).mean()
  return count * statistic


def build_model(
    config: lejepa.LeJepaConfig, model: models.ModelConfig, *,
    image_shape: tuple[int, int, int], num_classes: int,
) -> nn.Module:
  """Returns the model with its projector.

  Raises:
    ValueError: if the model is not a ViT, its position embeddings cannot be
      interpolated, colour jitter is on but images are not RGB, or local views
      do not divide into patches.
  """
  if model.name != 'vit':
    raise ValueError(
        'objective lejepa needs a ViT, but the model is a '
        f'{model.name}. Choose another model.variant.')
  if model.position == 'relative' or (
      model.position_at != 'stem' and model.position != 'none'):
    raise ValueError(
        'objective lejepa interpolates position embeddings to the grid of '
        'local views, so they must be added at the stem; model.position is '
        f'{model.position!r} and model.position_at {model.position_at!r}.')
  views = config.views
  if views.changes_colours and image_shape[-1] != 3:
    raise ValueError(
        f'objective.views changes colours, but images have {image_shape[-1]} '
        'channels, not 3. Use --config.objective.views.jitter_probability=0 '
        '--config.objective.views.grayscale=0.')
  if views.num_local:
    try:
      models.grid(model, (views.local_size, views.local_size))
    except ValueError as error:
      raise ValueError(f'objective.views.local_size: {error}') from error
  return joint_embedding.JointEmbedding(
      dataclasses.replace(model, num_classes=num_classes),
      grid=models.grid(model, image_shape[:2]), hidden=config.hidden,
      outputs=config.embedding)


def training_inputs(
    config: lejepa.LeJepaConfig, image_shape: tuple[int, int, int],
) -> dict[str, Any]:
  """Returns the shapes of the views of one image."""
  return jax.eval_shape(
      lambda images: views_lib.draw(
          config.views, images, jax.random.key(0), mean=0.5, std=0.5),
      jax.ShapeDtypeStruct((1, *image_shape), jnp.float32))
