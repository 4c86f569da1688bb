"""The Vision Transformer (arXiv 2010.11929, section 3.1, equations 1 to 4)."""

from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar, Literal

import einops
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vit_jax import fields
from vit_jax.exceptions import UserError
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import model_config
from vit_jax.models import positions as positions_lib

Embedded = Float[Array, 'batch patches width']
Tokens = Float[Array, 'batch tokens width']
# Intermediates of every layer: True for all; 'tokens' for all but the attention
# weights, so that faster forms of attention stay in use.
Capture = Literal[False, True, 'tokens']
switch = fields.switch


@dataclasses.dataclass(frozen=True)
class ViTConfig(model_config.ModelConfig):
  """Section `model` of a config with `name: 'vit'`.

  Attributes:
    width: D, the length of a token.
    depth: L, the number of layers.
    mlp_dim: hidden units of the MLP.
    num_heads: attention heads; divides `width`.
    patch: side of a patch, or (height, width), in pixels.
    cls: whether there is a class token; None adds one if `pooling` uses it.
    position: embeddings added to the stem: 'learned' (1-D), 'sincos' (fixed 2-D
      sine-cosine, arXiv 2104.02057) or 'none'.
    gelu: 'tanh' approximation as in the paper's code, or 'exact' as in PyTorch.
    layer_norm_epsilon: added to the variance.
    final_norm: norm after the last layer (equation 4).
    pooling: 'cls' token, 'average' of the patch tokens, or 'attention' of one
      learned query (MAP head, arXiv 2106.04560).
    pool_norm: norm after pooling; timm's `fc_norm` if `final_norm` is off.
    representation_layer: dense tanh layer before the head, for pre-training
      (section 3.1) but not for fine-tuning.
    dropout: after dense layers except the qkv projections, and after adding
      position embeddings (appendix B.1, table 3).
    attention_dropout: dropout rate of attention weights.
    stochastic_depth: rate at the last layer, increasing linearly from 0.
    attention: 'plain', or a fused kernel (arXiv 2205.14135) without attention
      weights in memory: 'cudnn' for bfloat16 on GPUs, 'splash' on TPUs; 'auto'
      is 'splash' on TPUs from 512 tokens. Elsewhere, with captured weights and
      with attention dropout, 'plain' is used anyway.
    remat: what the backward pass recomputes: 'none'; 'attention' weights,
      norms, GELU and dropout, 0.5 % of the operations; 'dots' (all except
      matrix products with parameters); or 'full', 22 % (docs/plans.md).
    unroll: layers per scan iteration; `depth` unrolls all.
  """
  name: Literal['vit'] = switch('vit')
  width: int = switch(0)
  depth: int = switch(0)
  mlp_dim: int = switch(0)
  num_heads: int = switch(0)
  patch: int | tuple[int, int] = switch(0)
  cls: bool | None = switch(None)
  position: Literal['learned', 'sincos', 'none'] = switch('learned')
  gelu: Literal['tanh', 'exact'] = switch('tanh')
  layer_norm_epsilon: float = switch(1e-6)
  final_norm: bool = switch(True)
  pooling: Literal['cls', 'average', 'attention'] = switch('cls')
  pool_norm: bool = switch(False)
  representation_layer: bool = False
  dropout: float = 0.0
  attention_dropout: float = 0.0
  stochastic_depth: float = 0.0
  attention: attention_lib.Kernel = 'plain'  # type: ignore[misc]
  remat: fields.Free[layers.Remat] = 'attention'  # type: ignore[misc]
  unroll: fields.Free[int] = 1

  has_tokens: ClassVar[bool] = True
  has_patches: ClassVar[bool] = True
  dimensions: ClassVar[tuple[str, ...]] = (
      'width', 'depth', 'mlp_dim', 'num_heads', 'patch')

  def __post_init__(self):
    super().__post_init__()
    fields.check_range(
        self, 'dropout', 'attention_dropout', 'stochastic_depth', end=1)
    fields.check_range(self, 'width', 'depth', 'mlp_dim', 'num_heads', 'patch')
    fields.check_range(self, 'unroll', low=1)
    if self.width % (self.num_heads or 1):
      raise UserError(
          f'width {self.width} does not divide into {self.num_heads} heads.')
    if self.position == 'sincos' and self.width % 4:
      raise UserError(f'sincos needs a width divisible by 4, not {self.width}.')
    if self.pooling.startswith('cls') and self.cls is False:
      raise UserError(
          f'pooling {self.pooling!r} needs the class token, but cls is false. '
          "Set pooling to 'average' or 'attention', or leave cls out.")
    attention_lib.check(self.attention, self.dtype)

  has_cls = property(lambda self: (  # Whether there is a class token.
      self.pooling.startswith('cls') if self.cls is None else self.cls))
  num_prefix = property(lambda self: int(self.has_cls))
  num_layers = property(lambda self: self.depth)
  takes_any_tokens = takes_any_grid = property(lambda self: True)
  output_width = property(lambda self: self.width)
  head_dim = property(lambda self: self.width // self.num_heads)

  @property
  def patch_shape(self) -> tuple[int, int]:
    """Height and width of a patch, in pixels."""
    return (self.patch, self.patch) if isinstance(self.patch, int) else (
        self.patch)

  def grid(self, image_shape: tuple[int, int]) -> tuple[int, int]:
    return positions_lib.grid_shape(image_shape, self.patch_shape)

  def image_size(self, grid: tuple[int, int]) -> tuple[int, int]:
    """Returns the height and width of an image with this grid of patches."""
    return grid[0] * self.patch_shape[0], grid[1] * self.patch_shape[1]

  def build(self, *, grid: tuple[int, int] | None = None) -> nn.Module:
    return ViT(self, grid)


class Patches(nn.Module):
  """x_p E of equation 1: the projection of the patches of images.

  A convolution with stride = kernel size, written as a matrix product.
  """
  config: ViTConfig

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height image_width channels'],
  ) -> Float[Array, 'batch rows columns width']:
    c, (p, q) = self.config, self.config.patch_shape
    positions_lib.grid_shape(images.shape[1:3], (p, q))  # Or an error.
    kernel = self.param('kernel', layers.named(
        nn.initializers.lecun_normal(), None, None, None, 'width'),
                        (p, q, images.shape[-1], c.width))
    patches = einops.rearrange(
        images.astype(c.compute_dtype), 'b (r p) (c q) d -> b r c (p q d)',
        p=p, q=q)
    projected = jnp.einsum('brcp,pw->brcw', patches, kernel.reshape(
        -1, c.width).astype(c.compute_dtype))
    bias = self.param(
        'bias', layers.named(nn.initializers.zeros, 'norm'), (c.width,))
    return projected + bias.astype(c.compute_dtype)


