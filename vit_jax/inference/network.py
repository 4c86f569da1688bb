"""Applies a model's parameters to arrays of any resolution."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import models
from vit_jax import tree
from vit_jax import types
from vit_jax.evals import passes
from vit_jax.weights.configs import declared

Images = (Float[Array, 'batch height width channels'] |
          Float[np.ndarray, 'batch height width channels'])

_MAX_RESOLUTIONS = 4  # Resolutions whose position embeddings are cached.


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
  """A network with its parameters on the device.

  Attributes:
    weights: the model and its parameters.
  """
  weights: declared.Weights

  def at(
      self, size: tuple[int, int], *, names: Sequence[str] = (),
      flip: bool = False,
  ) -> Callable[[Images], types.Outputs]:
    """Returns the jitted forward pass for images of one size.

    Args:
      size: height and width of the images.
      names: outputs to return; by default all but `layers`, the intermediates
        of every layer. 'layers/6' are the tokens after layer 6 of 1 ... depth.
      flip: whether to average over each image and its mirror image.

    Raises:
      ValueError: if such images do not divide into patches.
    """
    return functools.partial(
        _apply(self.weights.config, tuple(names), flip), self.params_for(size))

  def params_for(self, size: tuple[int, int]) -> types.Params:
    """Returns the parameters for an image size, on the device.

    All parameters but the position embeddings are shared between sizes. Raises
    a `ValueError` if such images do not divide into patches.
    """
    positions = self._positions(size)
    return self._device_params if not positions else tree.unflatten(
        {**tree.flatten(self._device_params), **positions})

  @functools.cached_property
  def _positions(self) -> Callable[[tuple[int, int]], dict[str, jax.Array]]:
    """Resized position embeddings by path; none for the original grid."""
    weights = self.weights

    @functools.lru_cache(maxsize=_MAX_RESOLUTIONS)
    def resized(size: tuple[int, int]) -> dict[str, jax.Array]:
      old, new = (models.grid(weights.config, s)
                  for s in (weights.resolution, size))
      return {} if old == new else jax.device_put({
          name: models.resize(
              name, np.asarray(array), old_grid=old, new_grid=new,
              method=weights.positions)  # type: ignore[arg-type]
          for name, array in tree.flatten(weights.params).items()
          if name.split('/')[-1] in models.POSITION_PARAMS})

    return resized

  @functools.cached_property
  def _device_params(self) -> types.Params:
    return jax.device_put(self.weights.params)


@functools.lru_cache(maxsize=32)
def _apply(
    config: models.ModelConfig, names: tuple[str, ...], flip: bool,
) -> Callable[..., types.Outputs]:
  model = models.build(
      models.for_devices(config, jax.devices()[:1]),
      num_classes=config.num_classes)
  capture = any(name.startswith('layers') for name in names)
  options = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **options)
    # Unused outputs are not computed, or at least not copied.
    return {name: _select(outputs, name) for name in names} or outputs

  return jax.jit(passes.average_mirrored(apply) if flip else apply)


def _select(outputs: types.Outputs, name: str) -> Any:
  """Returns an output by its name; see `Network.at`."""
  output, _, layer = name.partition('/')
  if not layer:
    return outputs[output]
  captured = outputs[output]
  # An axial layer ends with attention within columns.
  return captured.get('column', captured)['after_mlp'][int(layer) - 1]
