"""Reads outputs of teachers that `data prepare --teacher` stored.

They are one float16 vector for each image, a field of the batch: the pooled
representation of each teacher, followed by its patch features. The feature of
the prepared dataset declares them, as JSON. Its name has a hash of the
teachers, so that outputs of other teachers are never taken for these.
"""

import dataclasses
import hashlib
import json
import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax import data
from vit_jax import schema
from vit_jax import types
from vit_jax import untrusted
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

POOLED, PATCHES = 'pooled', 'patches'
Features = dict[str, Float[Array, 'batch ...']]
_PREPARE = 'Prepare the images again with `data prepare --teacher`'


@dataclasses.dataclass(frozen=True)
class Teacher:
  """A teacher whose outputs are stored.

  Attributes:
    address: its weights.
    weights: hash of its parameters.
    resolution: height and width of the images that it saw.
    pooled: shape of the representation.
    patches: shape of the patch features; () if they are not stored.
  """
  address: str
  weights: str
  resolution: tuple[int, int]
  pooled: tuple[int, ...]
  patches: tuple[int, ...] = ()

  @property
  def shapes(self) -> dict[str, tuple[int, ...]]:
    """Shapes of the stored features by name, in their order."""
    return {POOLED: self.pooled} | ({PATCHES: self.patches} if self.patches
                                    else {})


@dataclasses.dataclass(frozen=True)
class Stored:
  """Declaration of stored outputs, for images of shape `image`."""
  teachers: tuple[Teacher, ...]
  image: tuple[int, int, int]

  @property
  def name(self) -> str:
    """Name of the feature of the dataset, and of the field of a batch."""
    text = json.dumps(schema.to_plain(self.teachers), sort_keys=True)
    return (f'{protocol.TEACHER}_'
            f'{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}')

  @property
  def length(self) -> int:
    """Length of the vector of an image."""
    return sum(math.prod(shape) for teacher in self.teachers
               for shape in teacher.shapes.values())

  def read(self, batch: types.Batch) -> list[Features]:
    """Returns the features of each teacher, from a batch."""
    vectors, start, found = batch[self.name], 0, list[Features]()
    for teacher in self.teachers:
      found.append({})
      for name, shape in teacher.shapes.items():
        end = start + math.prod(shape)
        found[-1][name] = vectors[:, start:end].reshape(
            -1, *shape).astype(jnp.float32)
        start = end
    return found

  @property
  def side(self) -> str:
    """The size of the images, as a value of `data.resolution`."""
    height, width, _ = self.image
    return f'{height}' if height == width else f'[{height},{width}]'

  @property
  def addresses(self) -> str:
    """Addresses of the teachers, for messages and flags."""
    return ','.join(teacher.address for teacher in self.teachers)

  def describe(self) -> str:
    """Returns the teachers and what they saw, for people."""
    return ' and '.join(
        f'{one.address} at {one.resolution[0]} x {one.resolution[1]} pixels '
        f'({", ".join(one.shapes)})' for one in self.teachers)

  def check_images(self, config: data.DataConfig) -> None:
    """Raises a `UserError` if a model would see other images than teachers."""
    fix = ('Prepare the images with other crops (`data prepare --teacher '
           '--crops`), or give --config.objective.teachers with the source of '
           'the images, so that teachers run in each step.')
    if config.image_shape != self.image:
      raise UserError(
          f'The model takes images of {config.image_shape} (height, width, '
          f'channels), but teachers saw the stored images of {self.image}. Use '
          f'--config.data.resolution={self.side}. {fix}')
    for train in (True, False):
      for op in config.build_ops(train=train):
        if op.removes_parts or (
            op.masks != 'stays' and op.least != config.size):
          raise UserError(
              f'data.{"train" if train else "eval"}_ops has {op}, which moves '
              'or removes pixels, but the outputs of teachers were computed '
              'once for the stored images. Remove it, so that [{"op": '
              f'"resize"}}] and changes of colour remain. {fix}')
    if config.mixup or config.cutmix:
      raise UserError(
          'data.mixup and data.cutmix blend images, but the outputs of '
          f'teachers are for single images. Set them to 0. {fix}')


def find(dataset: data.Metadata) -> Stored | None:
  """Returns the declaration of the outputs that a dataset has, if any."""
  for name, field in dataset.fields.items():
    stored = schema.parse(
        Stored, untrusted.parse_json(field.doc.desc), where=name)
    if (stored.name, (stored.length,)) == (name, tuple(field.shape)):
      return stored
    raise UserError(f'The feature {name} of the data is not what its '
                    f'description declares. {_PREPARE}.')
  return None
