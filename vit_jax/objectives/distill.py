"""Distillation: a model learns from the predictions of a frozen teacher.

    loss = (1 - weight) * labels + weight * teacher + feature_weight * features
    soft:  teacher = T^2 KL(softmax(t / T) || softmax(s / T))
    hard:  teacher = cross-entropy(argmax t, s)
    features = mean (r W - u)^2

for logits s of the model and t of the teacher, with a temperature T (arXiv
1503.02531; hard targets: arXiv 2012.12877, equation 3), and representations r
of the model and u of the teacher, with a learned matrix W (FitNets, arXiv
1412.6550, equation 3). Both see the same crop and the same mixture of images
(arXiv 2106.05237). In a model with a distillation token, s are the logits of
that token, and the loss of the labels is that of the class token (arXiv
2012.12877, section 3).

The teacher's parameters are frozen parameters of the training state, under
`teacher/`, so that they are sharded like others. Checkpoints leave them out.
"""

from collections.abc import Mapping
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import numpy as np
import optax

from vit_jax import models
from vit_jax import types
from vit_jax.objectives import supervised


def outputs(
    teacher: Any, params: types.Params,
    images: Float[Array, 'batch height width channels'],
) -> tuple[Float[Array, 'batch classes'], Float[Array, 'batch features']]:
  """Returns logits and representation of a teacher."""
  found = _module(teacher).apply({'params': params}, images)
  return found['logits'], found['representation']


def image(teacher: Any) -> jax.ShapeDtypeStruct:
  """Returns the shape of one image of a teacher."""
  return jax.ShapeDtypeStruct(
      (1, *teacher.resolution, teacher.preprocess.channels), 'float32')


def add_params(
    config: supervised.DistillConfig, params: types.Params, model: nn.Module,
    teacher: Any, key: PRNGKeyArray, images: jax.ShapeDtypeStruct,
) -> types.Params:
  """Adds zeros for the teacher's parameters, and those of the projection.

  All are boxed with the names of their axes.
  """
  boxed = jax.eval_shape(lambda: models.init(
      _module(teacher), jax.random.key(0), image(teacher)))
  result = {**params, supervised.TEACHER: jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), boxed)}
  if config.feature_weight:
    own = jax.eval_shape(
        model.apply, {'params': nn.unbox(params)}, jax.ShapeDtypeStruct(
            (1, *images.shape[1:]), 'float32'))['representation']
    _, theirs = jax.eval_shape(functools.partial(
        outputs, teacher), teacher.shapes, image(teacher))
    kernel = nn.initializers.lecun_normal()(
        key, (own.shape[-1], theirs.shape[-1]))
    result[supervised.PROJECTOR] = {
        'kernel': nn.LogicallyPartitioned(kernel, ('width', None))}
  return result


def _module(teacher: Any) -> nn.Module:
  return models.build(teacher.config, num_classes=teacher.config.num_classes)


class Distillation:
  """Loss of a model with labels and a teacher.

  Attributes:
    measures: 'accuracy' on the labels, 'agreement' with the teacher and, with
      `feature_weight`, 'features', the distance of the representations.
  """

  def __init__(
      self, config: supervised.DistillConfig, model: nn.Module, teacher: Any,
      *, mean: float | tuple[float, ...], std: float | tuple[float, ...],
      class_weights: Float[np.ndarray, 'classes'] | None = None,
  ):
    """Initialises the loss; `mean` and `std` normalise the model's images."""
    if config.weight == 1 and getattr(
        getattr(model, 'config', None), 'distill_token', False):
      raise ValueError(
          'objective.weight is 1, so that the head of the class token would '
          'learn nothing. Use --config.objective.weight=0.5, as in DeiT.')
    self._config, self._teacher = config, teacher
    self._mean, self._std = (np.asarray(x, np.float32) for x in (mean, std))
    self._labelled = supervised.Supervised(
        config, model, multi_label=False, class_weights=class_weights)
    self.measures: tuple[str, ...] = (
        *self._labelled.measures, 'agreement',
        *['features'] * bool(config.feature_weight))

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray,
      train: bool = True,
  ) -> tuple[Float[Array, 'batch'], Mapping[str, Float[Array, 'batch']]]:
    """Returns the loss and measures of each example; see `Supervised`."""
    config = self._config
    found = self._labelled.outputs(params, batch, key, train)
    loss, measures = self._labelled.measure(
        found.get('cls_logits', found['logits']), batch['label'])
    own = found.get('distill_logits', found['logits'])
    targets, representation = jax.lax.stop_gradient(outputs(
        self._teacher, params[supervised.TEACHER],
        self._images(batch['image'])))
    measures['agreement'] = (
        own.argmax(-1) == targets.argmax(-1)).astype(jnp.float32)
    loss = (1 - config.weight) * loss + config.weight * imitation(
        own, targets, hard=config.targets == 'hard',
        temperature=config.temperature)
    if config.feature_weight:
      projected = found['representation'].astype(
          jnp.float32) @ params[
              supervised.PROJECTOR]['kernel']
      measures['features'] = jnp.square(
          projected - representation.astype(jnp.float32)).mean(-1)
      loss += config.feature_weight * measures['features']
    return loss, measures

  def _images(
      self, images: Float[Array, 'batch height width channels'],
  ) -> Float[Array, 'batch new_height new_width channels']:
    """Returns the same images in the size and scale of the teacher's."""
    mean, std = (np.asarray(x, np.float32) for x in (
        self._teacher.preprocess.mean, self._teacher.preprocess.std))
    scaled = (images * self._std + self._mean - mean) / std
    shape = (len(images), *image(self._teacher).shape[1:])
    return scaled if scaled.shape == shape else jax.image.resize(
        scaled, shape, 'bilinear')


def imitation(
    own: Float[Array, 'batch classes'],
    targets: Float[Array, 'batch classes'], *, hard: bool, temperature: float,
) -> Float[Array, 'batch']:
  """Returns the teacher's term of the loss, for logits of both."""
  own, targets = (x.astype(jnp.float32) for x in (own, targets))
  if hard:
    return optax.softmax_cross_entropy_with_integer_labels(
        own, targets.argmax(-1))
  return temperature**2 * optax.losses.kl_divergence_with_log_targets(
      jax.nn.log_softmax(own / temperature),
      jax.nn.log_softmax(targets / temperature))
