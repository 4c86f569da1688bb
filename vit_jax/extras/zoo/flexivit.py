"""FlexiViT: one model for several patch sizes (arXiv 2212.08013, section 3).

Each training step draws one of the sizes for the whole batch. The model has
the parameters of its own patch size, `model.patch`: for another one, the patch
filters are resized by their pseudo-inverse, and the position embeddings to
the grid. Evaluation uses the model as it is.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from vit_jax import exceptions
from vit_jax import fields
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.objectives import objective
from vit_jax.objectives import supervised

_DRAWN = 'patch_size_index'
Loss = Callable[[types.Params, types.Batch, PRNGKeyArray], objective.Losses]


@dataclasses.dataclass(frozen=True)
class FlexivitConfig(supervised.SupervisedConfig):
  """Section `objective` of a config with `name: 'flexivit'`.

  The other fields define the loss on the labels.

  Attributes:
    patch_sizes: sides of the patches, in pixels; each training step draws one.
      Evaluation and logged FLOPs are for `model.patch`.
  """
  name: Literal['flexivit'] = 'flexivit'  # type: ignore[assignment]
  patch_sizes: tuple[int, ...] = ()

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(self, 'patch_sizes', low=1)
    if not self.patch_sizes:
      raise UserError(
          'flexivit needs the patch sizes to train with: '
          '--config.objective.patch_sizes=8,12,16.')

  def without_teacher(self) -> supervised.SupervisedConfig:
    """Returns the objective for evaluation, of images of any size."""
    return supervised.SupervisedConfig(
        loss=self.loss, label_smoothing=self.label_smoothing,
        class_weights=self.class_weights)

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    """Returns the model, whose parameters are those of all patch sizes.

    Raises:
      UserError: if its patches or positions cannot be resized, or a patch size
        does not divide the images.
    """
    position = getattr(model, 'position', '')
    if model.name not in ('vit', 'backbone') or not model.has_patches or (
        position not in ('learned', 'sincos', 'none')):
      raise UserError(
          'objective.patch_sizes needs a model of the kind vit or backbone, '
          "with patches of the image and position 'learned', 'sincos' or "
          f"'none', but model.name={model.name} ({model.describe()}) has "
          f'position={position!r}. Choose another model.')
    for patch in self.patch_sizes:
      with exceptions.within('objective.patch_sizes'):
        dataclasses.replace(model, patch=patch).grid(image_shape[:2])  # type: ignore[call-arg]
    return super().build_model(
        model, image_shape=image_shape, num_classes=num_classes)

  def build(self, context: objective.Context) -> objective.Objective:
    return Flexivit(self, context)


class Flexivit(supervised.Supervised):
  """Supervised loss whose training draws a patch size for each batch."""

  def __init__(self, config: FlexivitConfig, context: objective.Context):
    """Initialises the loss."""
    super().__init__(config, context)
    self._drawn = draw_one([
        functools.partial(self._loss, dataclasses.replace(
            context, model=with_patch(context.model, patch)))
        for patch in config.patch_sizes])
    self._num_sizes = len(config.patch_sizes)

  def draw(
      self, images: objective.Images, key: PRNGKeyArray,
  ) -> dict[str, jax.Array]:
    """Returns the index of the patch size, the same for each image."""
    index = jax.random.randint(key, (), 0, self._num_sizes)
    return {_DRAWN: jnp.broadcast_to(index, images.shape[:1])}

  def extra_inputs(
      self, image: jax.ShapeDtypeStruct) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns nothing: the model has no input besides the image."""
    return {}

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    if not train or _DRAWN not in batch:
      return super().__call__(params, batch, key, train=train)
    inputs = {name: batch[name] for name in ('image', 'label', 'mask')}
    return self._drawn(batch[_DRAWN][0], params, inputs, key)

  def _loss(
      self, context: objective.Context, params: types.Params,
      batch: types.Batch, key: PRNGKeyArray,
  ) -> objective.Losses:
    """Returns the loss with the patch size of a context."""
    outputs = context.apply(params, batch['image'], key, train=True)
    return self.measure(outputs['logits'], batch['label'])


def with_patch(model: Any, patch: int) -> Any:
  """Returns a model with the same parameters for another patch size."""
  if hasattr(model, 'lora'):  # Adapters around the model.
    return model.clone(model=with_patch(model.model, patch))
  config = backbone_config.general(model.config)
  return factory.build(
      config, num_classes=config.num_classes, patch=(patch, patch))


def draw_one(versions: Sequence[Loss]) -> Callable[..., objective.Losses]:
  """Returns the function (index, params, batch, key) of one of several losses.

  All are compiled, and one is run. Its gradient with respect to the parameters
  is computed beside it: the derivative of a switch would keep the activations
  of all versions. This is the gradient of the sum of losses of real images,
  scaled by the mean of their weights, so it is only right for a mean or sum
  over real images, as that of the training step.
  """
  def with_gradient(version: Loss) -> Callable[..., Any]:
    def total(
        trained: Any, frozen: Any, batch: types.Batch, key: PRNGKeyArray,
    ) -> tuple[jax.Array, objective.Losses]:
      found = version(_merge(trained, frozen), batch, key)
      return jnp.where(batch['mask'] > 0, found[0], 0).sum(), found

    def gradient(*args: Any) -> tuple[objective.Losses, Any]:
      grads, found = jax.grad(total, has_aux=True)(*args)
      return found, grads

    return gradient

  gradients = [with_gradient(version) for version in versions]

  @jax.custom_vjp
  def loss(
      index: Int[Array, ''], params: types.Params, batch: types.Batch,
      key: PRNGKeyArray,
  ) -> objective.Losses:
    return jax.lax.switch(index, versions, params, batch, key)

  def forward(
      index: Any, params: Any, batch: Any, key: Any,
  ) -> tuple[objective.Losses, Any]:
    # Frozen parameters have no backward pass.
    trained = jax.tree.map(lambda x: x.value if x.perturbed else None, params)
    frozen = jax.tree.map(lambda x: None if x.perturbed else x.value, params)
    index, batch, key = jax.tree.map(lambda x: x.value, (index, batch, key))
    found, grads = jax.lax.switch(index, gradients, trained, frozen, batch, key)
    return found, (grads, batch['mask'] > 0)

  def backward(
      residuals: Any, cotangents: tuple[jax.Array, Any],
  ) -> tuple[None, Any, None, None]:
    grads, is_real = residuals
    weights = jnp.where(is_real, cotangents[0], 0).sum()
    weight = weights / jnp.maximum(is_real.sum(), 1)
    return None, jax.tree.map(lambda g: weight * g, grads), None, None

  loss.defvjp(forward, backward, symbolic_zeros=True)
  return loss


def _merge(trained: Any, frozen: Any) -> types.Params:
  """Returns a tree of two that are None where the other one is not."""
  return jax.tree.map(
      lambda a, b: b if a is None else a, trained, frozen,
      is_leaf=lambda x: x is None)
