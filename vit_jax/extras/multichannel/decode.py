"""Decodes images with any number of channels, 16-bit integers or floats.

`MultichannelImage` implements the crop and flip of Pillow images, and resizes
each of its channels like a grey image.

**Values are never rescaled**: `data.value_range` gives their meaning. A value
that the batch's dtype cannot hold is an error.
"""

import contextlib
import dataclasses
from typing import Any

import numpy as np
from PIL import Image

from vit_jax import exceptions
from vit_jax.data.images import decode as decode_lib
from vit_jax.data.images import image_file
from vit_jax.data.images import resize as resize_lib
from vit_jax.exceptions import UserError

# Modes whose stored numbers are not intensities.
_INDEXED = ('P', 'PA', '1')


@dataclasses.dataclass(frozen=True, eq=False)
class MultichannelImage:
  """Pixels [height, width, channels] with the methods of a Pillow image."""
  pixels: np.ndarray

  def __array__(
      self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    return np.array(self.pixels, dtype, copy=copy)

  @property
  def size(self) -> tuple[int, int]:
    """(width, height), like Pillow."""
    return self.width, self.height

  @property
  def width(self) -> int:
    return self.pixels.shape[1]

  @property
  def height(self) -> int:
    return self.pixels.shape[0]

  def crop(self, box: tuple[int, int, int, int]) -> 'MultichannelImage':
    """Returns (left, top, right, bottom), with zeros beyond the edges."""
    left, top, right, bottom = box
    padded = np.pad(self.pixels, (
        (max(-top, 0), max(bottom - self.height, 0)),
        (max(-left, 0), max(right - self.width, 0)), (0, 0)))
    first_row, first_column = max(top, 0), max(left, 0)
    return MultichannelImage(padded[
        first_row:first_row + bottom - top,
        first_column:first_column + right - left])

  def transpose(self, method: Image.Transpose) -> 'MultichannelImage':
    """Returns the image mirrored left to right."""
    assert method == Image.Transpose.FLIP_LEFT_RIGHT, method
    return MultichannelImage(self.pixels[:, ::-1])

  def resized(
      self, size: tuple[int, int], **options: Any) -> 'MultichannelImage':
    """Returns the image with each channel resized by `resize.resize`."""
    dtype = self.pixels.dtype
    working = dtype if dtype == np.uint8 else np.dtype(np.float32)
    resized = np.stack([
        np.asarray(resize_lib.resize(Image.fromarray(
            np.ascontiguousarray(channel, working)), size, **options))
        for channel in np.moveaxis(self.pixels, -1, 0)], axis=-1)
    if dtype == np.uint16:  # Filters with negative weights overshoot.
      resized = np.clip(np.rint(resized), 0, 0xffff)
    return MultichannelImage(resized.astype(dtype))


def decode(
    image: bytes | np.ndarray | Image.Image, *, channels: int,
    dtype: decode_lib.Dtype,
    max_pixels: int = image_file.MAX_PIXELS,
) -> MultichannelImage:
  """Returns the unscaled pixels of a file or array.

  `image` is pixels [height, width, channels] or [height, width], a Pillow
  image, or the bytes of a .npy file, of a TIFF with one page per channel, or of
  an image file with one band per channel.

  Raises:
    UserError: if the image is invalid, has other channels, or values that
      `dtype` cannot hold.
  """
  if isinstance(image, np.ndarray):
    pixels = image
  elif isinstance(image, Image.Image):
    _check_intensities(image)
    image = image.copy()
    image_file.apply_orientation(image)
    pixels = np.asarray(image)
  elif image.startswith(decode_lib.NUMPY):
    pixels = decode_lib.load_array(image, max_pixels=max_pixels)
  else:
    pixels = _read(image_file.open_image(image, max_pixels=max_pixels), image,
                   channels=channels, dtype=dtype)
  if pixels.ndim == 2:
    pixels = pixels[..., None]
  if pixels.ndim != 3 or pixels.shape[-1] != channels:
    transposed = pixels.ndim == 3 and pixels.shape[0] == channels
    raise UserError(
        f'its shape is {list(pixels.shape)}, but [height, width, {channels}] '
        'was expected (data.channels). Channels come last'
        + ': transpose it to (1, 2, 0).' * transposed + '.' * (not transposed))
  return MultichannelImage(_cast(pixels, dtype))


def _check_intensities(image: Image.Image) -> None:
  if image.mode in _INDEXED:
    raise UserError(
        f'its pixels of mode {image.mode} are colour indices, not intensities. '
        'Use data.channels=1 or 3 with data.dtype=uint8.')


def _cast(pixels: np.ndarray, dtype: decode_lib.Dtype) -> np.ndarray:
  if pixels.dtype.kind not in 'buif':
    raise UserError(
        f'its values are {pixels.dtype}, but real numbers were expected.')
  if dtype != 'float32':
    largest = np.iinfo(dtype).max
    if pixels.dtype.kind == 'f' or (pixels.size and not (
        pixels.min() >= 0 and pixels.max() <= largest)):
      raise UserError(
          f'its values are {pixels.dtype} from {pixels.min():g} to '
          f'{pixels.max():g}, but data.dtype {dtype} holds integers from 0 to '
          f'{largest}. Use another data.dtype, with its data.value_range.')
  with np.errstate(over='ignore'):  # Becomes infinite, an error.
    result = np.ascontiguousarray(pixels, dtype)
  if not np.isfinite(result).all():
    raise UserError(
        f'{int((~np.isfinite(result)).sum())} of its {result.size} values are '
        'NaN, infinite or beyond float32. Replace them.')
  return result


def _read(
    image: Image.Image, data: bytes, *, channels: int, dtype: decode_lib.Dtype,
) -> np.ndarray:
  """Returns the bands of an image file, or its pages as channels."""
  if dtype != 'uint8' and (
      image_file.is_deep(image) and image.mode[0] not in 'IF'):
    raise UserError(
        'Pillow reads only 8 bits of 16-bit colour. Use data.dtype=uint8, or '
        'convert the file to a .npy array.')
  _check_intensities(image)
  pages = 1
  if image.format == 'TIFF':
    with _explained(data):
      pages = getattr(image, 'n_frames', 1)
  if not pages == channels > 1:
    image_file.load(image, data)
    image_file.apply_orientation(image)
    return np.asarray(image)
  arrays, size, mode = [], image.size, image.mode
  for number in range(channels):
    with _explained(data):
      image.seek(number)
    if (image.size, image.mode) != (size, mode) or len(image.getbands()) > 1:
      raise UserError(
          f'its page {number} has the size and mode {image.size} {image.mode}, '
          f'but the first has {size} {mode}. Expected {channels} pages of the '
          'same size, each with one band.')
    image_file.load(image, data)  # Pillow applies the orientation of a TIFF.
    arrays.append(np.asarray(image))
  return np.stack(arrays, axis=-1)


def _explained(data: bytes) -> contextlib.AbstractContextManager[None]:
  """Replaces the exceptions of Pillow's readers; `data` is the file."""
  return exceptions.replaced_by(
      lambda error: UserError(image_file.describe_error(error, data)))
