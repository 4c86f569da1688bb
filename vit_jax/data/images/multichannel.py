"""Images with any number of channels, 16-bit integers or floats.

`MultichannelImage` implements the crop and flip of Pillow images; `resize`
resizes each of its channels like a grey image.

**Values are never rescaled**: `data.value_range` gives their meaning. A value
that the batch's dtype cannot hold is an error.
"""

import dataclasses
from typing import Literal

import numpy as np
from PIL import Image

from vit_jax import untrusted
from vit_jax.data.images import limits

Dtype = Literal['uint8', 'uint16', 'float32']

NUMPY = b'\x93NUMPY'  # Magic bytes of .npy files.
# Modes whose stored numbers are not intensities.
_INDEXED = ('P', 'PA', '1')


@dataclasses.dataclass(frozen=True, eq=False)
class MultichannelImage:
  """Pixels [height, width, channels] with the methods of a Pillow image."""
  pixels: np.ndarray

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


def decode(
    image: bytes | np.ndarray, *, channels: int, dtype: Dtype,
    max_pixels: int = limits.MAX_PIXELS,
) -> MultichannelImage:
  """Returns the unscaled pixels of a file or array.

  `image` is pixels [height, width, channels] or [height, width], or the bytes
  of a .npy file, of a TIFF with one page per channel, or of an image file with
  one band per channel.

  Raises:
    ValueError: if the image is invalid, has other channels, or values that
      `dtype` cannot hold.
  """
  if isinstance(image, np.ndarray):
    pixels = image
  elif image.startswith(NUMPY):
    pixels = load_array(image, max_pixels=max_pixels)
  else:
    opened = limits.open_image(image, max_pixels=max_pixels)
    try:
      pixels = _read(opened, image, channels=channels, dtype=dtype)
    except ValueError:
      raise
    except Exception as error:
      raise ValueError(limits.describe_error(error, image)) from error
  if pixels.ndim == 2:
    pixels = pixels[..., None]
  if pixels.ndim != 3 or pixels.shape[-1] != channels:
    transposed = pixels.ndim == 3 and pixels.shape[0] == channels
    raise ValueError(
        f'its shape is {list(pixels.shape)}, but [height, width, {channels}] '
        'was expected (data.channels). Channels come last'
        + ': transpose it to (1, 2, 0).' * transposed + '.' * (not transposed))
  return MultichannelImage(_cast(pixels, dtype))


def load_array(
    data: bytes, *, max_pixels: int = limits.MAX_PIXELS) -> np.ndarray:
  """Returns the array [height, width, ...] of a .npy file.

  Raises:
    ValueError: if the file is damaged, empty or too large, or contains Python
      objects.
  """
  try:
    array = untrusted.parse_npy(data)
    height, width = (*array.shape, 1, 1)[:2]
    limits.check_pixels((width, height), max_pixels)
    return array
  except Exception as error:
    raise ValueError(
        f'not a readable .npy file: {error} ({len(data)} bytes)') from error


def is_deep(image: Image.Image) -> bool:
  """Returns whether an undecoded file has 16 or more bits per value."""
  return image.mode in ('I', 'F') or ';16' in str(getattr(image, 'tile', ''))


def is_deep_file(image: bytes | np.ndarray) -> bool:
  """Returns whether an encoded image has 16 or more bits per value."""
  if isinstance(image, np.ndarray) or image.startswith(NUMPY):
    return False  # Arrays of more than 8 bits are not decoded to 8.
  with limits.open_image(image) as opened:
    return is_deep(opened)


def to_array(image: Image.Image) -> np.ndarray:
  """Returns the bands of an opened image in its orientation.

  Raises:
    ValueError: if its pixels are colour indices.
  """
  _check_intensities(image)
  image = image.copy()
  limits.apply_orientation(image)
  return np.asarray(image)


def _check_intensities(image: Image.Image) -> None:
  if image.mode in _INDEXED:
    raise ValueError(
        f'its pixels of mode {image.mode} are colour indices, not intensities. '
        'Use data.channels=1 or 3 with data.dtype=uint8.')


def _cast(pixels: np.ndarray, dtype: Dtype) -> np.ndarray:
  if pixels.dtype.kind not in 'buif':
    raise ValueError(
        f'its values are {pixels.dtype}, but real numbers were expected.')
  if dtype != 'float32':
    largest = np.iinfo(dtype).max
    if pixels.dtype.kind == 'f' or (pixels.size and not (
        pixels.min() >= 0 and pixels.max() <= largest)):
      raise ValueError(
          f'its values are {pixels.dtype} from {pixels.min():g} to '
          f'{pixels.max():g}, but data.dtype {dtype} holds integers from 0 to '
          f'{largest}. Use another data.dtype, with its data.value_range.')
  elif not np.isfinite(pixels).all():
    raise ValueError(
        f'{int((~np.isfinite(pixels)).sum())} of its {pixels.size} values are '
        'NaN or infinite. Replace them.')
  return np.ascontiguousarray(pixels, dtype)


def _read(
    image: Image.Image, data: bytes, *, channels: int, dtype: Dtype,
) -> np.ndarray:
  """Returns the bands of an image file, or its pages as channels."""
  if is_deep(image) and image.mode[0] not in 'IF' and dtype != 'uint8':
    raise ValueError(
        'Pillow reads only 8 bits of 16-bit colour. Use data.dtype=uint8, or '
        'convert the file to a .npy array.')
  _check_intensities(image)
  if image.format != 'TIFF' or not (
      getattr(image, 'n_frames', 1) == channels > 1):
    limits.load(image, data)
    limits.apply_orientation(image)
    return np.asarray(image)
  arrays, size, mode = [], image.size, image.mode
  for number in range(channels):
    image.seek(number)
    if (image.size, image.mode) != (size, mode) or len(image.getbands()) > 1:
      raise ValueError(
          f'its page {number} has the size and mode {image.size} {image.mode}, '
          f'but the first has {size} {mode}. Expected {channels} pages of the '
          'same size, each with one band.')
    limits.load(image, data)  # Pillow applies the orientation of a TIFF.
    arrays.append(np.asarray(image))
  return np.stack(arrays, axis=-1)
