"""Images that Pillow has no mode for: any number of channels, 16 bits, floats.

`Bands` is an array with as much of a Pillow image as operations that only move
pixels ask for: resize, crop, flip. Each channel is resized by Pillow, as grey
of 8 bits or of floats, so that filters and antialiasing are those of any image.

**Values are carried as they are in the file, never scaled**: `data.value_range`
says what they mean. A value that the batch's type cannot hold is an error.
"""

from collections.abc import Sequence
import dataclasses
import io
import math
from typing import Literal

import numpy as np
from PIL import Image
from PIL import ImageOps

from vit_jax.data.images import limits

Dtype = Literal['uint8', 'uint16', 'float32']

NUMPY = b'\x93NUMPY'  # What a .npy file begins with.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}
# Of a palette, and of single bits, the stored numbers are no brightness.
_NO_VALUES = ('P', 'PA', '1')


@dataclasses.dataclass(frozen=True, eq=False)
class Bands:
  """Pixels [height, width, channels], to be cut, mirrored and resized."""
  pixels: np.ndarray

  @property
  def size(self) -> tuple[int, int]:
    """Width and height, as Pillow has them."""
    return self.width, self.height

  @property
  def width(self) -> int:
    return self.pixels.shape[1]

  @property
  def height(self) -> int:
    return self.pixels.shape[0]

  def resize(
      self, size: tuple[int, int], method: Image.Resampling,
      box: tuple[float, float, float, float] | None = None,
  ) -> 'Bands':
    """Returns the pixels, or those in a box, at another (width, height)."""
    dtype = self.pixels.dtype
    through = dtype if dtype == np.uint8 else np.dtype(np.float32)
    resized = np.stack([
        np.asarray(Image.fromarray(
            np.ascontiguousarray(channel, through)).resize(
                size, method, box=box))
        for channel in np.moveaxis(self.pixels, -1, 0)], axis=-1)
    if dtype == np.uint16:  # Filters with negative weights overshoot.
      resized = np.clip(np.rint(resized), 0, 0xffff)
    return Bands(resized.astype(dtype))

  def crop(self, box: tuple[int, int, int, int]) -> 'Bands':
    """Returns (left, top, right, bottom); zeros beyond the edges."""
    left, top, right, bottom = box
    cut = np.zeros((bottom - top, right - left, self.pixels.shape[-1]),
                   self.pixels.dtype)
    y = slice(max(top, 0), max(bottom, 0))
    x = slice(max(left, 0), max(right, 0))
    inside = self.pixels[y, x]
    row, column = max(-top, 0), max(-left, 0)
    cut[row:row + inside.shape[0], column:column + inside.shape[1]] = inside
    return Bands(cut)

  def transpose(self, method: Image.Transpose) -> 'Bands':
    """Returns the pixels mirrored left to right."""
    assert method == Image.Transpose.FLIP_LEFT_RIGHT, method
    return Bands(self.pixels[:, ::-1])


def decode(
    image: bytes | np.ndarray, *, channels: int, dtype: Dtype,
    max_pixels: int = limits.MAX_PIXELS,
) -> Bands:
  """Returns the pixels of a file or array, as they are.

  Args:
    image: pixels [height, width, channels], or [height, width] of one channel;
      or the bytes of a .npy file of such, of a TIFF with a page for each
      channel, or of an image whose bands are the channels: RGBA and CMYK for 4,
      grey of 8, 16 or 32 bits for 1.
    channels: how many there are to be.
    dtype: of the result.
    max_pixels: the most that an image file may have.

  Raises:
    ValueError: if it cannot be read, has other channels, or holds values that
      `dtype` does not.
  """
  if isinstance(image, np.ndarray):
    pixels = image
  elif image.startswith(NUMPY):
    pixels = load_array(image)
  else:
    opened = limits.open_image(image, max_pixels=max_pixels)
    try:
      pixels = _read(opened, channels=channels, dtype=dtype)
    except ValueError:
      raise
    except Exception as error:
      raise ValueError(limits.unreadable(error, image)) from error
  if pixels.ndim == 2:
    pixels = pixels[..., None]
  if pixels.ndim != 3 or pixels.shape[-1] != channels:
    transposed = pixels.ndim == 3 and pixels.shape[0] == channels
    raise ValueError(
        f'its shape is {list(pixels.shape)}, but [height, width, {channels}] '
        'was expected (data.channels)' + (
            '. Channels come last: transpose it to (1, 2, 0).' if transposed
            else '.'))
  return Bands(_fitted(pixels, dtype))


