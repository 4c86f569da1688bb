"""Applies a model's parameters to arrays of any resolution."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax import models
from vit_jax import tree
from vit_jax import types

Images = (Float[Array, 'batch height width channels'] |
          Float[np.ndarray, 'batch height width channels'])

_MAX_RESOLUTIONS = 4  # Resolutions whose position embeddings are cached.


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
  """A network with its parameters on the device.

  Attributes:
    config: the typed section `model`.
    params: nested dict of arrays.
    resolution: height and width of the position embeddings.
    positions: interpolation of position embeddings: 'linear' or 'cubic'.
  """
  config: models.ModelConfig
  params: types.Params
  resolution: tuple[int, int]
  positions: str

  def __call__(self, images: Images) -> types.Outputs:
    """Applies the network; compiles once for each batch shape.

    Args:
      images: preprocessed images; the batch may be empty.

    Raises:
      ValueError: if the images do not divide into patches.
    """
    number, height, width, channels = jnp.shape(images)
    apply = self.at((height, width))
    if number:
      return apply(images)
    shapes = jax.eval_shape(apply, jax.ShapeDtypeStruct(
        (1, height, width, channels), jnp.result_type(images)))
    return jax.tree.map(
        lambda leaf: jnp.zeros((0, *leaf.shape[1:]), leaf.dtype), shapes)

  def at(
      self, size: tuple[int, int], *, names: Sequence[str] = (),
      capture: bool = False,
  ) -> Callable[[Images], types.Outputs]:
    """Returns the jitted forward pass for images of one size.

    Args:
      size: height and width of the images.
      names: outputs to return; all by default.
      capture: whether to return `layers`, the intermediates of every layer.

    Raises:
      ValueError: if such images do not divide into patches.
    """
    return functools.partial(
        _apply(self.config, capture, tuple(names)), self.params_for(size))

  @functools.cached_property
  def params_for(self) -> Callable[[tuple[int, int]], types.Params]:
    """Returns the parameters for an image size, on the device.

    All parameters but the position embeddings are shared between sizes. Raises
    a `ValueError` if such images do not divide into patches.
    """
    @functools.lru_cache(maxsize=_MAX_RESOLUTIONS)
    def positions(size: tuple[int, int]) -> dict[str, jax.Array]:
      return jax.device_put(_resized_positions(
          self.params, self.config, old=self.resolution, new=size,
          method=self.positions))

    def params(size: tuple[int, int]) -> types.Params:
      return _replace(self._device_params, positions(size))

    return params

  @functools.cached_property
  def _device_params(self) -> types.Params:
    return jax.device_put(self.params)


def resize(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> types.Params:
  """Returns parameters with position embeddings for another image size.

  Args:
    params: nested dict of arrays.
    config: the typed section `model`.
    old: height and width of the images that `params` are for.
    new: the new height and width.
    method: 'linear' or 'cubic'.

  Raises:
    ValueError: if the images do not divide into patches.
  """
  return _replace(params, _resized_positions(
      params, config, old=old, new=new, method=method))


def _resized_positions(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> dict[str, np.ndarray]:
  """Returns the resized position embeddings by path; none for equal grids."""
  grids = {'old_grid': models.grid(config, old),
           'new_grid': models.grid(config, new)}
  if grids['old_grid'] == grids['new_grid']:
    return {}
  return {
      name: models.resize(
          name, np.asarray(array), **grids,
          method=method)  # type: ignore[arg-type]
      for name, array in tree.flatten(params).items()
      if name.split('/')[-1] in models.POSITION_PARAMS}


def _replace(params: types.Params, changed: Mapping[str, Any]) -> types.Params:
  if not changed:
    return params
  return tree.unflatten({**tree.flatten(params), **changed})


@functools.lru_cache(maxsize=32)
def _apply(
    config: models.ModelConfig, capture: bool, names: tuple[str, ...],
) -> Callable[..., types.Outputs]:
  model = models.build(
      models.for_devices(config, jax.devices()[:1]),
      num_classes=config.num_classes)
  options = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **options)
    # Unused outputs are not computed, or at least not copied.
    return {name: outputs[name] for name in names} if names else outputs

  return jax.jit(apply)
