"""Composites images on white, whatever their mode and depth.

Pillow compares the transparent colour of a PNG (its tRNS chunk) with decoded
pixels, which for grey of 2 and 4 bits and colour of 16 bits have another scale.

This module needs NumPy and Pillow only; the server in docs/serving uses it,
too.
"""

import numpy as np
from PIL import Image
from PIL import ImageFile

# Factors by which Pillow scales grey to 8 bits, but not its transparent colour.
_FACTORS = {'L;2': 85, 'L;4': 17}
_COLOUR_16 = 'RGB;16B'


def raw_mode(image: Image.Image) -> str:
  """Returns how a PNG stores its pixels; '' once it is decoded."""
  tiles = image.tile if isinstance(image, ImageFile.ImageFile) else ()
  return str(tiles[0].args) if image.format == 'PNG' and tiles else ''


def scale_transparent(image: Image.Image, stored: str) -> None:
  """Makes the transparent colour of a decoded PNG comparable, in place.

  Colours of 16 bits are compared by their upper 8 bits. `stored` is the
  `raw_mode` of the image before it was decoded.
  """
  colour = image.info.get('transparency')
  if colour is None:
    return
  if stored in _FACTORS:
    image.info['transparency'] = colour * _FACTORS[stored]
  elif stored == _COLOUR_16:
    image.info['transparency'] = tuple(value >> 8 for value in colour)


def on_white(image: Image.Image) -> Image.Image:
  """Returns an 8-bit image without transparency.

  Of 16-bit grey, the upper 8 bits are kept; Pillow would clip the values.

  Raises:
    ValueError: if pixels are floats or integers above 65,535.
  """
  transparent = image.info.get('transparency')
  if image.mode in ('I', 'F') or image.mode.startswith('I;'):
    values = np.asarray(image)
    if values.dtype.kind == 'f' or values.min() < 0 or values.max() > 0xffff:
      raise ValueError(
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