def load_array(data: bytes) -> np.ndarray:
  """Returns the array of a .npy file.

  Raises:
    ValueError: if it is damaged, or holds Python objects.
  """
  file = io.BytesIO(data)
  try:
    shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
    promised = math.prod(shape) * dtype.itemsize
    if promised > len(data) - file.tell():  # NumPy takes the memory first.
      raise ValueError(f'{promised:,} bytes of {dtype} {shape} were expected')
    file.seek(0)
    return np.load(file, allow_pickle=False)
  # Its header is text to parse, and parsing raises whatever it meets.
  except Exception as error:
    raise ValueError(
        f'not a readable .npy file: {error} ({len(data)} bytes)') from error


def is_deep(image: Image.Image) -> bool:
  """Returns whether an image file has 16 bits a colour, or more.

  Of one that is opened, but not loaded: then nobody can tell.
  """
  return image.mode in ('I', 'F') or ';16' in str(getattr(image, 'tile', ''))


def _fitted(pixels: np.ndarray, dtype: Dtype) -> np.ndarray:
  if pixels.dtype.kind not in 'buif':
    raise ValueError(f'its values are {pixels.dtype}, which are no numbers.')
  if dtype != 'float32':
    largest = np.iinfo(dtype).max
    if pixels.dtype.kind == 'f' or (pixels.size and not (
        pixels.min() >= 0 and pixels.max() <= largest)):
      raise ValueError(
          f'its values are {pixels.dtype} from {pixels.min():g} to '
          f'{pixels.max():g}, but data.dtype {dtype} holds whole numbers from '
          f'0 to {largest}. Use another data.dtype, with its data.value_range.')
  elif not np.isfinite(pixels).all():
    raise ValueError(
        f'{int((~np.isfinite(pixels)).sum())} of its {pixels.size} values are '
        'NaN or infinite. Replace them: a network has no answer to them.')
  return np.ascontiguousarray(pixels, dtype)


def _read(
    image: Image.Image, *, channels: int, dtype: Dtype) -> np.ndarray:
  """Returns what an image file holds: its bands, or its pages as channels."""
  narrowed = is_deep(image) and image.mode[0] not in 'IF'
  pages = getattr(image, 'n_frames', 1) if image.format == 'TIFF' else 1
  stacked = pages == channels > 1
  size = image.size
  arrays: Sequence[np.ndarray] = [
      _page(image, number, size)
      for number in range(channels if stacked else 1)]
  if narrowed and dtype != 'uint8':
    raise ValueError(
        'of 16-bit colour, Pillow reads 8 bits alone. Use data.dtype=uint8, or '
        'convert it to a .npy array.')
  if stacked and any(a.ndim != 2 for a in arrays):
    raise ValueError(
        f'it has {pages} pages of several bands each, but a page for each '
        f'of {channels} channels was expected.')
  return np.stack(arrays, axis=-1) if stacked else arrays[0]


def _page(
    image: Image.Image, number: int, size: tuple[int, int]) -> np.ndarray:
  if number:
    image.seek(number)
  if image.size != size:
    raise ValueError(
        f'its page {number} has {image.height} x {image.width} pixels, but '
        f'the first has {size[1]} x {size[0]}.')
  if image.mode in _NO_VALUES:
    raise ValueError(
        f'its pixels are of mode {image.mode}, numbers of colours and not of '
        'brightness. Use data.channels=1 or 3 with data.dtype=uint8.')
  return np.asarray(ImageOps.exif_transpose(image))
