"""A straightforward ViT in Flax, as a baseline for `benchmarks/gpu.py`.

Uses `nn.MultiHeadDotProductAttention`, a Python loop over the layers, and
Optax's Adam; no scan, remat, sharding or metrics.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

_OPTIMIZER = optax.adam(1e-4)


class Block(nn.Module):
  """One layer of the encoder."""
  num_heads: int
  mlp_dim: int
  dtype: Any

  @nn.compact
  def __call__(self, tokens):
    normed = nn.LayerNorm(dtype=self.dtype)(tokens)
    tokens += nn.MultiHeadDotProductAttention(
        self.num_heads, dtype=self.dtype,
        kernel_init=nn.initializers.xavier_uniform())(normed, normed)
    normed = nn.LayerNorm(dtype=self.dtype)(tokens)
    hidden = nn.gelu(
        nn.Dense(self.mlp_dim, dtype=self.dtype)(normed), approximate=False)
    return tokens + nn.Dense(tokens.shape[-1], dtype=self.dtype)(hidden)


class ViT(nn.Module):
  """Images to logits.

  Attributes:
    sizes: a model config, for its dimensions.
    num_classes: number of classes.
    dtype: compute dtype.
  """
  sizes: Any
  num_classes: int
  dtype: Any

  @nn.compact
  def __call__(self, images):
    s = self.sizes
    patches = nn.Conv(
        s.width, s.patch_shape, strides=s.patch_shape, padding='VALID',
        dtype=self.dtype)(images)
    tokens = patches.reshape(len(patches), -1, s.width)
    cls = self.param('cls', nn.initializers.zeros, (1, 1, s.width))
    tokens = jnp.concatenate(
        [jnp.tile(cls, (len(tokens), 1, 1)).astype(tokens.dtype), tokens], 1)
    tokens += self.param(
        'positions', nn.initializers.normal(0.02),
        (1, *tokens.shape[1:])).astype(tokens.dtype)
    for _ in range(s.depth):
      tokens = Block(s.num_heads, s.mlp_dim, self.dtype)(tokens)
    tokens = nn.LayerNorm(dtype=self.dtype)(tokens)
    return nn.Dense(self.num_classes)(tokens[:, 0].astype('float32'))


def training(model, images, labels):
  """Returns a function that trains on a batch `count` times and waits.

  Compiles first; the function allocates the state.
  """
  begin = jax.jit(functools.partial(init, model)).lower(images).compile()
  step = jax.jit(functools.partial(train_step, model), donate_argnums=0).lower(
      begin.out_info, images, labels).compile()
  state = None

  def run(count):
    nonlocal state
    state = state or begin(images)
    for _ in range(count):
      state, _ = step(state, images, labels)
    jax.block_until_ready(state)

  return run


def init(model, images):
  """Returns initial parameters and optimizer state."""
  params = model.init(jax.random.key(0), images)
  return params, _OPTIMIZER.init(params)


def train_step(model, state, images, labels):
  """Returns the state after a step, and the loss."""
  params, opt_state = state

  def loss_of(params):
    logits = model.apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits, labels).mean()

  loss, grads = jax.value_and_grad(loss_of)(params)
  updates, opt_state = _OPTIMIZER.update(grads, opt_state)
  return (optax.apply_updates(params, updates), opt_state), loss


def inference(model, images):
  """Returns a function that computes logits `count` times and waits."""
  params = jax.jit(model.init)(jax.random.key(0), images)
  apply = jax.jit(model.apply).lower(params, images).compile()

  def run(count):
    for _ in range(count):
      logits = apply(params, images)
    logits.block_until_ready()

  return run
