"""Segmentation masks, resized and cropped like their images."""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Shaped, UInt8
import numpy as np
from PIL import Image

from vit_jax.data.augment import ops as ops_lib
from vit_jax.data.images import limits


def load(
    mask: bytes | Shaped[np.ndarray, '...'], *, image_size: tuple[int, int],
    ops: Sequence[ops_lib.Op], max_pixels: int,
) -> UInt8[np.ndarray, 'height width']:
  """Returns the class of each pixel of the preprocessed image.

  `mask` is an image file (grey or palette) or an array of class indices;
  `image_size` is the (width, height) of the image before `ops`. Resizing uses
  the nearest pixel. Raises a `ValueError` for other masks or operations.
  """
  if isinstance(mask, bytes):
    try:
      file = limits.open_image(mask, max_pixels=max_pixels)
      file.load()
      mask = np.asarray(file)
    except Exception as error:
      raise ValueError(f'its mask cannot be read: {error}') from error
  if mask.ndim != 2 or mask.dtype.kind not in 'bui' or not (
      0 <= mask.min() <= mask.max() <= 255):
    raise ValueError(
        f'its mask has pixels {mask.dtype} {list(mask.shape)} up to '
        f'{mask.max()}; expected one class from 0 to 255 per pixel, as in a '
        'grey or palette PNG.')
  if mask.shape[::-1] != image_size:
    raise ValueError(
        f'its mask has {mask.shape[0]} x {mask.shape[1]} pixels, but the image '
        f'has {image_size[1]} x {image_size[0]}.')
  picture = Image.fromarray(mask.astype(np.uint8))
  for op in ops:
    if isinstance(op, ops_lib.Resize):
      op = dataclasses.replace(op, method='nearest')
    elif not isinstance(op, ops_lib.CentralCrop):
      raise ValueError(
          f'eval_ops contains {type(op).__name__}, but images with masks can '
          'only be resized (resize) and cropped (central_crop).')
    picture = op(picture, np.random.default_rng(0))  # Unused.
  return np.asarray(picture)
