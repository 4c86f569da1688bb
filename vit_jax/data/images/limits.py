"""Opens image files without decoding them, and refuses what would be too much.

A few bytes can promise a picture of four billion pixels, and a decoder takes
the memory for it before it finds that there are none. So what a header
promises is held against bounds first, and neither memory nor time depends on
what a file says of itself:

  formats   those of `FORMATS`, one still image each: no PostScript, no video
  pixels    `max_pixels` at most, of the image and of a TIFF's tiles
  scans     of a progressive JPEG, each of which passes over all pixels
  texts     Pillow's own bounds: 1 MiB a chunk of a PNG, 64 MiB a file
"""

import functools
import io
import struct

import PIL
from PIL import Image

# 8192 x 8192. Pillow holds RGB as four bytes a pixel: 256 MiB for a thread at
# work on such an image. Photographs of public data sets are smaller, and those
# of nearly every camera; Pillow's own bound would let a thread take 700 MB.
MAX_PIXELS = 2**26
# Beyond it, Pillow itself refuses.
LARGEST = 178_956_970
FORMATS = ('JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'DIB', 'TIFF', 'PPM', 'AVIF',
           'JPEG2000')
# Cameras and servers write some ten scans. Pixels times scans are bounded, so
# that a small image may have more.
_SCANS = 16
_TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 322, 323, 278


def open_image(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
  """Returns an image whose pixels are still to be decoded.

  Args:
    data: of a file; what it is called does not matter.
    max_pixels: the most that it may have.

  Raises:
    ValueError: if it is none of `FORMATS`, or too large, or its header is
      defective.
  """
  check_pixels(_webp_size(data), max_pixels)  # It takes its memory on opening.
  try:
    image = Image.open(io.BytesIO(data), formats=_formats())
  except PIL.UnidentifiedImageError as error:
    raise ValueError(
        'not an image in a format that is read, or its header is defective '
        f'({len(data)} bytes, beginning {data[:8]!r}). Read are '
        f'{", ".join(_formats())}, and arrays as .npy.') from error
  except Image.DecompressionBombError as error:
    raise ValueError(
        f'it has more than {LARGEST:,} pixels, the most that Pillow opens: '
        f'{error} ({len(data)} bytes). Make it smaller.') from error
  except Exception as error:
    raise ValueError(unreadable(error, data)) from error
  check_pixels(image.size, max_pixels)
  if image.format == 'TIFF':
    _check_tiles(image, max_pixels)
  if 'progression' in image.info:
    # Within the data of a scan no marker can stand, by JPEG's own rules.
    scans = data.count(b'\xff\xda')
    if scans * image.width * image.height > _SCANS * max_pixels:
      raise ValueError(
          f'it has {scans} scans over {image.width} x {image.height} pixels. '
          'Write it as a JPEG that is not progressive.')
  return image


def reuse_memory() -> None:
  """Has Pillow keep what it frees for the next image, up to 8 blocks.

  Else each image's pages come anew from the kernel, which clears them: a tenth
  of the time of decoding (0.3 of 2.3 ms for 500 x 375 pixels). A block is 16
  MiB at most.
  """
  Image.core.set_blocks_max(8)


def unreadable(error: Exception, data: bytes) -> str:
  """Returns the words for whatever one of Pillow's readers raised.

  Their parsing raises whatever it meets: OSError, SyntaxError, EOFError,
  struct.error, zlib.error, MemoryError ... To a user each of them means the
  same, that this file is bad.
  """
  return (f'not a readable image: {type(error).__name__}: {error} '
          f'({len(data)} bytes)')


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
  """Raises if (width, height) are more pixels than there may be."""
  width, height = size
  if width * height > max_pixels:
    raise ValueError(
        f'it has {height} x {width} pixels, {width * height:,}, but '
        f'{max_pixels:,} are the most. Make it smaller' + (
            '; or, where data is read by a config (training, evaluate, data '
            'check), raise data.max_pixels if there is the memory: four bytes '
            'for each, in each thread' * (width * height <= LARGEST)) + '.')


@functools.cache
def _formats() -> tuple[str, ...]:
  """Returns those of `FORMATS` that this build of Pillow has."""
  Image.init()
  return tuple(name for name in FORMATS if name in Image.OPEN)


def _webp_size(data: bytes) -> tuple[int, int]:
  """Returns (width, height) of a WebP's canvas; (0, 0) of all else."""
  if data[:4] != b'RIFF' or data[8:12] != b'WEBP' or len(data) < 30:
    return 0, 0
  if data[12:16] == b'VP8X':
    return (1 + int.from_bytes(data[24:27], 'little'),
            1 + int.from_bytes(data[27:30], 'little'))
  if data[12:16] == b'VP8L':
    (bits,) = struct.unpack_from('<I', data, 21)
    return 1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)
  width, height = struct.unpack_from('<HH', data, 26)
  return width & 0x3fff, height & 0x3fff


def _check_tiles(image: Image.Image, max_pixels: int) -> None:
  """Raises if a part that a TIFF is decoded by is larger than an image may be.
  """
  tags = getattr(image, 'tag_v2', {})
  tile = tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)
  for side in (*tile, tags.get(_ROWS_PER_STRIP, 1)):
    if not isinstance(side, int) or side < 0:
      raise ValueError(f'a side of its tiles or strips is {side!r}.')
  check_pixels(tile, max_pixels)
