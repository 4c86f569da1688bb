"""Masked patch prediction (section 4.6 and appendix B.1.2 of the paper).

Half of the patch embeddings of an image are corrupted, and the output token of
each corrupted patch predicts its pixels. No labels are used.

Choices where the paper is not explicit: "a random other patch embedding" comes
from the same image, so that images stay independent of each other and of the
devices; and every image has the same number of corrupted patches of each kind,
so that predictions have a fixed shape.
"""

import dataclasses
import math
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from vit_jax import fields
from vit_jax import metrics
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.models import masked_patch as masked_patch_model
from vit_jax.models import model_config
from vit_jax.objectives import objective
from vit_jax.objectives import patch_targets

# Results of `MaskingConfig.corrupt`.
_INPUTS = ('indices', 'sources', 'visible')


@dataclasses.dataclass(frozen=True)
class MaskingConfig(objective.ObjectiveConfig):
  """Fields and methods of objectives that predict masked patches.

  Attributes:
    target: predicted values of a masked patch.
  """
  target: Any = ''

  def decoder(self, model: Any) -> Any:
    """Returns the config of the decoder of a model; None for a single layer.

    Raises a `UserError` if the model is not supported.
    """
    del model
    return None

  def corrupt(
      self, key: PRNGKeyArray, *, batch_size: int, patches: int,
  ) -> dict[str, Int[Array, 'batch ...']]:
    """Samples the inputs of `models.masked_patch.MaskedPatch` of a batch."""
    raise NotImplementedError

  def metrics(self) -> tuple[objective.Metric, ...]:
    return (objective.Metric('color_accuracy', is_fraction=True),) if (
        self.target in patch_targets.SIDES) else ()

  def build_model(
      self, model: model_config.ModelConfig, *,
      image_shape: tuple[int, int, int], num_classes: int,
  ) -> nn.Module:
    """Returns the model with the prediction layer of the target.

    Raises:
      UserError: for a ResNet or hybrid, too few patches, or an image size that
        is not divisible by the grid.
    """
    what = f'objective {self.name}'
    if not model.has_patches:
      raise UserError(
          f'{what} needs a ViT on patches of the image, but the model is a '
          f'{model.name}: the receptive field of a ResNet leaks the pixels of '
          'a patch to its neighbours. Choose another model.variant, such as '
          'B/16.')
    height, width, channels = image_shape
    rows, columns = model.grid((height, width))
    if height % rows or width % columns:
      raise UserError(
          f'{what}: an image of {height}x{width} does not divide into the '
          f'{rows}x{columns} patches of the model. Choose another '
          'data.resolution.')
    if channels > 3 and self.target in patch_targets.SIDES:
      raise UserError(
          f'objective.target {self.target} has {patch_targets.LEVELS} ** '
          f'{channels} classes with {channels} channels, which are too many. '
          'Use --config.objective.target=patch.')
    # Raises for too few patches.
    jax.eval_shape(lambda: self.corrupt(
        jax.random.key(0), batch_size=1, patches=rows * columns))
    return masked_patch_model.MaskedPatch(
        dataclasses.replace(model, num_classes=num_classes),
        patch_targets.num_outputs(
            self.target, (height // rows, width // columns, channels)),
        self.decoder(model))

  def build(self, context: objective.Context) -> 'MaskedPatch':
    return MaskedPatch(self, context)


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig(MaskingConfig):
  """Section `objective` of a config with `name: 'masked_patch'`.

  Attributes:
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
    fields.check_range(self, 'corrupted', above=0, most=1)
    if min(self.shares) < 0 or not math.isclose(sum(self.shares), 1):
      raise UserError(
          'shares must be three fractions (mask, other patch, kept) '
          f'with sum 1, but are {self.shares}.')

  def corrupt(
      self, key: PRNGKeyArray, *, batch_size: int, patches: int,
  ) -> dict[str, Int[Array, 'batch ...']]:
    masked, swapped, kept = counts(self, patches)
    order_key, other_key = jax.random.split(key)
    own = jnp.broadcast_to(jnp.arange(patches), (batch_size, patches))
    indices = jax.random.permutation(
        order_key, own, axis=1, independent=True)[:, :masked + swapped + kept]
    # Any other patch: an offset of 1 to patches - 1, modulo patches.
    step = jax.random.randint(
        other_key, (batch_size, swapped), 1, max(patches, 2))
    at_swap = indices[:, masked:masked + swapped]
    rows = jnp.arange(batch_size)[:, None]
    sources = own.at[rows, indices[:, :masked]].set(patches)
    sources = sources.at[rows, at_swap].set((at_swap + step) % patches)
    return {'indices': indices, 'sources': sources}


def counts(config: MaskedPatchConfig, patches: int) -> tuple[int, int, int]:
  """Returns the numbers of masked, swapped and kept patches of an image.

  Raises:
    UserError: without corrupted patches, or without another patch to swap.
  """
  corrupted = round(config.corrupted * patches)
  if not corrupted:
    raise UserError(
        f'objective.corrupted: {config.corrupted} of {patches} patches rounds '
        'to 0. Use a larger fraction or smaller patches.')
  masked = round(config.shares[0] * corrupted)
  swapped = min(round(config.shares[1] * corrupted), corrupted - masked)
  if swapped and patches < 2:
    raise UserError(
        'objective.shares: an image of one patch has no other patch to swap '
        'with. Use smaller patches.')
  return masked, swapped, corrupted - masked - swapped


class MaskedPatch(objective.Objective):
  """Loss of the predictions of masked patches, with targets of the config.

  Its metric is 'color_accuracy', for targets that are colours.
  """

  def __init__(self, config: MaskingConfig, context: objective.Context):
    """Initialises the loss."""
    self._config, self._context = config, context
    self.metrics = metrics.names(config.metrics())

  def draw(
      self, images: objective.Images, key: PRNGKeyArray,
  ) -> dict[str, jax.Array]:
    """Returns masked patches, and the embeddings that replace them."""
    return self._config.corrupt(
        jax.random.split(key)[0], batch_size=images.shape[0],
        patches=math.prod(self._grid(images)))

  def __call__(
      self, params: types.Params, batch: types.Batch, key: PRNGKeyArray, *,
      train: bool = True,
  ) -> objective.Losses:
    images = batch['image']
    inputs = ({name: batch[name] for name in _INPUTS if name in batch}
              or self.draw(images, key))
    predictions = self._context.apply(
        params, images, jax.random.split(key)[1], train=train,
        **inputs)['predictions']
    targets = patch_targets.compute(
        self._config.target, patch_targets.split(images, self._grid(images)),
        self._context)
    return patch_targets.loss(
        self._config.target, predictions, jnp.take_along_axis(
            targets, inputs['indices'][..., None], axis=1))

  def _grid(self, images: jax.Array) -> tuple[int, int]:
    return self._context.model.config.grid((images.shape[1], images.shape[2]))
