"""Computes the outputs of frozen teachers that `data prepare` stores.

They are those that the objective `distill_features` would compute in a step for
the same pixels, but rounded to float16.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
from jaxtyping import Float16, UInt8
import numpy as np

from vit_jax import data
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.exceptions import UserError
from vit_jax.extras.distill import cached
from vit_jax.extras.distill import features
from vit_jax.models import factory
from vit_jax.models import feature_layers
from vit_jax.objectives import objective
from vit_jax.weights import open as open_lib

_BATCH = 32  # Images of a device at a time.


class Outputs:
  """Function from images to the outputs of teachers.

  Attributes:
    stored: declaration of the outputs.
    batch_size: images that all devices compute together.
  """

  def __init__(
      self, addresses: Sequence[str], config: data.DataConfig, *,
      resolutions: Sequence[int] = (), patches: bool = True):
    """Opens the teachers.

    Args:
      addresses: weights of the teachers.
      config: section `data` of the images.
      resolutions: sides of the images that each teacher sees; by default those
        of its weights.
      patches: whether patch features are stored.

    Raises:
      UserError: if a teacher does not fit the images.
    """
    if not config.is_picture:
      raise UserError(
          'Outputs of teachers are stored with 8-bit images of 1 or 3 '
          f'channels, but these have {config.channels} channels of '
          f'{config.dtype}. Train with --config.objective.teachers instead.')
    self._config, self._patches = config, patches
    section = features.FeaturesConfig(
        teachers=(*addresses,), resolutions=(*resolutions,),
        patch_weight=float(patches))
    teachers = section.open_teachers(self._open)
    self._loss = features.FeatureLoss(
        section, objective.Context(model=None, teachers=teachers))
    read = {str(i): teacher.read() for i, teacher in enumerate(teachers)}
    shapes = jax.eval_shape(
        self._loss.targets, {objective.TEACHER: read},
        {'image': jax.ShapeDtypeStruct((1, *config.image_shape), 'float32')})
    self.stored = cached.Stored(tuple(
        cached.Teacher(
            address, _hash(read[str(i)]), teacher.resolution,
            **{name: found.shape[1:] for name, found in shape.items()})
        for i, (address, teacher, shape) in enumerate(
            zip(addresses, teachers, shapes, strict=True))), config.image_shape)
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ('batch',))
    whole, self._split = (
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ('batch',)))
    self._params = jax.device_put({objective.TEACHER: read}, whole)
    self.batch_size = _BATCH * mesh.size
    self._apply = jax.jit(self._vectors, out_shardings=self._split)

  @property
  def declaration(self) -> str:
    """The declaration of the outputs as JSON."""
    return json.dumps(schema.to_plain(self.stored), sort_keys=True)

  def __call__(
      self, images: UInt8[np.ndarray, 'images height width channels'],
  ) -> Float16[np.ndarray, 'images outputs']:
    """Returns the vector of each image; raises if one is not finite."""
    found = []
    for start in range(0, len(images), self.batch_size):
      batch = images[start:start + self.batch_size]
      padded = np.zeros((self.batch_size, *batch.shape[1:]), batch.dtype)
      padded[:len(batch)] = batch  # One shape, which is compiled once.
      found.append(np.asarray(self._apply(
          self._params, jax.device_put(padded, self._split)))[:len(batch)])
    result = np.concatenate(found)
    if not np.isfinite(result).all():
      raise UserError(
          f'Outputs of {self.stored.addresses} are not finite as float16, '
          'which holds numbers up to 65,504. Train with '
          '--config.objective.teachers on the source of the images instead.')
    return result

  def _vectors(self, params: types.Params, images: Any) -> jax.Array:
    scale = value_scale_lib.ValueScale(value_range=self._config.value_range)
    targets = self._loss.targets(params, {'image': scale.to_unit(images)})
    return jnp.concatenate([
        target[name].reshape(len(images), -1)
        for target in targets for name in self._loss.features],
                           axis=1).astype(jnp.float16)

  def _open(self, address: str, which: Any) -> Any:
    """Returns a teacher in the dtype of a run on these devices."""
    model = open_lib.open_model(address, which=which, log=None)
    if self._patches:
      feature_layers.check_has_tokens(
          model.config, cached.PATCHES, instead='--no-patches')
    data.check_pixels(
        self._config, model.preprocess, owner=f'The teacher {address}')
    return dataclasses.replace(model, config=factory.with_dtype(
        dataclasses.replace(
            model.config.without_fused_kernels(), dtype='auto'),
        jax.local_devices()))


def _hash(params: types.Params) -> str:
  """Returns a hash of the names and values of parameters."""
  digest = hashlib.blake2b(digest_size=8)
  for name, array in sorted(tree.flatten(params).items()):
    digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
  return digest.hexdigest()