class SelfAttention(nn.Module):
  """Multi-head self-attention (appendix A, equations 5 to 8)."""
  config: ViTConfig
  train: bool
  capture: Capture

  @nn.compact
  def __call__(self, tokens: Tokens) -> tuple[
      Tokens, Float[Array, 'batch heads tokens tokens'] | None]:
    c = self.config
    # Xavier for each of the three matrices, not for their concatenation.
    kernel = self.param('qkv_kernel', layers.named(
        layers.XAVIER_QKV, 'width', None, 'heads', 'head_dim'),
                        (c.width, 3, c.num_heads, c.head_dim))
    bias = self.param('qkv_bias', layers.named(
        nn.initializers.zeros, None, 'heads', 'head_dim'),
                      (3, c.num_heads, c.head_dim)).astype(c.compute_dtype)
    # Three products: slices of a joint result would be copied.
    query, key, value = (
        layers.saved(jnp.einsum('btw,wnh->btnh', tokens, kernel[:, i].astype(
            c.compute_dtype)) + bias[i], name)
        for i, name in enumerate(layers.PROJECTIONS))
    values, weights = self.attend(query, key, value)
    out = layers.dense(
        c.width, ('heads', 'head_dim', 'width'), 'out', dtype=c.compute_dtype)
    return out(values), weights

  def attend(
      self, query: jax.Array, key: jax.Array, value: jax.Array,
  ) -> tuple[jax.Array, jax.Array | None]:
    """Returns softmax(q k^T / sqrt(D_h)) v (equations 6 and 7), and weights."""
    c, drops = self.config, self.train and self.config.attention_dropout > 0
    if self.capture is not True and not drops:
      # The same function in a form that needs less memory, if there is one.
      values = attention_lib.without_weights(
          query, key, value, kernel=c.attention,
          recompute=c.remat == 'attention')
      if values is not None:
        return values, None
    logits = jnp.einsum('bqnh,bknh->bnqk', query * c.head_dim**-0.5, key)
    weights = jax.nn.softmax(logits.astype(jnp.float32))
    kept = layers.Dropout(c.attention_dropout, deterministic=not self.train)(
        weights)
    return jnp.einsum(
        'bnqk,bknh->bqnh', kept.astype(value.dtype), value), weights


