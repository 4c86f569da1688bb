"""Reads image files, or raises one UserError for all that Pillow may raise.

Only `FORMATS` are opened, at most `max_pixels` and Pillow's own limits apply,
and truncated files are errors. A crafted file can still take much time and
memory: the server in docs/serving, which uses this module, decodes in a process
with limits.

This module needs NumPy and Pillow only: without vit_jax, the error is a
ValueError.
"""

import contextlib
import io
import re

import numpy as np
import PIL
from PIL import Image
from PIL import ImageFile
from PIL import ImageOps
from PIL import JpegImagePlugin

try:
  from vit_jax.exceptions import UserError
except ImportError:  # Beside the exported server.
  UserError = ValueError  # type: ignore[misc, assignment]

# 8192 x 8192: larger than photographs of public datasets and of most cameras.
MAX_PIXELS = 2**26
LARGEST = 178_956_970  # Pillow's own limit.
FORMATS = ('JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'DIB', 'TIFF', 'PPM')
_REFUSED = {
    'JPEG 2000': re.compile(rb'\xff\x4f\xff\x51|\0\0\0\x0cjP  '),
    'AVIF': re.compile(rb'.{4}ftyp.{0,64}avi[fs]', re.DOTALL),
    'PNM in ASCII': re.compile(rb'P[123]\s')}


def read(
    data: bytes, *, max_pixels: int = MAX_PIXELS,
    formats: tuple[str, ...] = FORMATS,
) -> Image.Image:
  """Returns the 8-bit pixels of a file, upright and on white.

  Raises:
    UserError: if the image is invalid, incomplete or too large.
  """
  image = open_image(data, max_pixels=max_pixels, formats=formats)
  load(image, data)
  return upright_on_white(image)


def open_image(
    data: bytes, *, max_pixels: int = MAX_PIXELS,
    formats: tuple[str, ...] = FORMATS,
) -> ImageFile.ImageFile:
  """Returns an image that is not decoded yet; may raise a UserError."""
  for name, pattern in _REFUSED.items():
    if pattern.match(data):
      raise UserError(
          f'{name} is not supported. Convert the file to PNG or JPEG.')
  file = io.BytesIO(data)
  try:
    # `Image.open` would read further pictures in a JPEG as other frames.
    image = (JpegImagePlugin.JpegImageFile(file)
             if data.startswith(b'\xff\xd8\xff') and 'JPEG' in formats
             else Image.open(file, formats=formats))
  except PIL.UnidentifiedImageError as error:
    raise UserError(
        'not an image of a supported format, or its header is defective '
        f'({len(data)} bytes, starting with {data[:8]!r}). Supported: '
        f'{", ".join(formats)}, and arrays as .npy.') from error
  except Exception as error:
    raise UserError(describe_error(error, data)) from error
  check_pixels(image.size, max_pixels)
  return image


def load(image: Image.Image, data: bytes) -> None:
  """Decodes an open image; raises a UserError if it is damaged."""
  try:
    image.load()
  except Exception as error:
    raise UserError(describe_error(error, data)) from error


def apply_orientation(image: Image.Image) -> None:
  """Applies the EXIF orientation in place; ignores a defective EXIF block."""
  with contextlib.suppress(Exception):
    ImageOps.exif_transpose(image, in_place=True)


def describe_error(error: Exception, data: bytes) -> str:
  """Returns one message for the many exception types of Pillow's readers."""
  return (f'not a readable image: {type(error).__name__}: {error} '
          f'({len(data)} bytes).')


def is_deep(image: Image.Image) -> bool:
  """Returns whether an undecoded file has 16 or more bits per value."""
  return image.mode in ('I', 'F') or ';16' in str(getattr(image, 'tile', ''))


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
  """Raises a UserError if (width, height) are empty or too large."""
  width, height = size
  if min(size) < 1:
    raise UserError(f'it has {height} x {width} pixels.')
  if width * height > max_pixels:
    raise UserError(
        f'it has {height} x {width} pixels, {width * height:,}, but the '
        f'maximum is {max_pixels:,}. Make it smaller' + (
            '; or, if a config is used, raise data.max_pixels (4 to 25 bytes '
            'per pixel and thread)' * (width * height <= LARGEST)) + '.')


def upright_on_white(image: Image.Image) -> Image.Image:
  """Returns the 8-bit pixels of a decoded image, which may be changed."""
  apply_orientation(image)
  image = _on_white(image)
  # Pillow converts Lab to RGB only.
  return image.convert('RGB') if image.mode == 'LAB' else image


def _on_white(image: Image.Image) -> Image.Image:
  """Returns an 8-bit image without transparency.

  Of 16-bit grey, the upper 8 bits are kept; Pillow would clip the values.

  Raises:
    UserError: if pixels are floats or integers above 65,535.
  """
  transparent = image.info.get('transparency')
  if image.mode in ('I', 'F') or image.mode.startswith('I;'):
    values = np.asarray(image)
    if values.dtype.kind == 'f' or values.min() < 0 or values.max() > 0xffff:
      raise UserError(
          f'pixels of mode {image.mode} span {values.min()} to {values.max()}, '
          'but 0 to 65535 was expected. Convert the file to 8 or 16 bits.')
    grey = (values.astype(np.uint32) >> 8).astype(np.uint8)
    if transparent is not None:
      grey[values == transparent] = 255
    return Image.fromarray(grey)
  if transparent is None and image.mode not in (
      'LA', 'PA', 'La', 'RGBA', 'RGBa'):
    return image
  if image.mode in ('La', 'RGBa'):  # Premultiplied alpha is undone first.
    image = image.convert({'La': 'LA', 'RGBa': 'RGBA'}[image.mode])
  image = image.convert('RGBA')
  return Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image)
