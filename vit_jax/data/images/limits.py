"""Opens untrusted image files within limits on memory and time.

A few bytes can declare an image of four billion pixels, for which a decoder
allocates memory before it fails. So headers are checked first:

  formats   only `FORMATS`: no PostScript, no video; no PNM in ASCII
  pixels    at most `max_pixels`, also for the tiles of a TIFF
  sides     at most 65,535 pixels: some decoders allocate per row
  reads     a limited number, since some of Pillow's parsers read byte by byte
  scans     a limited number in a progressive JPEG: each passes over all pixels
  texts     Pillow's own limits: 1 MiB per PNG chunk, 64 MiB per file
"""

import functools
import io
import struct

import PIL
from PIL import Image

# 8192 x 8192: larger than photographs of public datasets and of most cameras.
# Pillow needs 4 bytes per RGB pixel, 256 MiB for such an image in each thread.
MAX_PIXELS = 2**26
LARGEST = 178_956_970  # Pillow's own limit.
FORMATS = ('JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'DIB', 'TIFF', 'PPM', 'AVIF',
           'JPEG2000')
MAX_SIDE = 65_535  # As in JPEG.
_JPEG = b'\xff\xd8'
_ASCII_PNM = (b'P1', b'P2', b'P3')
# Limits of one file. A PNG chunk of 8 KiB, as encoders write, takes four reads.
_FREE_READS, _BYTES_PER_READ = 10_000, 256
# Cameras write about ten scans. The limit is on pixels times scans.
_MAX_SCANS = 16
_TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 322, 323, 278


def open_image(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
  """Returns an image that is not decoded yet.

  Raises:
    ValueError: for a file of another format, with too many pixels or scans, or
      with a defective header.
  """
  if data.startswith(_ASCII_PNM):
    raise ValueError('PNM in ASCII is not supported. Save it as binary PNM.')
  if size := _webp_size(data):
    check_pixels(size, max_pixels)  # Opening a WebP allocates memory.
  try:
    image = Image.open(_File(data), formats=_formats())
  except PIL.UnidentifiedImageError as error:
    raise ValueError(
        'not an image of a supported format, or its header is defective '
        f'({len(data)} bytes, starting with {data[:8]!r}). Supported: '
        f'{", ".join(_formats())}, and arrays as .npy.') from error
  except Image.DecompressionBombError as error:
    raise ValueError(
        f'it has more than {LARGEST:,} pixels, the maximum of Pillow: {error} '
        f'({len(data)} bytes). Make it smaller.') from error
  except Exception as error:
    raise ValueError(describe_error(error, data)) from error
  check_pixels(image.size, max_pixels)
  if image.format == 'TIFF':
    _check_tiles(image, max_pixels)
  if data.startswith(_JPEG):  # Includes MPO, several JPEGs.
    scans = data.count(b'\xff\xda')  # Cannot occur within the data of a scan.
    if scans * image.width * image.height > _MAX_SCANS * max_pixels:
      raise ValueError(
          f'it has {scans} scans over {image.width} x {image.height} pixels. '
          'Save it again, as a JPEG that is not progressive.')
  return image


def describe_error(error: Exception, data: bytes) -> str:
  """Returns one message for the many exception types of Pillow's readers."""
  return (f'not a readable image: {type(error).__name__}: {error} '
          f'({len(data)} bytes).')


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
  """Raises a ValueError if (width, height) are empty or too large."""
  width, height = size
  if not 0 < min(size) <= max(size) <= MAX_SIDE:
    raise ValueError(
        f'it has {height} x {width} pixels, but each side must have 1 to '
        f'{MAX_SIDE:,}.')
  if width * height > max_pixels:
    raise ValueError(
        f'it has {height} x {width} pixels, {width * height:,}, but the '
        f'maximum is {max_pixels:,}. Make it smaller' + (
            '; or, if a config is used, raise data.max_pixels (4 bytes per '
            'pixel and thread)' * (width * height <= LARGEST)) + '.')


@functools.cache
def _formats() -> tuple[str, ...]:
  """Returns those of `FORMATS` that this build of Pillow supports."""
  Image.init()
  return tuple(name for name in FORMATS if name in Image.OPEN)


class _File(io.BytesIO):
  """A file in memory that a parser reads a limited number of times."""

  def __init__(self, data: bytes):
    super().__init__(data)
    self._reads_left = _FREE_READS + len(data) // _BYTES_PER_READ

  def read(self, size: int | None = -1, /) -> bytes:
    self._reads_left -= 1
    if self._reads_left < 0:
      raise ValueError('its header or chunks have too many parts')
    return super().read(size)


def _webp_size(data: bytes) -> tuple[int, int] | None:
  """Returns (width, height) of a WebP canvas; None for other files."""
  if data[:4] != b'RIFF' or data[8:12] != b'WEBP' or len(data) < 30:
    return None
  if data[12:16] == b'VP8X':
    return (1 + int.from_bytes(data[24:27], 'little'),
            1 + int.from_bytes(data[27:30], 'little'))
  if data[12:16] == b'VP8L':
    (bits,) = struct.unpack_from('<I', data, 21)
    return 1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)
  width, height = struct.unpack_from('<HH', data, 26)
  return width & 0x3fff, height & 0x3fff


def _check_tiles(image: Image.Image, max_pixels: int) -> None:
  """Raises a ValueError if a tile of a TIFF exceeds `max_pixels`."""
  tags = getattr(image, 'tag_v2', {})
  tile = tags.get(_TILE_WIDTH, 1), tags.get(_TILE_LENGTH, 1)
  for side in (*tile, tags.get(_ROWS_PER_STRIP, 1)):
    if not isinstance(side, int) or side < 0:
      raise ValueError(
          f'a tile or strip has the side {side!r}, but a non-negative integer '
          'was expected.')
  check_pixels(tile, max_pixels)
