"""Applies a model's parameters to arrays of any resolution."""

from collections.abc import Callable
import functools

import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import tree
from vit_jax import types
from vit_jax.evals import passes
from vit_jax.models import factory
from vit_jax.models import feature_layers
from vit_jax.models import model_config
from vit_jax.weights import weights as weights_lib

Images = (Float[Array, 'batch height width channels'] |
          Float[np.ndarray, 'batch height width channels'])

_MAX_RESOLUTIONS = 64  # Resolutions whose position embeddings are cached.


def params_by_size(
    weights: weights_lib.Weights,
) -> Callable[[tuple[int, int]], types.Params]:
  """Returns a function from an image size to the parameters on the device.

  All parameters but the position embeddings are shared between sizes. The
  function raises a `ValueError` if such images do not divide into patches.
  """
  params = weights.read()
  on_device = jax.device_put(params)

  @functools.lru_cache(maxsize=_MAX_RESOLUTIONS)
  def params_for(size: tuple[int, int]) -> types.Params:
    old, new = (weights.config.grid(s)
                for s in (weights.resolution, size))
    if old == new:
      return on_device
    positions = jax.device_put({
        name: weights.config.resize_positions(
            name, np.asarray(array), old_grid=old, new_grid=new,
            method=weights.positions)  # type: ignore[arg-type]
        for name, array in tree.flatten(params).items()
        if name.split('/')[-1] in weights.config.position_params})
    return tree.unflatten({**tree.flatten(on_device), **positions})

  return params_for


@functools.lru_cache(maxsize=32)
def forward(
    config: model_config.ModelConfig, names: tuple[str, ...] = (), *,
    flip: bool = False,
) -> Callable[[types.Params, Images], types.Outputs]:
  """Returns the jitted forward pass of parameters and images.

  Args:
    config: the typed section `model`.
    names: outputs to return; by default all but `layers`, the intermediates of
      every layer. 'layers/6' are the tokens after layer 6 of 1 ... depth.
    flip: whether to average over each image and its mirror image.
  """
  model = factory.build(
      factory.for_devices(config, jax.devices()[:1]),
      num_classes=config.num_classes)
  capture = any(name.startswith('layers') for name in names)
  options = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **options)
    # Unused outputs are not computed, or at least not copied.
    return {name: feature_layers.select(outputs, name)
            for name in names} or outputs

  return jax.jit(passes.average_mirrored(apply) if flip else apply)