class Mlp(nn.Module):
  """W_out GELU(W_hidden x) (equation 3)."""
  config: ViTConfig
  train: bool

  @nn.compact
  def __call__(self, tokens: Tokens) -> Tokens:
    c = self.config
    options: Any = {
        'dtype': c.compute_dtype, 'bias': nn.initializers.normal(1e-6)}
    hidden = layers.saved(layers.dense(
        c.mlp_dim, ('width', 'mlp'), 'hidden', **options)(tokens), 'hidden')
    hidden = layers.Dropout(c.dropout, deterministic=not self.train)(
        layers.gelu(hidden, c.gelu))
    out = layers.dense(c.width, ('mlp', 'width'), 'out', **options)(hidden)
    return layers.Dropout(c.dropout, deterministic=not self.train)(out)


class Block(nn.Module):
  """One layer: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (equations 2, 3)."""
  config: ViTConfig
  train: bool
  capture: Capture

  @nn.compact
  def __call__(
      self, tokens: Tokens, layer: Int[Array, ''],
  ) -> tuple[Tokens, dict[str, Any]]:
    c = self.config
    attended, weights = self.attend(
        layers.layer_norm(c, 'attention_norm')(tokens))
    attended = layers.Dropout(c.dropout, deterministic=not self.train)(attended)
    after_attention = layers.saved(
        tokens + self.drop_path(attended, layer), 'after_attention')
    mixed = Mlp(c, self.train, name='mlp')(
        layers.layer_norm(c, 'mlp_norm')(after_attention))
    after_mlp = after_attention + self.drop_path(mixed, layer)
    captured: dict[str, Any] = {
        'after_attention': after_attention, 'after_mlp': after_mlp}
    if self.capture is True:
      captured['attention'] = weights
    return after_mlp, captured if self.capture else {}

  def attend(self, tokens: Tokens) -> tuple[Tokens, jax.Array | None]:
    """Returns the output of attention, and its weights."""
    return SelfAttention(
        self.config, self.train, self.capture, name='attention')(tokens)

  def drop_path(self, branch: Tokens, layer: Int[Array, '']) -> Tokens:
    """Stochastic depth per image (arXiv 1603.09382)."""
    c = self.config
    if not self.train or not c.stochastic_depth:
      return branch
    return layers.drop_path(
        self.make_rng('dropout'), branch,
        rate=jnp.linspace(0.0, c.stochastic_depth, c.depth)[layer])


class Encoder(nn.Module):
  """`depth` blocks in one scan: one compiled body, stacked parameters.

  Returns the tokens of the last block and the captured intermediates of all:
  `attention` [depth, batch, heads, tokens, tokens], `after_attention` and
  `after_mlp` [depth, batch, tokens, width]. Other models have `shared` inputs
  of all blocks.
  """
  config: ViTConfig
  train: bool
  capture: Capture

  @nn.compact
  def __call__(
      self, tokens: Tokens, *shared: Any) -> tuple[Tokens, dict[str, Any]]:
    c = self.config
    kind, settings = self.block()
    blocks = layers.scan(kind, c, num_shared=len(shared))
    if self.train and not self.is_initializing():
      blocks = nn.map_variables(blocks, 'params', lambda params: layers.cast(
          params, dtype=c.compute_dtype))
    return blocks(*settings, name='layers')(
        tokens, jnp.arange(c.depth), *shared)

  def block(self) -> tuple[Any, tuple[Any, ...]]:
    """Returns the module of a layer, and its attributes."""
    return Block, (self.config, self.train, self.capture)


class AttentionPooling(nn.Module):
  """Attention by one learned query, then an MLP (MAP; arXiv 2106.04560)."""
  config: ViTConfig
  train: bool

  @nn.compact
  def __call__(self, tokens: Tokens) -> Float[Array, 'batch width']:
    c = self.config
    probe = self.param(
        'probe', layers.named(layers.XAVIER, None, 'norm'), (1, c.width))
    probe = jnp.tile(probe.astype(c.compute_dtype), (len(tokens), 1, 1))
    query, key, value = (
        layers.dense((c.num_heads, c.head_dim), ('width', 'heads', 'head_dim'),
                     name, dtype=c.compute_dtype)(inputs)
        for name, inputs in (
            ('query', probe), ('key', tokens), ('value', tokens)))
    values, _ = attention_lib.dot_product_attention(query, key, value)
    pooled = layers.dense(c.width, ('heads', 'head_dim', 'width'), 'out',
                          dtype=c.compute_dtype)(values)
    normed = layers.layer_norm(c, 'mlp_norm')(pooled)
    return (pooled + Mlp(c, self.train, name='mlp')(normed))[:, 0]


