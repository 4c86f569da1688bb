"""Layers and mechanisms that all models share.

Every parameter names its axes, which `parallel.sharding` maps to mesh axes.
"""

from collections.abc import Callable, Mapping
import typing
from typing import Any, Literal

import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

XAVIER = nn.initializers.xavier_uniform()
# For [width, 3, heads, head_dim]: of each matrix, not of their concatenation.
XAVIER_QKV = nn.initializers.variance_scaling(
    1.0, 'fan_avg', 'uniform', in_axis=0, out_axis=(2, 3), batch_axis=1)

# Intermediates of a layer that `remat: attention` saves for the backward pass:
# outputs of matrix products that the gradient needs, but not the attention
# weights, which are quadratic in tokens, and not outputs of norms, GELU and
# dropout.
Saved = Literal['query', 'key', 'value', 'attended', 'log_sums',
                'after_attention', 'hidden', 'branch']
PROJECTIONS: tuple[Saved, ...] = ('query', 'key', 'value')
Remat = Literal['none', 'attention', 'dots', 'full']
# Intermediates that are saved for the backward pass; others are recomputed.
REMAT_POLICIES: Mapping[str, Callable | None] = {
    'none': None,
    # Saves everything except attention and cheap elementwise operations. Sums
    # are norm statistics: small, but each is a pass over all tokens.
    'attention': jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.save_only_these_names(
            *typing.get_args(Saved)),
        lambda primitive, *_, **__: primitive is jax.lax.reduce_sum_p),
    # Saves outputs of matrix products with parameters.
    'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    # Saves only the input of each layer.
    'full': jax.checkpoint_policies.nothing_saveable,
}


def saved(array: jax.Array, name: Saved) -> jax.Array:
  """Returns the array, marked to be saved by `remat: attention`."""
  return ad_checkpoint.checkpoint_name(array, name)


def named(init: Callable, *axes: str | None) -> Callable:
  """Returns an initializer that names the axes of the parameter."""
  return nn.with_logical_partitioning(init, axes)


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
      use_bias=bias is not None, kernel_init=named(kernel, *axes),
      bias_init=named(bias or nn.initializers.zeros, *bias_axes), name=name)


def layer_norm(config: Any, name: str) -> nn.LayerNorm:
  """Layer norm over the width, with float32 statistics.

  `config` has `layer_norm_epsilon` and `compute_dtype`.
  """
  return nn.LayerNorm(
      epsilon=config.layer_norm_epsilon, dtype=config.compute_dtype, name=name,
      scale_init=named(nn.initializers.ones, 'norm'),
      bias_init=named(nn.initializers.zeros, 'norm'))


def gelu(inputs: Float[Array, '...'], kind: str) -> Float[Array, '...']:
  """GELU (arXiv 1606.08415): 'exact', or its 'tanh' approximation."""
  if kind == 'tanh':
    return jax.nn.gelu(inputs)
  # `jax.nn.gelu` uses erfc, which XLA does not fuse: 18 % more bytes in B/16.
  inputs_f32 = inputs.astype(jnp.float32)
  outputs = 0.5 * inputs_f32 * (1 + jax.lax.erf(inputs_f32 * 0.5 ** 0.5))
  return outputs.astype(inputs.dtype)


def learned_tokens(
    module: nn.Module, name: str, patches: Float[Array, 'batch patches width'],
    *, count: int = 1, init: Callable = nn.initializers.zeros,
) -> Float[Array, 'batch count width']:
  """Returns tokens that are parameters of a module, for each image."""
  learned = module.param(
      name, named(init, None, 'norm'), (count, patches.shape[-1]))
  return jnp.tile(learned.astype(patches.dtype), (patches.shape[0], 1, 1))


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
    kept = jax.lax.optimization_barrier(jax.random.bernoulli(
        self.make_rng('dropout'), 1 - self.rate, inputs.shape))
    return jnp.where(kept, inputs / (1 - self.rate), 0)


def drop_path(
    key: PRNGKeyArray, branch: Float[Array, 'batch tokens width'], *,
    rate: Float[Array, ''],
) -> Float[Array, 'batch tokens width']:
  """Stochastic depth: drops the branch of an image (arXiv 1603.09382)."""
  keep = jax.random.bernoulli(key, 1 - rate, (len(branch), 1, 1))
  return jnp.where(keep, branch / (1 - rate).astype(branch.dtype), 0)


class Representation(nn.Module):
  """Dense tanh layer between pooling and head, for pre-training only."""
  config: Any

  @nn.compact
  def __call__(
      self, pooled: Float[Array, 'batch pooled'],
  ) -> Float[Array, 'batch width']:
    return jnp.tanh(dense(
        self.config.width, ('width', None), 'dense',
        dtype=self.config.compute_dtype,
        kernel=nn.initializers.lecun_normal())(pooled))


class Head(nn.Module):
  """Linear classifier in float32, with a zero-initialised kernel."""
  num_classes: int
  bias: float

  def setup(self):
    self.dense = self.classifier()

  def classifier(self) -> nn.Module:
    return dense(
        self.num_classes, ('width', 'classes'), dtype=jnp.float32,
        kernel=nn.initializers.zeros,
        bias=nn.initializers.constant(self.bias))

  def __call__(
      self, representation: Float[Array, 'batch width'],
  ) -> Float[Array, 'batch classes']:
    return self.dense(representation)


def scan(block: Any, config: Any, *, num_shared: int) -> Any:
  """Returns a module of stacked layers: one compiled body for all.

  Parameters are stacked along a leading axis, named 'layers'. Neither `unroll`
  nor `remat` of the config changes results or parameters. `num_shared` is the
  number of arguments that all `config.depth` layers use, after the tokens and
  the layer's number.
  """
  if config.remat != 'none':
    block = nn.remat(
        block, prevent_cse=False, policy=REMAT_POLICIES[config.remat])
  return nn.scan(
      block, variable_axes={'params': 0, 'intermediates': 0},
      split_rngs={'params': True, 'dropout': True},
      in_axes=(0, *(nn.broadcast,) * num_shared), length=config.depth,
      unroll=config.unroll, metadata_params={nn.PARTITION_NAME: 'layers'})


def cast(
    params: Any, *, dtype: jnp.dtype, exact: tuple[str, ...] = ('_norm',),
) -> Any:
  """Casts parameters to the compute dtype, except those that names end with.

  Norms are computed in float32. The scan then stacks the gradients in that
  dtype: L/16 needs 11 % less memory beside its state (docs/measurements.md).
  Without gradients it saves nothing, and on CPUs the copy takes a tenth of the
  time.
  """
  def convert(path: Any, leaf: jax.Array) -> jax.Array:
    stays = any(getattr(key, 'key', '').endswith(exact) for key in path)
    return leaf if stays else leaf.astype(dtype)

  return jax.tree_util.tree_map_with_path(convert, params)
