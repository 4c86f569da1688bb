"""Frozen teachers: what they see, and their parameters in a training state.

Those of teacher i are frozen parameters of the state, under `teacher/i/`, so
that they are sharded like others. Checkpoints leave them out.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax import tree
from vit_jax import types
from vit_jax.models import factory
from vit_jax.objectives import objective
from vit_jax.weights import weights as weights_lib

W = TypeVar('W', bound=weights_lib.Weights)


def image(teacher: weights_lib.Weights) -> jax.ShapeDtypeStruct:
  """Returns the shape of one image of a teacher."""
  return jax.ShapeDtypeStruct(
      (1, *teacher.resolution, teacher.preprocess.channels), 'float32')


def params(teachers: Sequence[weights_lib.Weights]) -> dict[str, Any]:
  """Returns boxed zeros in place of the parameters of all teachers."""
  def zeros(teacher: weights_lib.Weights) -> Any:
    boxed = jax.eval_shape(lambda: factory.init(
        _module(teacher), jax.random.key(0), image(teacher)))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), boxed)

  return {str(number): zeros(teacher)
          for number, teacher in enumerate(teachers)}


def outputs(
    teacher: weights_lib.Weights, params: types.Params,
    images: objective.Images,
) -> types.Outputs:
  """Returns the outputs of a teacher for images in [0, 1].

  It sees them in its own size and scale. No gradient is propagated.
  """
  scaled = teacher.preprocess.value_scale.normalize(images)
  shape = (len(images), *image(teacher).shape[1:])
  if scaled.shape != shape:
    scaled = jax.image.resize(scaled, shape, 'bilinear')
  return jax.lax.stop_gradient(
      _module(teacher).apply({'params': params}, scaled))


def resize(teacher: W, size: tuple[int, int]) -> W:
  """Returns a teacher with position embeddings for images of another size.

  Raises:
    UserError: if the size does not divide into patches, or its positions cannot
      be interpolated.
  """
  if size == teacher.resolution:
    return teacher
  old, new = map(teacher.config.grid, (teacher.resolution, size))

  def read() -> types.Params:
    return tree.map_with_name(
        lambda name, array: teacher.config.resize_positions(
            name, array, old_grid=old, new_grid=new,
            method=teacher.positions), teacher.read())

  resized = dataclasses.replace(teacher, read=read, resolution=size)
  shapes = nn.unbox(jax.eval_shape(lambda: factory.init(
      _module(resized), jax.random.key(0), image(resized))))
  return dataclasses.replace(resized, shapes=shapes)


def _module(teacher: weights_lib.Weights) -> nn.Module:
  return factory.build(teacher.config, num_classes=teacher.config.num_classes)
