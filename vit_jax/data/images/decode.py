"""A file's bytes, whoever wrote them, to grey or RGB of 8 bits.

Or to a ValueError, with a bounded amount of memory and of time: see `headers`.
Of an animation the first frame alone is read. A file that ends early is an
error: half an image is not what its label says.
"""

import contextlib

from jaxtyping import Shaped
import numpy as np
from PIL import Image
from PIL import ImageOps

from vit_jax.data.images import limits
from vit_jax.data.images import multichannel


def decode(
    image: bytes | Shaped[np.ndarray, '...'], *, channels: int,
    max_pixels: int = limits.MAX_PIXELS,
) -> Image.Image:
  """Returns the pixels of an image file or array as grey or RGB of 8 bits.

  | a file of          | 1 channel           | 3 channels                      |
  |--------------------|---------------------|---------------------------------|
  | grey               | as it is            | three times                     |
  | RGB                | its luma            | as it is                        |
  | palette            | the luma of colours | its colours                     |
  | RGBA, grey + alpha | laid on white first | laid on white                   |
  | CMYK, YCbCr, Lab   | the luma of RGB     | RGB, by Pillow, without profile |
  | 16-bit grey        | the upper 8 bits    | these three times               |
  | 16-bit colour      | as Pillow reads it: the upper 8 bits                  |
  | 32-bit integers    | as 16-bit grey; an error where a value is larger      |
  | floats             | an error                                              |

  All else, any number of channels and values of 16 bits or floats, is carried
  as it is: `bands.decode`.

  Turned upright as its EXIF orientation says (a defective EXIF block is
  passed over: the pixels are what matters). Transparency is laid on white,
  the paper that such pictures are drawn for. Of an animation, or of a TIFF of
  several pages, the first.

  Args:
    image: the bytes of a JPEG, PNG, WebP, GIF, BMP, ... or .npy file, or uint8
      pixels [height, width], [height, width, 1] or [height, width, 3].
    channels: 1 for grey (ITU-R 601 luma), 3 for RGB.
    max_pixels: the most that a file may have.

  Raises:
    ValueError: if the bytes are no whole image of `headers.FORMATS`, or one of
      more pixels.
  """
  mode = {1: 'L', 3: 'RGB'}[channels]
  if not isinstance(image, np.ndarray) and image.startswith(multichannel.NUMPY):
    image = multichannel.load_array(image)
  if isinstance(image, np.ndarray):
    if image.dtype != np.uint8 or image.shape[2:] not in ((), (1,), (3,)):
      raise ValueError(
          f'its pixels are {image.dtype} {list(image.shape)}, but uint8 '
          f'[height, width, 1 or 3] was expected. Say how it is: data.channels '
          'and data.dtype, uint16 or float32 with their data.value_range.')
    pixels = Image.fromarray(image[..., 0] if image.shape[2:] == (1,)
                             else image)
    return pixels if pixels.mode == mode else pixels.convert(mode)
  pixels = limits.open_image(image, max_pixels=max_pixels)
  try:
    pixels.load()
  except Exception as error:
    raise ValueError(limits.unreadable(error, image)) from error
  return convert(pixels, channels=channels)


def convert(image: Image.Image, *, channels: int) -> Image.Image:
  """Returns an opened image, upright, as `decode` does; may change it.

  Args:
    image: of any mode.
    channels: 1 for grey, 3 for RGB.

  Raises:
    ValueError: if its pixels are no 8- or 16-bit numbers.
  """
  return _flatten(_upright(image), {1: 'L', 3: 'RGB'}[channels])


def _upright(image: Image.Image) -> Image.Image:
  # A broken EXIF block says nothing of the orientation, and spoils nothing.
  with contextlib.suppress(Exception):
    ImageOps.exif_transpose(image, in_place=True)
  return image


def _flatten(image: Image.Image, mode: str) -> Image.Image:
  """Returns the image in `mode` ('L' or 'RGB'), without transparency."""
  if image.mode in ('I', 'F') or image.mode.startswith('I;'):
    return _narrow(image).convert(mode)
  has_alpha = image.mode in ('LA', 'PA', 'La', 'RGBA', 'RGBa')
  if has_alpha or 'transparency' in image.info:
    if image.mode in ('La', 'RGBa'):  # Premultiplied: one way out each.
      image = image.convert({'La': 'LA', 'RGBa': 'RGBA'}[image.mode])
    image = image.convert('RGBA')
    paper = Image.new('RGBA', image.size, 'white')
    image = Image.alpha_composite(paper, image)
  return image if image.mode == mode else image.convert(mode)


def _narrow(image: Image.Image) -> Image.Image:
  """Returns 16-bit grey as 8-bit: Pillow's own conversion would clip it."""
  values = np.asarray(image)
  if values.dtype.kind == 'f' or values.min() < 0 or values.max() > 0xffff:
    raise ValueError(
        f'pixels of mode {image.mode} span {values.min()} to {values.max()}, '
        'but 0 to 65535 was expected. Convert the file to 8 or 16 bits.')
  return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
