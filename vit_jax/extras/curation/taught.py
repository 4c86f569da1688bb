"""Crops of images, stored with the outputs of teachers for their pixels.

A student then trains without running its teachers (`distill_features`).
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vit_jax import data
from vit_jax import fields
from vit_jax import registry
from vit_jax.data import examples
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.extras.curation import beam_runner


@runtime_checkable
class Outputs(Protocol):
  """Maps images to vectors of float16."""
  batch_size: int  # Images that are computed together.

  def __call__(self, images: np.ndarray) -> np.ndarray:
    """Returns a vector for each image."""


@dataclasses.dataclass(frozen=True)
class Taught:
  """Examples with outputs of teachers.

  Attributes:
    name: feature of the outputs.
    length: number of values of an example.
    declaration: teachers and layout of the outputs, as JSON.
    summary: the same for people.
    patches: whether they include patch features.
    crops: examples of each training image. One has the operations of
      evaluation, more have those of training.
    seed: seed of the crops.
  """
  name: str
  length: int
  declaration: str
  summary: str
  patches: bool = True
  crops: int = 1
  seed: int = 0

  def __post_init__(self):
    fields.check_range(self, 'crops', low=1)

  @property
  def num_bytes(self) -> int:
    """Size of the outputs of an example."""
    return 2 * self.length

  def check_ops(self, config: data.DataConfig) -> None:
    """Raises a `UserError` if all crops of an image would be the same."""
    if self.crops > 1 and all(
        op.least is not None for op in config.build_ops(train=True)):
      raise UserError(
          f'--crops={self.crops} needs random operations, but data.train_ops '
          'has none. Set them, such as --config.data.train_ops='
          '\'[{"op":"inception_crop"},{"op":"flip"}]\', or remove --crops.')

  def crop(
      self, load: examples.LoadExample, image: Any, *, key: str, number: int,
  ) -> np.ndarray:
    """Returns the pixels of a crop, which depend on seed, key and number."""
    rng = np.random.default_rng(
        [self.seed, split_strings.stable_hash(key), number])
    return load.apply_ops(load.config.decode(image), rng)


def open_outputs(
    settings: Mapping[str, Any], *, teachers: str, resolutions: str,
    patches: bool, crops: int, seed: int, runner: str,
) -> tuple[Taught | None, Outputs | None]:
  """Opens the teachers of the flags of `data prepare`; None without.

  Raises:
    UserError: if a teacher does not fit the images, or flags each other.
  """
  if not teachers:
    if resolutions or not patches or crops != 1:
      raise UserError('--teacher-resolution, --no-patches and --crops apply to '
                      'outputs of teachers. Add --teacher=ADDRESS.')
    return None, None
  if runner != beam_runner.LOCAL:
    raise UserError(
        f'--teacher runs on the devices of this process, but --runner is '
        f'{runner}. Use --runner={beam_runner.LOCAL}.')
  config = data.parse(settings)
  try:
    sides = [int(side) for side in resolutions.split(',') if side]
  except ValueError as error:
    raise UserError('--teacher-resolution takes pixels, one number for each '
                    f'teacher; got {resolutions!r}.') from error
  outputs = registry.load(registry.TEACHER_OUTPUTS)(
      teachers.split(','), config, resolutions=sides, patches=patches)
  stored = outputs.stored
  taught = Taught(
      stored.name, stored.length, outputs.declaration,
      f'outputs of {stored.describe()} for images of {config.size[0]} x '
      f'{config.size[1]} pixels', patches, crops, seed)
  taught.check_ops(config)
  return taught, outputs

