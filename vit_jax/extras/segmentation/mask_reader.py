"""Masks of images: read, checked, and changed as their images.

`registry.MASKS` names this module, which datasets with masks use.
"""

from collections.abc import Sequence
import copy
import dataclasses
from typing import Any

from jaxtyping import Shaped, UInt8
import numpy as np
from PIL import Image

from vit_jax import exceptions
from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data.images import image_file
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

IGNORED = 255  # Value of mask pixels without a class, once read.
Mask = UInt8[np.ndarray, 'height width']


def with_masks(
    dataset: dataset_lib.Dataset, classes: Sequence[str] = (), *,
    ignored: int = IGNORED,
) -> dataset_lib.Dataset:
  """Returns the dataset with `segmentation` in its batches.

  Args:
    dataset: images with masks.
    classes: names of the mask values from 0, which become the classes of the
      dataset in place of the labels of images; () keeps these.
    ignored: value of mask pixels without a class, with `classes`.

  Raises:
    UserError: if there are no masks.
  """
  if not dataset.planned and protocol.SEGMENTATION not in dataset[0]:
    raise UserError(
        f'{dataset.name} has no segmentation masks. Use a folder with images/ '
        'and masks/, a TFDS dataset with the feature segmentation_mask, such '
        'as oxford_iiit_pet, or shapes.')
  if not classes:
    return dataclasses.replace(dataset, masks=True)
  return dataclasses.replace(
      dataset, masks=True, ignored=ignored, num_classes=len(classes),
      class_names=tuple(classes), multi_label=False, targets=(),
      no_labels=protocol.NO_IMAGE_LABELS)


class MaskReader:
  """Reads the masks of a dataset, and applies operations to them."""

  def __init__(
      self, dataset: dataset_lib.Dataset, config: data_config.DataConfig,
      ops: Sequence[ops_lib.Operation], *, train: bool):
    """Raises a `UserError` for operations that masks cannot follow."""
    if train and (config.mixup or config.cutmix):
      raise UserError(
          'data.mixup and data.cutmix do not apply to masks. Set both to 0.')
    self._dataset, self._config, self._ops = dataset, config, ops
    where = f'data.{"train" if train else "eval"}_ops'
    self._mask_ops = [_for_mask(op, where=where) for op in ops]

  def read(self, example: Any, size: tuple[int, int]) -> Mask:
    """Returns the mask of an image of size (width, height)."""
    mask = read(example[protocol.SEGMENTATION], image_size=size,
                max_pixels=self._config.max_pixels)
    ignored, num_classes = self._dataset.ignored, self._dataset.num_classes
    if ignored is None:
      return mask
    mask = np.where(mask == ignored, np.uint8(IGNORED), mask)
    wrong = mask[(mask >= num_classes) & (mask != IGNORED)]
    if wrong.size:
      raise UserError(
          f'its mask has the value {wrong[0]}, but the {num_classes} classes '
          f'have the values 0 to {num_classes - 1}, and pixels without a class '
          f'{ignored}. Correct objective.classes or objective.ignored.')
    return mask

  def apply(
      self, example: Any, image: ops_lib.Picture, rng: np.random.Generator,
  ) -> tuple[ops_lib.Picture, Mask]:
    """Returns image and mask of an example after the operations."""
    # Operations pad with zeros, which stand for pixels without a class.
    inverted = Image.fromarray(IGNORED - self.read(example, image.size))
    for op, mask_op in zip(self._ops, self._mask_ops):
      if mask_op is not None:
        inverted = mask_op(inverted, copy.deepcopy(rng))
      image = op(image, rng)
    return image, IGNORED - np.asarray(inverted)

  def read_original(self, example: Any, size: tuple[int, int]) -> Mask:
    """Returns `read`; raises a `UserError` if operations crop the image."""
    check_whole(self._ops, where='data.eval_ops')
    return self.read(example, size)


def _for_mask(op: Any, *, where: str) -> ops_lib.Operation | None:
  """Returns the operation for the mask of an image; None if it stays as it is.

  Raises:
    UserError: for an operation that masks cannot follow; names the setting
      `where`.
  """
  if op.masks == 'none':
    raise UserError(
        f'{where} has {type(op).__name__}, which does not apply to masks. Use '
        'crops, resize, flip and changes of colour.')
  if op.masks == 'nearest':
    return dataclasses.replace(op, method='nearest')
  return op if op.masks == 'follows' else None


def check_whole(ops: Sequence[ops_lib.Operation], *, where: str) -> None:
  """Raises a UserError unless the operations resize the whole image."""
  if not all(isinstance(op, ops_lib.Resize) and op.size for op in ops):
    raise UserError(
        f'{where}: {ops_lib.to_sections(ops)} may crop images, but the classes '
        "of all pixels of an image need a resize only: [{'op': 'resize'}].")


def read(
    mask: bytes | Shaped[np.ndarray, '...'], *, image_size: tuple[int, int],
    max_pixels: int,
) -> Mask:
  """Returns the class of each pixel of an image.

  `mask` is an image file (grey or palette) or an array of class indices;
  `image_size` is the (width, height) of the image. Raises a `UserError` for
  other masks.
  """
  if isinstance(mask, bytes):
    with exceptions.within('its mask cannot be read'):
      file = image_file.open_image(mask, max_pixels=max_pixels)
      image_file.load(file, mask)
    mask = np.asarray(file)
  if mask.ndim != 2 or mask.dtype.kind not in 'bui' or not (
      0 <= mask.min() <= mask.max() <= 255):
    raise UserError(
        f'its mask has pixels {mask.dtype} {list(mask.shape)} up to '
        f'{mask.max()}; expected one class from 0 to 255 per pixel, as in a '
        'grey or palette PNG.')
  if mask.shape[::-1] != image_size:
    raise UserError(
        f'its mask has {mask.shape[0]} x {mask.shape[1]} pixels, but the image '
        f'has {image_size[1]} x {image_size[0]}.')
  return mask.astype(np.uint8)
