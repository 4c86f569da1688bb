"""The settings of a Vision Transformer."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp

from vit_jax.models import architecture
from vit_jax.models import resnet_config
from vit_jax.models import variants

_switch, _ANY = architecture.switch, architecture.ANY

DIMENSIONS = ('width', 'depth', 'mlp_dim', 'num_heads', 'patch')


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
    patch: side of a patch, or (height, width), in pixels; on a backbone, in
      places of its feature map.
    backbone: the convolutional network of a hybrid, whose feature map takes the
      place of the image; None cuts the image itself.
    num_classes: outputs of the head; 0 takes the data set's.

    cls: whether there is a class token; None if `pooling` is 'cls'.
    registers: learned tokens after the class token, which no output is read
      from (arXiv 2309.16588). They have no position.
    position: embeddings of where a patch is (appendix D.4). 'learned' for each
      place of the sequence (1-D); 'none'; '2d', the concatenation of one for
      its row and one for its column; 'relative', learned for each distance in
      the sequence, which attention adds to its logits; 'sincos', fixed waves of
      row and column (arXiv 2104.02057), with nothing to learn.
    position_at: where they are added: at the 'stem', before every one of the
      'layers', each with its own, or before every layer the same, 'shared'.
      Relative ones have no such place: each layer's attention has its own.
    position_cls: whether the class token has a position embedding.

    axial: each layer is two, of attention within rows and within columns, each
      with an MLP (appendix D.6). There is then no token beside the patches'.
    parallel: attention and MLP of a layer see the same tokens, after one norm,
      and are added together (arXiv 2302.05442, section 2.1).
    qkv_bias: whether queries, keys and values have biases.
    qk_norm: a norm of each head's queries and keys, over `head_dim`, before
      they meet (the same section): what keeps attention logits from growing.
    layer_scale: initial factor of each channel of a branch before it is added
      (arXiv 2103.17239); None has no factors.
    gelu: 'tanh' approximation as the paper's code, or 'exact' as PyTorch's.
    norm: of 'layer', or 'rms' without centering and bias (arXiv 1910.07467).
    layer_norm_epsilon: added to the variance.
    final_norm: layer norm after the last layer (equation 4).

    pooling: 'cls' token, 'average' of the patches' tokens, or 'attention' to
      them by a learned query (MAP head, arXiv 2106.04560).
    pool_norm: layer norm after pooling (timm's `fc_norm`).
    representation_layer: a dense tanh layer before the head, as in the paper's
      pre-training (section 3.1); off for fine-tuning.
    head_bias: initial bias of the head; -10 with a sigmoid loss and very many
      classes starts training at a low loss. The head's kernel starts at zero.

    dropout: after every dense layer but the qkv projections, and after adding
      position embeddings (appendix B.1, table 3).
    attention_dropout: on the attention weights.
    stochastic_depth: rate at the last layer, growing linearly from 0.

    dtype: of activations and matrix products. Parameters, layer-norm
      statistics, softmax, head and loss are float32 always.
    attention: 'plain', as it is written; or on GPUs in bfloat16 'cudnn',
      NVIDIA's fused kernel (arXiv 2205.14135), which keeps no attention weights
      in memory. It is plain all the same where weights are asked for, with
      dropout on them or relative positions, and on anything but GPUs.
    remat: what the backward pass computes again rather than to write and read
      it: 'none'; 'attention', with norms, GELU and dropout, which is about 1 %
      of the operations, and where layers are scanned faster, too; 'dots' (all
      but matrix products with parameters, hardly different); or 'full', about
      22 % of them. See docs/performance.md.
    unroll: layers compiled side by side in a scan step; `depth` unrolls all.
  """
  name: Literal['vit'] = _switch('vit', exported=_ANY)
  variant: str = ''
  width: int = _switch(0, exported=_ANY)
  depth: int = _switch(0, exported=_ANY)
  mlp_dim: int = _switch(0, exported=_ANY)
  num_heads: int = _switch(0, exported=_ANY)
  patch: int | tuple[int, int] = _switch(0, exported=_ANY)
  backbone: resnet_config.BackboneConfig | None = _switch(
      None, exported={'npz': _ANY, 'timm': _ANY})
  num_classes: int = 0
  cls: bool | None = _switch(None, exported=_ANY)
  registers: int = _switch(0, exported={'timm': _ANY})
  position: Literal['learned', 'none', '2d', 'relative', 'sincos'] = _switch(
      'learned', exported={'npz': ('none',), 'timm': ('none',)})
  position_at: Literal['stem', 'layers', 'shared'] = _switch('stem')
  position_cls: bool = _switch(
      True, exported={'npz': _ANY, 'timm': _ANY})
  axial: bool = _switch(False)
  parallel: bool = _switch(False)
  qkv_bias: bool = _switch(True, exported=_ANY)
  qk_norm: bool = _switch(False)
  layer_scale: float | None = _switch(None, exported={'timm': _ANY})
  gelu: Literal['tanh', 'exact'] = _switch('tanh', exported=_ANY)
  norm: Literal['layer', 'rms'] = _switch('layer')
  layer_norm_epsilon: float = _switch(1e-6, exported=_ANY)
  final_norm: bool = _switch(
      True, exported={'npz': _ANY, 'timm': _ANY})
  pooling: Literal['cls', 'average', 'attention'] = _switch(
      'cls', exported={'npz': _ANY, 'timm': _ANY})
  pool_norm: bool = _switch(False, exported={'timm': _ANY})
  representation_layer: bool = False
  head_bias: float = 0.0
  dropout: float = 0.0
  attention_dropout: float = 0.0
  stochastic_depth: float = 0.0
  dtype: Literal['float32', 'bfloat16'] = 'float32'
  attention: Literal['plain', 'cudnn'] = 'plain'
  remat: Literal['none', 'attention', 'dots', 'full'] = 'attention'
  unroll: int = 1

  def __post_init__(self):
    for rate in ('dropout', 'attention_dropout', 'stochastic_depth'):
      if not 0 <= getattr(self, rate) < 1:
        raise ValueError(f'{rate} is a probability in [0, 1), but is '
                         f'{getattr(self, rate)}.')
    for count in (*DIMENSIONS, 'num_classes', 'registers'):
      value = getattr(self, count)
      if min(value if isinstance(value, tuple) else (value,)) < 0:
        raise ValueError(f'{count} cannot be negative, but is {value}.')
    if self.unroll < 1:
      raise ValueError(f'unroll must be at least 1, but is {self.unroll}.')
    if self.width and self.num_heads and self.width % self.num_heads:
      raise ValueError(
          f'width {self.width} does not divide into {self.num_heads} heads.')
    if self.attention == 'cudnn' and self.dtype == 'float32':
      raise ValueError(
          "attention 'cudnn' is of bfloat16, but dtype is 'float32'. Set dtype "
          "to 'bfloat16', or attention to 'plain'.")
    self._check_tokens()
    self._check_positions()

  def _check_tokens(self):
    if self.pooling == 'cls' and self.cls is False:
      raise ValueError(
          "pooling 'cls' needs the class token. Set pooling to 'average' or "
          "'attention', or leave cls out.")
    if self.axial and (self.has_cls or self.registers):
      raise ValueError(
          'Axial attention is within rows and columns: a class token or '
          "registers are in neither. Set pooling to 'average' or 'attention', "
          'cls to false and registers to 0.')

  def _check_positions(self):
    if (self.position in ('none', 'relative') and self.position_at != 'stem'):
      raise ValueError(
          f'position {self.position!r} adds nothing to the tokens, so '
          f'position_at cannot be {self.position_at!r}. Leave it out.')
    parts = {'2d': 2, 'sincos': 4}.get(self.position, 1)
    if self.width % parts:
      raise ValueError(
          f'position {self.position!r} needs a width that divides by {parts}, '
          f'but it is {self.width}.')

  @property
  def has_cls(self) -> bool:
    """Whether there is a class token."""
    return self.pooling == 'cls' if self.cls is None else self.cls

  @property
  def num_prefix(self) -> int:
    """Tokens before those of the patches."""
    return int(self.has_cls) + self.registers

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
        'model.variant to e.g. "B/16", or each dimension, or start from a '
        'checkpoint that says it: --config.init.checkpoint=RUN.')
  return dataclasses.replace(config, **values)
