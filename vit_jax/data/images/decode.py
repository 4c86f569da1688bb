"""Decodes image files, or raises a ValueError; many are read in threads."""

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import itertools
import os
from typing import Any, TypeVar
import warnings

from jaxtyping import Shaped
import numpy as np
from PIL import Image

from vit_jax.data.images import limits
from vit_jax.data.images import multichannel
from vit_jax.data.images import opaque

# Otherwise repeated in every epoch.
warnings.filterwarnings('ignore', 'Corrupt EXIF', module=r'PIL\.')
# Pillow reuses up to 8 freed blocks of 16 MiB. Otherwise the kernel clears new
# pages for each image: 0.3 of 2.3 ms for 500 x 375 pixels.
Image.core.set_blocks_max(8)

Item = TypeVar('Item')
Result = TypeVar('Result')

# Pillow decodes without holding the interpreter lock.
_THREADS = min(8, os.cpu_count() or 1)
_MODES = {1: 'L', 3: 'RGB'}
CHUNK = 64  # Images read at a time; twice as many are in memory.


def is_picture(*, channels: int, dtype: multichannel.Dtype) -> bool:
  """Whether images are decoded as Pillow images: 8-bit grey or RGB."""
  return dtype == 'uint8' and channels in _MODES


def decode(
    image: bytes | Shaped[np.ndarray, '...'], *, channels: int,
    dtype: multichannel.Dtype = 'uint8', max_pixels: int = limits.MAX_PIXELS,
) -> Any:
  """Decodes an image file or array.

  The result is a Pillow image for uint8 with 1 or 3 channels, and a
  `multichannel.MultichannelImage` for others. For uint8:

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
  and types, see `multichannel.decode`.

  `image` is the bytes of an image or .npy file, or uint8 pixels [height,
  width], [height, width, 1] or [height, width, 3].

  Raises:
    ValueError: if the image is invalid, incomplete or too large.
  """
  if not is_picture(channels=channels, dtype=dtype):
    return multichannel.decode(
        image, channels=channels, dtype=dtype, max_pixels=max_pixels)
  mode = _MODES[channels]
  if not isinstance(image, np.ndarray) and image.startswith(multichannel.NUMPY):
    image = multichannel.load_array(image, max_pixels=max_pixels)
  if isinstance(image, np.ndarray):
    if image.dtype != np.uint8 or image.shape[2:] not in ((), (1,), (3,)):
      raise ValueError(
          f'its pixels are {image.dtype} {list(image.shape)}, but uint8 '
          '[height, width, 1 or 3] was expected. Channels come last. Set '
          'data.channels and data.dtype (uint16 or float32, with '
          'data.value_range).')
    pixels = Image.fromarray(image[..., 0] if image.shape[2:] == (1,)
                             else image)
    return pixels if pixels.mode == mode else pixels.convert(mode)
  pixels = limits.open_image(image, max_pixels=max_pixels)
  stored = opaque.raw_mode(pixels)
  limits.load(pixels, image)
  opaque.scale_transparent(pixels, stored, image)
  return convert(pixels, channels=channels)


def convert(image: Image.Image, *, channels: int) -> Image.Image:
  """Converts an open image of any mode as `decode` does; may modify it.

  Raises:
    ValueError: if its pixels are not 8- or 16-bit integers.
  """
  limits.apply_orientation(image)
  mode = _MODES[channels]
  image = opaque.on_white(image)
  if image.mode == 'LAB':  # Which Pillow converts to RGB only.
    image = image.convert('RGB')
  return image if image.mode == mode else image.convert(mode)


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
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    def submit() -> list[tuple[Item, futures.Future]]:
      return [(item, pool.submit(read, item))
              for item in itertools.islice(remaining, size)]

    following = submit()
    while following:
      current, following = following, submit()
      found: list[tuple[Item, Result]] = []
      failed: list[tuple[Item, Exception]] = []
      for item, future in current:
        try:
          found.append((item, future.result()))
        except errors as error:
          failed.append((item, error))
      yield found, failed
