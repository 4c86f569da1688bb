"""Layers: patch embedding, dense layers, norms, dropout, MLP.

Layers name the logical axes of their parameters for `parallel.sharding`, and
the intermediates that rematerialisation saves.
"""

from collections.abc import Callable
from typing import Any, Literal

import einops
import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from vit_jax.models import embed
from vit_jax.models import vit_config

XAVIER = nn.initializers.xavier_uniform()

# Intermediates of a layer that `remat: attention` saves for the backward pass:
# outputs of matrix products that the gradient needs, but not the attention
# weights, which are quadratic in tokens, and not outputs of norms, GELU and
# dropout.
Saved = Literal['query', 'key', 'value', 'attended', 'log_sums',
                'after_attention', 'hidden', 'branch']


def saved(array: jax.Array, name: Saved) -> jax.Array:
  """Returns the array, marked to be saved by `remat: attention`."""
  return ad_checkpoint.checkpoint_name(array, name)


def dense(
    features: int | tuple[int, ...], axes: tuple[str | None, ...],
    name: str | None = None, *, dtype: Any,
    kernel: Callable = XAVIER, bias: Callable | None = nn.initializers.zeros,
) -> nn.DenseGeneral:
  """Dense layer over the last axes of its input.

  Args:
    features: lengths of the output axes.
    axes: logical axes of the kernel, inputs before outputs. The bias of an
      output of the model's width has the axis 'norm'.
    name: name of the module.
    dtype: dtype of the matrix product.
    kernel: initializer of the kernel.
    bias: initializer of the bias; None for no bias.
  """
  outputs = len(features) if isinstance(features, tuple) else 1
  inputs = len(axes) - outputs
  bias_axes = tuple('norm' if axis in ('width', None) else axis
                    for axis in axes[inputs:])
  return nn.DenseGeneral(
      features, axis=tuple(range(-inputs, 0)), dtype=dtype,
      use_bias=bias is not None,
      kernel_init=nn.with_logical_partitioning(kernel, axes),
      bias_init=nn.with_logical_partitioning(
          bias or nn.initializers.zeros, bias_axes), name=name)


def layer_norm(
    config: vit_config.ViTConfig, name: str, *, axis: str = 'norm',
    affine: bool = True,
) -> nn.LayerNorm | nn.RMSNorm:
  """Layer norm or RMS norm over the logical `axis`, float32 statistics."""
  options: dict[str, Any] = {
      'epsilon': config.layer_norm_epsilon, 'dtype': config.compute_dtype,
      'scale_init': nn.with_logical_partitioning(
          nn.initializers.ones, (axis,)), 'use_scale': affine, 'name': name}
  if config.norm == 'rms':
    return nn.RMSNorm(**options)
  return nn.LayerNorm(
      **options, use_bias=affine, bias_init=nn.with_logical_partitioning(
          nn.initializers.zeros, (axis,)))


class Dropout(nn.Module):
  """Dropout with the random numbers of `nn.Dropout`.

  The optimization barrier keeps XLA from fusing the random generator into every
  adjacent matrix product, which recomputes it and doubles the step time.
  """
  rate: float
  deterministic: bool

  @nn.compact
  def __call__(self, inputs: Float[Array, '...']) -> Float[Array, '...']:
    if self.rate == 0 or self.deterministic:
      return inputs
    kept = jax.lax.optimization_barrier(sample_per_example(
        lambda key, batch: jax.random.bernoulli(
            key, 1 - self.rate, (batch, *inputs.shape[1:])),
        self.make_rng('dropout'), inputs))
    return jnp.where(kept, inputs / (1 - self.rate), 0)


class PatchEmbedding(nn.Module):
  """Projects the patches of images (equation 1: x_p E).

  A convolution with stride = kernel size, written as a matrix product, which is
  fast on every backend. The kernel has the shape of a convolution,
  [patch_height, patch_width, channels, width].

  `resized`: size of the patches, if it differs from that of the kernel.
  """
  patch: tuple[int, int]
  width: int
  dtype: jnp.dtype
  use_bias: bool = True
  resized: tuple[int, int] | None = None

  @nn.compact
  def __call__(
      self, images: Float[Array, 'batch height width channels'],
  ) -> Float[Array, 'batch rows columns embedding']:
    rows, columns = vit_config.grid_shape(
        (images.shape[1], images.shape[2]), self.resized or self.patch)
    kernel = self.param(
        'kernel',
        nn.with_logical_partitioning(
            nn.initializers.lecun_normal(), (None, None, None, 'width')),
        (*self.patch, images.shape[-1], self.width))
    if self.resized is not None:
      kernel = embed.resize_filters(kernel, self.resized)
    patches = einops.rearrange(
        images.astype(self.dtype), 'b (r p) (c q) ch -> b r c (p q ch)',
        r=rows, c=columns)
    matrix = kernel.reshape(-1, self.width).astype(self.dtype)
    embedded = jnp.einsum('brcp,pw->brcw', patches, matrix)
    if not self.use_bias:
      return embedded
    bias = self.param(
        'bias',
        nn.with_logical_partitioning(nn.initializers.zeros, ('norm',)),
        (self.width,))
    return embedded + bias.astype(self.dtype)