class ViT(nn.Module):
  """ViT classifier with named outputs.

  Other models replace a method, such as `patches`, `embed` or `pool`. `grid`:
  rows and columns of the positions, if images may have another size.
  """
  config: ViTConfig
  grid: tuple[int, int] | None = None

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height width channels'], *,
      train: bool = False, capture: Capture = False,
      replace: Callable[[jax.Array], jax.Array] | None = None,
      visible: Int[Array, 'batch visible'] | None = None,
  ) -> dict[str, Any]:
    """Applies the model.

    Args:
      images: preprocessed images; a `ValueError` if they do not divide into
        patches.
      train: enables dropout and stochastic depth; needs the rng `dropout`.
      capture: also returns `layers`, the intermediates of every layer.
      replace: function of the patch embeddings [batch, patches, width] before
        positions are added.
      visible: indices of the patches that the encoder processes, whose tokens
        are returned in this order; None for all (MAE).

    Returns:
      `embedded`, `tokens` [batch, tokens, width]: input of the encoder, and its
      output after the final norm; `pooled`, `representation` [batch, width]:
      before and after the tanh layer, if any; `logits` [batch, classes].
    """
    c = self.config
    patches = self.patches(images)
    grid = patches.shape[1], patches.shape[2]
    patches = einops.rearrange(patches, 'b r c w -> b (r c) w')
    if replace is not None:
      patches = replace(patches)
    embedded = self.embed(patches, grid)
    if visible is not None:
      embedded = jnp.concatenate([
          embedded[:, :c.num_prefix],
          jnp.take_along_axis(
              embedded[:, c.num_prefix:], visible[..., None], axis=1)], axis=1)
    embedded = layers.Dropout(c.dropout, deterministic=not train)(embedded)
    tokens, captured = self.encode(embedded, grid, train=train, capture=capture)
    if c.final_norm:
      tokens = self.norm('final_norm')(tokens)
    pooled = self.pool(tokens, grid, train=train)
    if c.pool_norm:
      pooled = self.norm('pool_norm')(pooled)
    representation = pooled
    if c.representation_layer:
      representation = layers.Representation(c, name='representation')(pooled)
    outputs = {'embedded': embedded, 'tokens': tokens, 'pooled': pooled,
               'representation': representation}
    outputs |= self.classify(tokens, representation, captured, grid)
    return {**outputs, 'layers': captured} if capture else outputs

  def patches(self, images: jax.Array) -> jax.Array:
    """Returns x_1 E ... x_N E, [batch, rows, columns, width]."""
    return Patches(self.config, name='patches')(images)

  def norm(self, name: str) -> nn.Module:
    """Returns a norm of tokens."""
    return layers.layer_norm(self.config, name)

  def with_cls(self, patches: Embedded) -> Tokens:
    """Returns the patches after the class token, if the model has one."""
    if not self.config.has_cls:
      return patches
    return jnp.concatenate([
        layers.learned_tokens(self, 'cls', patches), patches], axis=1)

  def embed(self, patches: Embedded, grid: tuple[int, int]) -> Tokens:
    """Returns z_0 = [class; x_1 E; ...; x_N E] + E_pos (equation 1)."""
    tokens = self.with_cls(patches)
    positions = self.position_embeddings(self.grid or grid)
    if positions is None:
      return tokens
    return tokens + positions_lib.resize_positions(
        positions, old_grid=self.grid or grid, new_grid=grid,
        method='bilinear').astype(tokens.dtype)

  def position_embeddings(self, grid: tuple[int, int]) -> jax.Array | None:
    """Returns E_pos, [tokens, width], if anything is added to the stem."""
    c = self.config
    return positions_lib.embeddings(
        self.param, c.position, grid, c.width, num_prefix=c.num_prefix)

  def encode(
      self, tokens: Tokens, grid: tuple[int, int], *, train: bool,
      capture: Capture,
  ) -> tuple[Tokens, dict[str, Any]]:
    """Returns z_L (equations 2 and 3), and captured intermediates."""
    del grid
    return Encoder(self.config, train, capture, name='encoder')(tokens)

  def pool(
      self, tokens: Tokens, grid: tuple[int, int], *, train: bool,
  ) -> Float[Array, 'batch pooled']:
    """Returns y (equation 4), or another summary of the tokens."""
    del grid
    c = self.config
    patches = tokens[:, c.num_prefix:]
    match c.pooling:
      case 'cls':
        return tokens[:, 0]
      case 'average':
        return patches.mean(axis=1)
      case _:
        return AttentionPooling(c, train, name='pooling')(patches)

  def classify(
      self, tokens: Tokens, representation: jax.Array,
      captured: dict[str, Any], grid: tuple[int, int],
  ) -> dict[str, jax.Array]:
    """Returns `logits` [batch, classes]."""
    del tokens, captured, grid
    return {'logits': layers.Head(
        self.config.num_classes, self.config.head_bias, name='head')(
            representation.astype(jnp.float32))}
