"""The settings of a Vision Transformer."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp

from vit_jax.models import variants

DIMENSIONS = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')
# With them, what the same parameters would compute otherwise without.
ARCHITECTURE = (*DIMENSIONS, 'name', 'pooling', 'gelu', 'layer_norm_epsilon',
                'final_norm', 'qkv_bias')


@dataclasses.dataclass(frozen=True)
class ViTConfig:
  """Section `model` of a config, for `name: 'vit'`.

  Attributes:
    name: always 'vit'.
    variant: 'B/16' and the like; fills in every dimension left at 0.
    width: D, the length of a token.
    depth: L, the number of layers.
    mlp_dim: hidden units of the MLP.
    num_heads: attention heads; divides `width`.
    patch: side of a patch in pixels, or (height, width).
    num_classes: outputs of the head; 0 takes the data set's.
    pooling: 'cls' token, 'average' of the tokens, or 'attention' with a learned
      query (MAP head, arXiv 2106.04560).
    representation_layer: a dense tanh layer before the head, as in the paper's
      pre-training (section 3.1); off for fine-tuning.
    head_bias: initial bias of the head; -10 with a sigmoid loss and very many
      classes starts training at a low loss. The head's kernel starts at zero.
    dropout: after every dense layer but the qkv projections, and after adding
      position embeddings (appendix B.1, table 3).
    attention_dropout: on the attention weights.
    stochastic_depth: rate at the last layer, growing linearly from 0.
    gelu: 'tanh' approximation as the paper's code, or 'exact' as PyTorch's.
    layer_norm_epsilon: added to the variance.
    final_norm: layer norm after the last layer (equation 4).
    qkv_bias: whether queries, keys and values have biases.
    dtype: of activations and matrix products. Parameters, layer-norm
      statistics, softmax, head and loss are float32 always.
    remat: what the backward pass computes again to save memory: 'none',
      'dots' (all but matrix products with parameters) or 'full'.
    unroll: layers compiled side by side in a scan step; `depth` unrolls all.
  """
  name: Literal['vit'] = 'vit'
  variant: str = ''
  width: int = 0
  depth: int = 0
  mlp_dim: int = 0
  num_heads: int = 0
  patch: int | tuple[int, int] = 0
  num_classes: int = 0
  pooling: Literal['cls', 'average', 'attention'] = 'cls'
  representation_layer: bool = False
  head_bias: float = 0.0
  dropout: float = 0.0
  attention_dropout: float = 0.0
  stochastic_depth: float = 0.0
  gelu: Literal['tanh', 'exact'] = 'tanh'
  layer_norm_epsilon: float = 1e-6
  final_norm: bool = True
  qkv_bias: bool = True
  dtype: Literal['float32', 'bfloat16'] = 'float32'
  remat: Literal['none', 'dots', 'full'] = 'none'
  unroll: int = 1

  def __post_init__(self):
    for rate in ('dropout', 'attention_dropout', 'stochastic_depth'):
      if not 0 <= getattr(self, rate) < 1:
        raise ValueError(f'{rate} is a probability in [0, 1), but is '
                         f'{getattr(self, rate)}.')
    for count in (*DIMENSIONS, 'num_classes'):
      value = getattr(self, count)
      if min(value if isinstance(value, tuple) else (value,)) < 0:
        raise ValueError(f'{count} cannot be negative, but is {value}.')
    if self.unroll < 1:
      raise ValueError(f'unroll must be at least 1, but is {self.unroll}.')
    if self.width and self.num_heads and self.width % self.num_heads:
      raise ValueError(
          f'width {self.width} does not divide into {self.num_heads} heads.')

  @property
  def patch_shape(self) -> tuple[int, int]:
    """Height and width of a patch, in pixels."""
    return (self.patch, self.patch) if isinstance(self.patch, int) else (
        self.patch)

  @property
  def head_dim(self) -> int:
    """Length of a query."""
    return self.width // self.num_heads

  @property
  def compute_dtype(self) -> jnp.dtype:
    """`dtype`, as JAX names it."""
    return jnp.dtype(self.dtype)


def complete(config: ViTConfig) -> ViTConfig:
  """Fills dimensions left at 0 from the variant's row of the size table.

  Raises:
    ValueError: if the variant is unknown, or there is none and a dimension is
      missing.
  """
  given: dict[str, Any] = {}
  if config.variant:
    size, patch = variants.parse_variant(config.variant)
    given = {**dataclasses.asdict(size), 'patch': patch}
  values: dict[str, Any] = {
      name: getattr(config, name) or given.get(name) for name in DIMENSIONS}
  missing = [name for name, value in values.items() if not value]
  if missing:
    raise ValueError(
        f'The model has neither a variant nor {", ".join(missing)}. Set '
        'model.variant to e.g. "B/16", or each dimension.')
  return dataclasses.replace(config, **values)
