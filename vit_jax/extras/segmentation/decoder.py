"""Segmentation: a decoder of patch tokens as the head of any ViT."""

from collections.abc import Sequence
import functools
from typing import Any

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.exceptions import UserError
from vit_jax.models import layers
from vit_jax.models import vit


class Decoder(nn.Module):
  """Logits of pixels from patch tokens; see `DecoderConfig`."""
  config: vit.ViTConfig

  @nn.compact
  def __call__(
      self, patches: Sequence[Float[Array, 'batch rows columns width']],
  ) -> Float[Array, 'batch height image_width classes']:
    """Returns logits for the patch tokens of one or several layers."""
    c = self.config
    decoder = c.decoder
    assert decoder is not None
    if decoder.layers:
      patches = [layers.layer_norm(c, f'norm_of_layer_{number}')(tokens)
                 for number, tokens in zip(decoder.layers, patches)]
    x = jnp.concatenate(patches, axis=-1)
    for stage, width in enumerate(decoder.widths, start=1):
      # A transposed convolution without overlap.
      x = self._spread(layers.dense(
          (2, 2, width), ('width', None, None, None), f'up_{stage}',
          dtype=c.compute_dtype)(x))
      x = nn.Conv(
          width, (3, 3), use_bias=False, dtype=c.compute_dtype,
          kernel_init=nn.with_logical_partitioning(
              nn.initializers.lecun_normal(), (None, None, None, 'width')),
          name=f'conv_{stage}')(x)
      x = layers.gelu(layers.layer_norm(c, f'norm_{stage}')(x), c.gelu)
    return self._spread(layers.dense(
        (decoder.cells, decoder.cells, c.num_classes),
        ('width', None, None, 'classes'), 'dense', dtype=jnp.float32,
        kernel=nn.initializers.zeros,
        bias=nn.initializers.constant(c.head_bias))(x))

  def _spread(
      self, cells: Float[Array, 'batch rows columns height width channels'],
  ) -> Float[Array, 'batch rows_height columns_width channels']:
    return einops.rearrange(cells, 'b r c i j w -> b (r i) (c j) w')


def attach(module: vit.ViT) -> vit.ViT:
  """Returns a ViT whose head is the decoder of its config.

  Raises:
    UserError: for a model without patch tokens, or layers that it lacks.
  """
  config: Any = module.config
  if not config.has_tokens:
    raise UserError(
        'model.decoder needs the patch tokens of a ViT, but the model is a '
        f'{config.name}. Leave it out, or choose another model.variant.')
  wanted = config.decoder.layers
  if wanted and (config.axial or max(wanted) > config.num_layers):
    raise UserError(
        f'decoder.layers is {wanted}, but must be numbers from 1 to depth='
        f'{config.num_layers}, of layers without axial attention.')
  return _with_decoder(type(module))(**{  # type: ignore[arg-type]
      name: getattr(module, name) for name in type(module).__dataclass_fields__
      if name not in ('parent', 'name')})


@functools.cache
def _with_decoder(kind: type[vit.ViT]) -> type[vit.ViT]:
  """Returns a ViT, or another model like it, whose head is the decoder."""

  class Segmenter(kind):  # type: ignore[misc, valid-type]

    def encode(
        self, tokens: jax.Array, grid: tuple[int, int], *, train: bool,
        capture: vit.Capture,
    ) -> tuple[jax.Array, dict[str, Any]]:
      wanted: vit.Capture = capture or (
          'tokens' if self.config.decoder.layers else False)
      return super().encode(tokens, grid, train=train, capture=wanted)

    def classify(
        self, tokens: jax.Array, representation: jax.Array,
        captured: dict[str, Any], grid: tuple[int, int],
    ) -> dict[str, jax.Array]:
      del representation
      c = self.config
      of_layers = [captured['after_mlp'][number - 1]
                   for number in c.decoder.layers] or [tokens]
      return {'logits': Decoder(c, name='head')([
          x[:, c.num_prefix:].reshape(-1, *grid, c.width)
          for x in of_layers])}

  return Segmenter
