"""Base class of the config records of models.

A model of your own extends `ModelConfig` by its settings and `build`. Its
module is called as module(images, train=False) and returns at least `logits`
[batch, classes] and `representation` [batch, width], the input of the head. A
head called `head`, with the layer `dense`, is replaced by fine-tuning.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax.numpy as jnp

from vit_jax import fields
from vit_jax.exceptions import UserError
from vit_jax.models import positions

switch = fields.switch


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
  """Section `model.decoder`: classes of pixels from the tokens of patches.

  Logits have the resolution of the patches, times 2 for each of `widths`, times
  `cells`. Without `widths`, the decoder is one linear layer.

  Attributes:
    widths: channels of the upsampling stages. Each doubles the resolution with
      a transposed convolution, followed by a 3 x 3 convolution, a layer norm
      and a GELU.
    cells: predictions along each side of a position of the last stage.
    layers: layers, from 1, whose patch tokens are concatenated, each after a
      layer norm of its own; by default the last one, after the final norm.
  """
  widths: tuple[int, ...] = ()
  cells: int = 4
  layers: tuple[int, ...] = ()

  def __post_init__(self):
    if min((self.cells, *self.widths, *self.layers)) < 1:
      raise UserError(
          'decoder.cells, widths and layers must be at least 1, but are '
          f'{self.cells}, {self.widths} and {self.layers}.')


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Section `model`: fields that every model has.

  Attributes:
    name: the model, one of `registry.MODELS` or 'module:Name' (docs/extend.md);
      'vit' by default, unless `variant` is another.
    variant: name of the dimensions, such as 'B/16' or 'R50x1'; it sets those
      that are not given, and further settings.
    num_classes: outputs of the head; 0 uses the classes of the dataset.
    head_bias: initial bias of the head; -10 gives a low initial sigmoid loss
      with many classes. The kernel of the head starts at zero.
    decoder: decoder of a segmentation model, whose logits are those of pixels,
      not of the image; None for none. It is the head of the model.
    dtype: type of activations and matrix products, including attention logits.
      Parameters, norm statistics, softmax, head and loss are always float32.
      'auto' is bfloat16 on TPUs and GPUs, and float32, which is faster there,
      on CPUs; the run keeps the dtype it starts with.
  """
  name: str = switch('')
  variant: str = ''
  num_classes: int = 0
  head_bias: float = 0.0
  decoder: DecoderConfig | None = switch(None)
  dtype: Literal['auto', 'float32', 'bfloat16'] = 'float32'

  # Sizes without which a model cannot be built.
  dimensions: ClassVar[tuple[str, ...]] = ()
  # Answers of a model without tokens, or without the feature.
  num_layers: ClassVar[int] = 0  # Whose intermediates can be captured.
  num_prefix: ClassVar[int] = 0  # Tokens before those of patches.
  has_cls: ClassVar[bool] = False
  distill_token: ClassVar[bool] = False
  axial: ClassVar[bool] = False
  attention: ClassVar[str] = 'plain'
  remat: ClassVar[str] = 'none'
  has_tokens: ClassVar[bool] = False  # Outputs of layers, with attention.
  has_patches: ClassVar[bool] = False  # Tokens of patches of the image itself.
  # Whether the encoder takes any subset of the patches: positions are added
  # once, before it. Whether a compiled function can change their grid.
  takes_any_tokens: ClassVar[bool] = False
  takes_any_grid: ClassVar[bool] = False
  # Last parts of the names of parameters that depend on the grid.
  position_params: ClassVar[tuple[str, ...]] = ('positions',)

  def __post_init__(self):
    fields.check_range(self, 'num_classes')

  @property
  def compute_dtype(self) -> jnp.dtype:
    """`dtype` as a JAX dtype."""
    return jnp.dtype(self.dtype)

  @property
  def output_width(self) -> int:
    """Width of the representation."""
    raise NotImplementedError

  def build(self, *, grid: tuple[int, int] | None = None) -> nn.Module:
    """Returns the module.

    `grid`: rows and columns of the positions, if images may have another size.
    """
    raise NotImplementedError

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the rows and columns of patch tokens of an image.

    Raises a `UserError` if the image (height, width) does not divide.
    """
    del image_shape
    return 1, 1

  def check_complete(self) -> None:
    """Raises a `UserError` if a dimension is missing."""
    missing = [name for name in self.dimensions if not getattr(self, name)]
    if missing:
      raise UserError(
          f'The model has neither a variant nor {", ".join(missing)}. Set '
          'model.variant to e.g. "B/16", or each dimension, or start from a '
          'checkpoint: --config.init.checkpoint=RUN.')

  def describe(self) -> str:
    """Returns the variant, or the dimensions."""
    return self.variant or ', '.join(
        f'{name} {getattr(self, name)}' for name in self.dimensions
    ) or self.name

  def describe_kind(self) -> str:
    """Returns the name of the model, and settings that are not the default."""
    settings = fields.non_default(self)
    return ', '.join([f'model.name={self.name!r}', *(
        f'model.{name}={value!r}' for name, value in settings.items()
        if name not in (*self.dimensions, 'decoder'))])

  def without_fused_kernels(self, platform: str = '') -> 'ModelConfig':
    """Returns the config without the kernels of other platforms."""
    kernels = {'gpu': ('cudnn',), 'tpu': ('splash', 'auto')}.get(platform, ())
    changes: dict[str, Any] = {'attention': 'plain'}
    return self if self.attention in ('plain', *kernels) else (
        dataclasses.replace(self, **changes))

  def resize_positions(
      self, name: str, array: Any, *, old_grid: tuple[int, int],
      new_grid: tuple[int, int], method: positions.Interpolation = 'linear',
  ) -> Any:
    """Returns a parameter interpolated to another grid of patches.

    Parameters that do not depend on the grid are returned unchanged. `name` is
    a path such as 'encoder/layers/positions'.

    Raises:
      UserError: if it cannot be interpolated.
    """
    if name.split('/')[-1] not in self.position_params or (
        tuple(old_grid) == tuple(new_grid)):
      return array
    return self._resized(
        name.split('/')[-1], array, old_grid=old_grid, new_grid=new_grid,
        method=method)

  def _resized(self, name: str, array: Any, **options: Any) -> Any:
    """Interpolates one of `position_params`."""
    del name
    return positions.resize_positions(array, **options)
