"""Decodes image files, or raises a UserError; many are read in threads."""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import itertools
import os
from typing import Any, Literal, TypeVar
import warnings

from jaxtyping import Shaped
import numpy as np
from PIL import Image

from vit_jax import registry
from vit_jax import untrusted
from vit_jax.data.images import image_file
from vit_jax.exceptions import UserError

# Otherwise repeated in every epoch.
warnings.filterwarnings('ignore', 'Corrupt EXIF', module=r'PIL\.')
# Pillow reuses up to 8 freed blocks of 16 MiB. Otherwise the kernel clears new
# pages for each image: 0.3 of 2.3 ms for 500 x 375 pixels.
Image.core.set_blocks_max(8)

Item = TypeVar('Item')
Result = TypeVar('Result')
Dtype = Literal['uint8', 'uint16', 'float32']

NUMPY = b'\x93NUMPY'  # Magic bytes of .npy files.

# Pillow decodes without holding the interpreter lock.
_THREADS = min(8, os.cpu_count() or 1)
_MODES = {1: 'L', 3: 'RGB'}
CHUNK = 64  # Images read at a time; twice as many are in memory.


def is_picture(*, channels: int, dtype: Dtype) -> bool:
  """Whether images are decoded as Pillow images: 8-bit grey or RGB."""
  return dtype == 'uint8' and channels in _MODES


def decode(
    image: bytes | Shaped[np.ndarray, '...'] | Image.Image, *, channels: int,
    dtype: Dtype = 'uint8', max_pixels: int = image_file.MAX_PIXELS,
) -> Any:
  """Decodes an image file or array, or converts a Pillow image.

  The result is a Pillow image for uint8 with 1 or 3 channels:

  | file               | 1 channel                  | 3 channels              |
  |--------------------|----------------------------|-------------------------|
  | grey               | unchanged                  | repeated                |
  | RGB                | luma (ITU-R 601)           | unchanged               |
  | palette            | luma of its colours        | its colours             |
  | transparent        | luma on white              | on white                |
  | CMYK, YCbCr, Lab   | luma of RGB                | RGB, without profile    |
  | 16-bit grey        | upper 8 bits               | upper 8 bits, repeated  |
  | 16-bit colour      | luma of the upper 8 bits   | upper 8 bits            |
  | 32-bit integer     | like 16-bit grey; an error for larger values         |
  | float              | an error                                             |

  The EXIF orientation is applied (a defective EXIF block is ignored). Only the
  first frame of animations and multi-page files is decoded. For other channels
  and types, `registry.IMAGE_DECODER` returns an image with the size, the crop
  and the flip of a Pillow image, and `resized`.

  `image` is the bytes of an image or .npy file, uint8 pixels [height, width],
  [height, width, 1] or [height, width, 3], or a Pillow image.

  Raises:
    UserError: if the image is invalid, incomplete or too large.
  """
  if not is_picture(channels=channels, dtype=dtype):
    return registry.load(registry.IMAGE_DECODER)(
        image, channels=channels, dtype=dtype, max_pixels=max_pixels)
  if isinstance(image, bytes) and image.startswith(NUMPY):
    image = load_array(image, max_pixels=max_pixels)
  if isinstance(image, np.ndarray):
    pixels = _from_array(image)
  elif isinstance(image, Image.Image):
    pixels = image_file.upright_on_white(image.copy())
  else:
    pixels = image_file.read(image, max_pixels=max_pixels)
  mode = _MODES[channels]
  return pixels if pixels.mode == mode else pixels.convert(mode)


def _from_array(image: Shaped[np.ndarray, '...']) -> Image.Image:
  if image.dtype != np.uint8 or image.shape[2:] not in ((), (1,), (3,)):
    raise UserError(
        f'its pixels are {image.dtype} {list(image.shape)}, but uint8 '
        '[height, width, 1 or 3] was expected. Channels come last. Set '
        'data.channels and data.dtype (uint16 or float32, with '
        'data.value_range).')
  return Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image)


def load_array(
    data: bytes, *, max_pixels: int = image_file.MAX_PIXELS) -> np.ndarray:
  """Returns the array [height, width, ...] of a .npy file.

  Raises:
    UserError: if the file is damaged, empty or too large, or contains Python
      objects.
  """
  try:
    array = untrusted.parse_npy(data)
  except Exception as error:
    raise UserError(
        f'not a readable .npy file: {error} ({len(data)} bytes)') from error
  height, width = (*array.shape, 1, 1)[:2]
  image_file.check_pixels((width, height), max_pixels)
  return array


def read_chunks(
    items: Iterable[Item], read: Callable[[Item], Result], *,
    errors: tuple[type[Exception], ...], size: int = CHUNK,
) -> Iterator[tuple[
    list[tuple[Item, Result]], list[tuple[Item, Exception]]]]:
  """Yields (item, result) and (item, exception) of each chunk, in order.

  The next chunk of `size` items is read while the caller works on one; two are
  in memory. Exceptions of type `errors` are returned instead of raised.
  """
  remaining = iter(items)

  def attempt(item: Item) -> tuple[Item, Any, Exception | None]:
    try:
      return item, read(item), None
    except errors as error:
      return item, None, error

  with futures.ThreadPoolExecutor(_THREADS) as pool:
    chunk = list(pool.map(attempt, itertools.islice(remaining, size)))
    while chunk:
      following = pool.map(attempt, itertools.islice(remaining, size))
      yield ([(item, result) for item, result, error in chunk if not error],
             [(item, error) for item, _, error in chunk if error])
      chunk = list(following)
