"""Config of the decoder of a segmentation model."""

import dataclasses

from vit_jax.exceptions import UserError


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
