"""Low-rank adapters of frozen kernels (LoRA, arXiv 2106.09685).

    kernel = base + alpha / rank * a b        (equation 3)

The adapters are parameters under `lora/`, next to the model's. `Adapted`
adds them to the kernels before it applies the model, which is unchanged. A
layer has one pair for each of queries, keys and values: their kernels are the
only ones with five axes, [layer, width, 3, heads, head_dim], or queries and the
rest separately.
"""

from collections.abc import Sequence
import math
import re
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax import objectives
from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.models import lora_config
from vit_jax.models.lora_config import ROOT


def init(
    config: lora_config.LoraConfig, key: jax.Array, boxed: types.Params,
) -> types.Params:
  """Returns boxed parameters with new adapters, whose product is zero.

  Args:
    config: section `lora`.
    key: random key of the matrices a.
    boxed: parameters of a model, boxed with the names of their axes.

  Raises:
    UserError: if a rule matches no kernel, or one outside the encoder.
  """
  leaves, _ = jax.tree_util.tree_flatten_with_path(
      boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned))
  boxes = {tree.path_name(path): leaf for path, leaf in leaves}
  chosen = tree.flatten(tree.map_rules(
      nn.unbox(boxed), [(pattern, True) for pattern in config.kernels],
      default=False, where='lora.kernels'))
  adapted = [name for name, is_adapted in chosen.items() if is_adapted]
  adapters: dict[str, Any] = {}
  for name, name_key in zip(adapted, jax.random.split(key, len(adapted))):
    if not re.fullmatch(f'{lora_config.STACKED}.*kernel', name):
      raise UserError(
          f'lora.kernels matches {name}, but only kernels of the encoder can '
          f'be adapted: {lora_config.STACKED}.*kernel.')
    box = boxes[name]
    shapes = _axes(box.value.shape, config.rank)
    axes = _axes(box.names, None)
    inputs = box.value.size * config.rank / math.prod(shapes[1])
    adapters |= {
        f'{name}/a': nn.LogicallyPartitioned(
            jax.random.normal(name_key, shapes[0]) / inputs**0.5, axes[0]),
        f'{name}/b': nn.LogicallyPartitioned(jnp.zeros(shapes[1]), axes[1])}
  return {**boxed, ROOT: tree.unflatten(adapters)}


def merge(params: types.Params, config: lora_config.LoraConfig) -> types.Params:
  """Returns the parameters of the model, with the adapters added."""
  merged = tree.flatten({k: v for k, v in params.items() if k != ROOT})
  adapters = tree.flatten(params[ROOT])
  for name in names(params):
    product = _product(*(
        jnp.asarray(adapters[f'{name}/{matrix}']) for matrix in 'ab'))
    merged[name] = merged[name] + config.alpha / config.rank * product
  return tree.unflatten(merged)


class Adapted(nn.Module):
  """A model whose `apply` adds the adapters to the kernels first.

  Attributes:
    model: the model.
    lora: section `lora`.
  """
  model: nn.Module
  lora: lora_config.LoraConfig

  @property
  def config(self) -> Any:
    return self.model.config

  def apply(self, variables: Any, *args: Any, **options: Any) -> Any:
    params = merge(variables['params'], self.lora)
    return self.model.apply({'params': params}, *args, **options)


def names(params: types.Params) -> list[str]:
  """Returns the paths of the adapted kernels."""
  return sorted({path.rpartition('/')[0]
                 for path in tree.flatten(params.get(ROOT, {}))})


def check_frozen(trainable: Any, new: Sequence[str]) -> None:
  """Raises unless adapters are trained and their kernels are frozen.

  Checkpoints leave out what is frozen and find it in the base again, so no
  parameter can be both frozen and new.

  Args:
    trainable: tree of booleans like the parameters.
    new: regular expressions of parameters that are not in the base.
  """
  trained = tree.flatten(trainable)
  if objectives.TEACHER in trainable or '0' in trainable.get(
      objectives.PROJECTOR, {}):  # Of teachers whose outputs are stored.
    new = (*new, f'{objectives.PROJECTOR}/.*')  # See `fit_weights.fit`.
  for name in trained:
    if not trained[name] and any(re.fullmatch(rule, name) for rule in new):
      raise UserError(
          f'{name} is new (init.new), but optimizer.frozen matches it: it '
          f'would keep its random values. Add {name.partition("/")[0]}/ to '
          "what is trained: optimizer.frozen=['(?!head/|lora/|...).*'].")
  for name in names(trainable):
    if trained[name] or not all(trained[f'{ROOT}/{name}/{x}'] for x in 'ab'):
      raise UserError(
          f'lora.kernels adapts {name}: optimizer.frozen must match this '
          f'kernel and not its adapter {ROOT}/{name}. Use, for example, '
          "optimizer.frozen=['(?!head/|lora/).*'].")


def _axes(kernel: Sequence[Any], rank: Any) -> tuple[Any, Any]:
  """Returns the axes of a and b from the kernel's axes: sizes or names."""
  if len(kernel) == 5:
    layers, width, count, *heads = kernel
    return (layers, width, count, rank), (layers, count, rank, *heads)
  layers, *inputs, outputs = kernel
  return (layers, *inputs, rank), (layers, rank, outputs)


def _product(
    a: Float[Array, 'layers ...'], b: Float[Array, 'layers ...'],
) -> Float[Array, 'layers ...']:
  def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.tensordot(a, b, axes=1)

  if b.ndim == 5:
    multiply = jax.vmap(multiply, in_axes=(1, 0), out_axes=1)
  return jax.vmap(multiply)(a, b)