class Mlp(nn.Module):
  """W_out a(W_hidden x), with a the GELU (equation 3), or SwiGLU.

  SwiGLU is W_out (silu(W_gate x) * W_hidden x) (arXiv 2002.05202, equation 6).
  """
  config: vit_config.ViTConfig
  train: bool

  @nn.compact
  def __call__(
      self, tokens: Float[Array, 'batch tokens width'],
  ) -> Float[Array, 'batch tokens width']:
    c = self.config
    options: Any = {
        'dtype': c.compute_dtype,
        'bias': (nn.initializers.normal(1e-6)
                 if c.proj_bias and c.mlp_bias else None)}

    def project(name: str) -> jax.Array:
      projected = dense(
          c.mlp_dim, ('width', 'mlp'), name, **options)(tokens)
      return saved(projected, 'hidden')

    hidden = (jax.nn.silu(project('gate')) * project('hidden')
              if c.mlp == 'swiglu' else gelu(project('hidden'), c.gelu))
    hidden = Dropout(c.dropout, deterministic=not self.train)(hidden)
    if c.inner_norm != 'none':
      hidden = layer_norm(c, 'inner_norm', axis='mlp')(hidden)
    if c.parallel and c.differential:  # As in timm, that of the attention.
      options['bias'] = None
    out = dense(c.width, ('mlp', 'width'), 'out', **options)(hidden)
    return Dropout(c.dropout, deterministic=not self.train)(out)


def gelu(inputs: Float[Array, '...'], kind: str) -> Float[Array, '...']:
  """GELU (arXiv 1606.08415): 'exact', or its 'tanh' or 'quick' approximation.

  Quick is x sigmoid(1.702 x) (section 2), as in CLIP.
  """
  if kind == 'quick':
    return inputs * jax.nn.sigmoid(1.702 * inputs)
  if kind == 'tanh':
    return jax.nn.gelu(inputs)
  # `jax.nn.gelu` uses erfc, which XLA does not fuse: 18 % more bytes in B/16.
  inputs_f32 = inputs.astype(jnp.float32)
  outputs = 0.5 * inputs_f32 * (1 + jax.lax.erf(inputs_f32 * 0.5 ** 0.5))
  return outputs.astype(inputs.dtype)


def sample_per_example(
    function: Callable[..., Any], key: PRNGKeyArray,
    images: Shaped[jax.Array, 'batch ...'], *args: Any,
) -> Any:
  """Returns `function(key, batch_size, *args)`, for any number of devices.

  With gradient accumulation, a training step computes the gradient of each
  device's images separately (`jax.vmap` over groups) to sum them over devices
  once. Each group then gets its part of the random values that the whole batch
  would get.

  Args:
    function: returns arrays [batch_size, ...].
    key: random key.
    images: any array with one row per example; only its length is used.
    *args: arrays.
  """
  @jax.custom_batching.custom_vmap
  def rows(images: jax.Array, key: PRNGKeyArray, *args: Any) -> Any:
    return function(key, len(images), *args)

  @rows.def_vmap
  def _(
      groups: int, batched: list[Any], images: jax.Array, key: Any, *args: Any,
  ) -> tuple[Any, Any]:
    if any(batched[1:]):  # A vmap over models, each with its own key.
      values = jax.vmap(
          lambda *xs: function(xs[0], images.shape[batched[0]], *xs[1:]),
          in_axes=[0 if is_batched else None for is_batched in batched[1:]],
      )(key, *args)
    else:
      values = jax.tree.map(
          lambda x: x.reshape(groups, -1, *x.shape[1:]),
          function(key, groups * images.shape[1], *args))
    return values, jax.tree.map(lambda _: True, values)

  return rows(jax.lax.stop_gradient(images), key, *args)
