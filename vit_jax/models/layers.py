"""Layers shared by encoder and heads: dense layers, norms and dropout.

They name the logical axes of their parameters for `parallel.sharding`.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import per_example_random
from vit_jax.models import vit_config

XAVIER = nn.initializers.xavier_uniform()


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
) -> nn.LayerNorm | nn.RMSNorm:
  """Layer norm or RMS norm over the logical `axis`, float32 statistics."""
  options: dict[str, Any] = {
      'epsilon': config.layer_norm_epsilon, 'dtype': config.compute_dtype,
      'scale_init': nn.with_logical_partitioning(
          nn.initializers.ones, (axis,)), 'name': name}
  if config.norm == 'rms':
    return nn.RMSNorm(**options)
  return nn.LayerNorm(
      **options, bias_init=nn.with_logical_partitioning(
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
    kept = jax.lax.optimization_barrier(per_example_random.sample(
        lambda key, batch: jax.random.bernoulli(
            key, 1 - self.rate, (batch, *inputs.shape[1:])),
        self.make_rng('dropout'), inputs))
    return jnp.where(kept, inputs / (1 - self.rate), 0)
