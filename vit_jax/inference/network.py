"""A model's parameters, applied: arrays in, arrays out, at any resolution."""

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

_MAX_SIZES = 4  # Resolutions whose positions are kept.


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
  """A network with its parameters on the device.

  Attributes:
    config: the typed section `model`.
    params: nested dict of arrays.
    resolution: height and width that the position embeddings are for.
    positions: how they are resized to others: 'linear' or 'cubic'.
  """
  config: models.ModelConfig
  params: types.Params
  resolution: tuple[int, int]
  positions: str

  def __call__(self, images: Images) -> types.Outputs:
    """Applies the network; it is compiled for each shape of a batch.

    Args:
      images: in the model's value range, of any number and any resolution.

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
    """Returns what applies the network to images of one size.

    Args:
      size: height and width of the images.
      names: of the outputs that are wanted; by default all.
      capture: whether `layers` is one, of every layer.

    Raises:
      ValueError: if such images do not divide into patches.
    """
    return functools.partial(
        _apply(self.config, capture, tuple(names)), self.params_for(size))

  @functools.cached_property
  def params_for(self) -> Callable[[tuple[int, int]], types.Params]:
    """Gives the parameters for images of a height and width, on the device.

    All but positions are shared. Raises a `ValueError` if such images do not
    divide into patches.
    """
    # The positions alone: a model of another size is not another model.
    @functools.lru_cache(maxsize=_MAX_SIZES)
    def positions(size: tuple[int, int]) -> dict[str, jax.Array]:
      return jax.device_put(_resized(
          self.params, self.config, old=self.resolution, new=size,
          method=self.positions))

    def params(size: tuple[int, int]) -> types.Params:
      return _with(self._on_device, positions(size))

    return params

  @functools.cached_property
  def _on_device(self) -> types.Params:
    """The parameters where they are computed with; copied once."""
    return jax.device_put(self.params)


def resize(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> types.Params:
  """Returns parameters with the positions of images of another size.

  Args:
    params: nested dict of arrays.
    config: of the model.
    old: height and width of the images that they are for.
    new: those wanted.
    method: 'linear' or 'cubic'.

  Raises:
    ValueError: if the images do not divide into patches.
  """
  return _with(
      params, _resized(params, config, old=old, new=new, method=method))


def _resized(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> dict[str, np.ndarray]:
  """As `resize`, but returns those that change alone, by name."""
  grids = {'old_grid': models.grid(config, old),
           'new_grid': models.grid(config, new)}
  result = {}
  if grids['old_grid'] != grids['new_grid']:
    for name, array in tree.flatten(params).items():
      if name.split('/')[-1] in models.POSITIONS:
        result[name] = models.resize(
            name, np.asarray(array), **grids,
            method=method)  # type: ignore[arg-type]
  return result


def _with(params: types.Params, changed: Mapping[str, Any]) -> types.Params:
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
  more = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **more)
    # What nobody asks for is not computed, or not copied at least.
    return {name: outputs[name] for name in names} if names else outputs

  return jax.jit(apply)
