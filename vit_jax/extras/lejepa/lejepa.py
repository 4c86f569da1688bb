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

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vit_jax import exceptions
from vit_jax import fields
from vit_jax import metrics
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.lejepa import joint_embedding
from vit_jax.extras.lejepa import views as views_lib
from vit_jax.models import model_config
from vit_jax.objectives import objective

# Integration from -5 to 5 by the trapezoidal rule with 17 points (algorithm 1).
# The integrand is symmetric, and 0 at t = 0.
_STEP = 5 / 8


@dataclasses.dataclass(frozen=True)
class LejepaConfig(objective.ObjectiveConfig):
  """Section `objective` of a config with `name: 'lejepa'`.

  Attributes:
    weight: weight of SIGReg, between 0 and 1; the prediction loss has weight
      1 - `weight`.
    directions: number of random directions that SIGReg draws in each step.
    hidden: width of the two hidden layers of the projector.
    embedding: length of an embedding.
    views: random views of an image.
  """
  name: Literal['lejepa'] = 'lejepa'
  weight: float = 0.05
  directions: int = 1024
  hidden: int = 2048
  embedding: int = 64
  views: views_lib.ViewsConfig = views_lib.ViewsConfig()

  def __post_init__(self):
    fields.check_range(self, 'weight', above=0, end=1)
    fields.check_range(self, 'directions', 'hidden', 'embedding', low=1)

  def metrics(self) -> tuple[objective.Metric, ...]:
    return (objective.Metric('prediction', mode='min'),
            objective.Metric('sigreg', mode='min'))

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    """Returns the model with its projector.

    Raises:
      UserError: if the model is not a ViT, its position embeddings cannot be
        interpolated, colour jitter is on but images are not RGB, or local views
        do not divide into patches.
    """
    if not model.takes_any_grid:
      raise UserError(
          'objective lejepa interpolates position embeddings to the grid of '
          'local views, so they must be added at the stem of a ViT, unlike '
          f'those of {model.describe_kind()}. Choose another model.')
    config = self.views
    if config.changes_colours and image_shape[-1] != 3:
      raise UserError(
          f'objective.views changes colours, but images have {image_shape[-1]} '
          'channels, not 3. Use --config.objective.views.jitter_probability=0 '
          '--config.objective.views.grayscale=0.')
    if config.num_local:
      with exceptions.within('objective.views.local_size'):
        model.grid((config.local_size, config.local_size))
    return joint_embedding.JointEmbedding(
        dataclasses.replace(model, num_classes=num_classes),
        grid=model.grid(image_shape[:2]), hidden=self.hidden,
        outputs=self.embedding)

  def build(self, context: objective.Context) -> objective.Objective:
    return Lejepa(self, context)


class Lejepa(objective.CoupledObjective):
  """Loss of a `joint_embedding.JointEmbedding`.

  Its metrics are the terms of the loss, 'prediction' and 'sigreg'.
  """

  def __init__(self, config: LejepaConfig, context: objective.Context):
    """Initialises the loss."""
    self._config, self._context = config, context
    self.metrics = metrics.names(config.metrics())

  def draw(
      self, images: objective.Images, key: PRNGKeyArray,
  ) -> dict[str, jax.Array]:
    """Returns the normalised views of a batch."""
    return {name: self._context.value_scale.normalize(views)
            for name, views in views_lib.draw(
                self._config.views, images, key).items()}

  def embed(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> Float[Array, 'batch views embedding']:
    """Returns the embeddings of views; examples do not affect each other.

    If `batch` has no views, `key` samples them.
    """
    view_key, dropout_key = jax.random.split(key)
    inputs = ({name: batch[name] for name in ('global_views', 'local_views')
               if name in batch} or self.draw(batch['image'], view_key))
    return self._context.apply(
        params, batch['image'], dropout_key, train=train,
        **inputs)['predictions']

  def compare(
      self, embeddings: Float[Array, 'batch views embedding'],
      mask: Float[Array, 'batch'], key: PRNGKeyArray,
  ) -> objective.Losses:
    config = self._config
    embeddings = jnp.where(mask[:, None, None] > 0, embeddings, 0)
    centre = embeddings[:, :config.views.num_global].mean(axis=1, keepdims=True)
    prediction = jnp.square(embeddings - centre).mean(axis=(1, 2))
    directions = jax.random.normal(
        jax.random.fold_in(key, 2), (config.embedding, config.directions))
    statistic = sigreg(
        embeddings, mask, directions / jnp.linalg.norm(directions, axis=0))
    gaussian = jnp.full_like(prediction, statistic)
    return ((1 - config.weight) * prediction + config.weight * gaussian,
            {'prediction': prediction, 'sigreg': gaussian})


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
