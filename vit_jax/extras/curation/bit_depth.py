"""A note of `data check` if files of 16 bits hold 12-bit values."""

import numpy as np

from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.data.images import image_file
from vit_jax.data.sources import protocol

_NUM_SAMPLED = 16  # Images whose bit depth is checked.
_LARGEST_12, _LARGEST_16 = 4095, 65535


def note(config: data.DataConfig, source: protocol.Source) -> str:
  """Returns a note if files of 16 bits hold 12-bit values, else ''.

  Reads images until one has a larger value, which is usually the first.
  """
  is_8_bit = config.dtype == 'uint8'
  end = 0 if config.value_range is None else config.value_range[1]
  if not is_8_bit and end < _LARGEST_16:
    return ''
  largest, count = -1, min(_NUM_SAMPLED, len(source))
  for number in range(count):
    try:
      stored = source[number * len(source) // count]['image']
      picture = config.decode(stored)
      if is_8_bit and not _is_deep(stored):
        return ''
    except Exception:  # Of any library: the scan reports it.
      continue
    pixels = np.asarray(picture)
    # An 8-bit image has the upper half of 16 bits.
    largest = max(largest, int(pixels.max()) << 8 | 255 if is_8_bit
                  else int(pixels.max()))
    if largest > _LARGEST_12:
      return ''
  if largest < 0:
    return ''
  used, remedy = (
      'only the upper 8 of 16 bits are used',
      '--config.data.channels=1 --config.data.dtype=uint16 ') if is_8_bit else (
      f'data.value_range ends at {end:g}', '')
  return (
      f'note: the values of {count} sampled images are at most {largest:,}, as '
      f'of 12 bits, but {used}. Use {remedy}--config.data.value_range='
      f"'[0,{_LARGEST_12}]'" + (
          ', or convert colour images to 8 bits.' if is_8_bit else '.'))


def _is_deep(image: bytes | np.ndarray) -> bool:
  """Returns whether an encoded image has 16 or more bits per value."""
  if isinstance(image, np.ndarray) or image.startswith(decode.NUMPY):
    return False  # Arrays of more than 8 bits are not decoded to 8.
  with image_file.open_image(image) as opened:
    return image_file.is_deep(opened)
