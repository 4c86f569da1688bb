"""ViT with a projector, for objectives that compare embeddings of views.

The parameters are the ViT's, under the same names, and `projector/`,
which fine-tuning drops. Local views have their own grid of patches, to which
position embeddings are interpolated.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import layers
from vit_jax.models import model_config


class JointEmbedding(nn.Module):
  """ViT that also embeds views of images.

  The head is not trained; it is kept so that the model loads like any ViT.

  Attributes:
    config: the ViT.
    grid: rows and columns of patches of an image.
    hidden: width of the projector.
    outputs: length of an embedding.
  """
  config: model_config.ModelConfig
  grid: tuple[int, int]
  hidden: int
  outputs: int

  def setup(self):
    self.vit = self.config.build(grid=self.grid)
    # Keeps the parameters of the ViT at the top level.
    nn.share_scope(self, self.vit)
    self.projector = _Projector(
        self.hidden, self.outputs, self.config.compute_dtype)

  def __call__(
      self,
      images: Float[Array, 'batch height width channels'],
      *,
      train: bool = False,
      capture: bool = False,
      global_views: Float[Array, 'batch views height width channels'] | None
      = None,
      local_views: Float[Array, 'batch local size size channels'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model to images, or to views of them only.

    Args:
      images: preprocessed images.
      train: see `vit.ViT`.
      capture: see `vit.ViT`; without views only.
      global_views: views of each image.
      local_views: additional views of another size.

    Returns:
      Without views, the outputs of `vit.ViT` for the images, and their
      embeddings `predictions` [batch, outputs]. With views, `predictions`
      [batch, views, outputs] only: global views first, then local ones.
    """
    if global_views is None:
      outputs = self.vit(images, train=train, capture=capture)
      return {**outputs,
              'predictions': self.projector(outputs['representation'])}
    predictions = []
    for views in (global_views, local_views):
      if views is not None:
        rows = views.reshape(-1, *views.shape[2:])
        embedded = self.projector(self.vit(rows, train=train)['representation'])
        predictions.append(embedded.reshape(*views.shape[:2], -1))
    return {'predictions': jnp.concatenate(predictions, axis=1)}


class _Projector(nn.Module):
  """MLP with two hidden layers.

  Unlike in LeJEPA's code, there is no batch norm: embeddings of an example do
  not depend on others, so a batch can be embedded in microbatches.
  """
  hidden: int
  outputs: int
  dtype: Any

  @nn.compact
  def __call__(
      self, inputs: Float[Array, 'rows width'],
  ) -> Float[Array, 'rows outputs']:
    hidden = nn.gelu(layers.dense(
        self.hidden, ('width', 'mlp'), 'first', dtype=self.dtype)(inputs))
    hidden = nn.gelu(layers.dense(
        self.hidden, ('mlp', 'width'), 'second', dtype=self.dtype)(hidden))
    return layers.dense(
        self.outputs, ('width', None), 'out', dtype=jnp.float32)(
            hidden.astype(jnp.float32))
