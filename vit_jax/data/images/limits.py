"""Opens untrusted image files within limits on memory and time.

A few bytes can declare an image of four billion pixels, for which a decoder
allocates memory before it fails, and parsers of headers join blocks in
quadratic time. So headers are checked first:

  formats   only `FORMATS`: no PostScript, no video; no PNM in ASCII
  pixels    at most `max_pixels`, also for the tiles of a TIFF
  memory    at most 1 GiB while decoding, or 16 bytes x `max_pixels`
  sides     at most 65,535 pixels: some decoders allocate per row
  reads     a limited number, also of bytes that are copied if each part of a
            header is joined to all earlier ones
  scans     a limited number in a progressive JPEG: each passes over all pixels
  texts     Pillow's own limits: 1 MiB per PNG chunk, 64 MiB per file
  TIFF      entries, values and bytes of its directories
  AVIF      bytes of its header, in whose items the decoder searches linearly
  EXIF      never parsed, apart from the orientation
  cut off   JPEG 2000 must be complete, as OpenJPEG decodes what is left of it

This module needs Pillow only; the server in docs/serving uses it, too.
"""

from collections.abc import Iterator, Sequence
import contextlib
import functools
import io
import re
import struct

import PIL
from PIL import Image
from PIL import ImageFile
from PIL import ImageOps

# 8192 x 8192: larger than photographs of public datasets and of most cameras.
MAX_PIXELS = 2**26
LARGEST = 178_956_970  # Pillow's own limit.
FORMATS = ('JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'DIB', 'TIFF', 'PPM', 'AVIF',
           'JPEG2000')
MAX_SIDE = 65_535  # As in JPEG.
# Bytes per pixel while an image is decoded and converted: 4 for RGB in most
# formats, 16 with transparency. These need more (measured with Pillow 12.3).
_BYTES_PER_PIXEL = 16
_AVIF_BYTES, _WEBP_BYTES = 24, 25
_JPEG2000_BYTES = 8  # Also per channel.
_JPEG, _CODESTREAM = b'\xff\xd8', b'\xff\x4f\xff\x51'
_JPEG2000 = b'\0\0\0\x0cjP  '
_END_OF_CODESTREAM = b'\xff\xd9'  # Cannot occur within the data of a packet.
_ASCII_PNM = (b'P1', b'P2', b'P3')
# Limits of one file. A PNG chunk of 8 KiB, as encoders write, takes four reads.
_FREE_READS, _BYTES_PER_READ = 10_000, 256
_FREE_JOINED, _JOINED_PER_BYTE = 2**32, 32  # About two seconds.
# Cameras write about ten scans. The limit is on pixels times scans.
_MAX_SCANS = 16
_TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 322, 323, 278
_SUBDIRECTORIES = (34665, 34853, 40965)  # EXIF, GPS, interoperability.
# Types of TIFF that Pillow converts to numbers, by struct format.
_TIFF_NUMBERS = {3: 'H', 4: 'I', 5: 'q', 6: 'b', 8: 'h', 9: 'i', 10: 'q',
                 11: 'f', 12: 'd', 13: 'I', 16: 'Q'}
_MAX_ENTRIES, _MAX_VALUES = 2**18, 2**17
_MAX_AVIF_HEADER = 2**19
_OUTSIDE = (struct.error, OverflowError)  # An offset is beyond the file.
_EXIF, _ORIENTATION = b'Exif\0\0', 0x0112
_METADATA = (b'Exif', b'MPF\0')  # Segments of a JPEG.
_TOO_MANY_PARTS = 'its header or chunks have too many parts'
_read = io.BytesIO.read  # Called for every part of a header.
_AVIF_EXIF = re.compile(rb'(infe.{8}(?:..)?)Exif', re.DOTALL)


def open_image(
    data: bytes, *, max_pixels: int = MAX_PIXELS,
    formats: Sequence[str] = FORMATS,
) -> ImageFile.ImageFile:
  """Returns an image that is not decoded yet.

  Raises a ValueError for a file outside the limits of this module.
  """
  if data.startswith(_ASCII_PNM):
    raise ValueError('PNM in ASCII is not supported. Save it as binary PNM.')
  data = _check_header(data, max_pixels)
  formats = _supported(tuple(formats))
  file = _File(data)
  try:
    image = Image.open(file, formats=formats)
  except PIL.UnidentifiedImageError as error:
    raise ValueError(
        'not an image of a supported format, or its header is defective '
        f'({len(data)} bytes, starting with {data[:8]!r}). Supported: '
        f'{", ".join(formats)}, and arrays as .npy.') from error
  except Image.DecompressionBombError as error:
    count = re.findall(r'\d+', str(error))[0]
    raise ValueError(
        f'it has {int(count):,} pixels, but the maximum of Pillow is '
        f'{LARGEST:,} ({len(data)} bytes). Make it smaller.') from error
  except Exception as error:
    raise ValueError(describe_error(error, data)) from error
  file.is_open = True
  if file.exif:
    image.info['exif'] = b''.join(file.exif)
  check_pixels(image.size, max_pixels)
  if image.format == 'AVIF':
    _check_memory(image.size, _AVIF_BYTES, max_pixels)
  if image.format == 'WEBP' and (
      image.mode == 'RGBA' or getattr(image, 'is_animated', False)):
    _check_memory(image.size, _WEBP_BYTES, max_pixels)
  if image.format == 'TIFF':
    _check_tiles(image, max_pixels)
  if data.startswith(_JPEG):
    scans = data.count(b'\xff\xda')  # Cannot occur within the data of a scan.
    if scans * image.width * image.height > _MAX_SCANS * max_pixels:
      raise ValueError(
          f'it has {scans} scans over {image.width} x {image.height} pixels. '
          'Save it again, as a JPEG that is not progressive.')
  return image


def load(image: Image.Image, data: bytes) -> None:
  """Decodes an open image; raises a ValueError if it is damaged."""
  try:
    image.load()
  except Exception as error:
    raise ValueError(describe_error(error, data)) from error


def apply_orientation(image: Image.Image) -> None:
  """Applies the EXIF orientation in place; ignores a defective EXIF block."""
  with contextlib.suppress(Exception):
    _keep_orientation(image)
    ImageOps.exif_transpose(image, in_place=True)


def _keep_orientation(image: Image.Image) -> None:
  """Removes all but the orientation from the EXIF block of a decoded image.

  Pillow would copy each value of the block, and thousands of entries can share
  the same bytes.
  """
  if text := image.info.pop('Raw profile type exif', ''):  # By ImageMagick.
    image.info.setdefault(
        'exif', bytes.fromhex(''.join(text.split('\n')[3:])))
  if 'exif' not in image.info:
    return
  block, start = image.info['exif'], 0
  while block.startswith(_EXIF, start):
    start += len(_EXIF)
  image.info['exif'] = b''
  if start < len(block):
    order = {b'II': '<', b'MM': '>'}[block[start:start + 2]]
    (first,) = struct.unpack_from(f'{order}I', block, start + 4)
    (count,) = struct.unpack_from(f'{order}H', block, start + first)
    kept = b''
    for at in range(start + first + 2, len(block) - 11, 12)[:count]:
      if struct.unpack_from(f'{order}H', block, at) == (_ORIENTATION,):
        kept = block[at:at + 12]
    image.info['exif'] = kept and (
        block[start:start + 4] + struct.pack(f'{order}IH', 8, 1) + kept
        + bytes(4))


def describe_error(error: Exception, data: bytes) -> str:
  """Returns one message for the many exception types of Pillow's readers."""
  return (f'not a readable image: {type(error).__name__}: {error} '
          f'({len(data)} bytes).')


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
  """Raises a ValueError if (width, height) are empty or too large."""
  width, height = size
  if not 0 < min(size) <= max(size) <= MAX_SIDE:
    raise ValueError(f'it has {height} x {width} pixels, but each side must '
                     f'have 1 to {MAX_SIDE:,}.')
  if width * height > max_pixels:
    raise ValueError(
        f'it has {height} x {width} pixels, {width * height:,}, but the '
        f'maximum is {max_pixels:,}. Make it smaller' + (
            '; or, if a config is used, raise data.max_pixels (4 to '
            f'{_BYTES_PER_PIXEL} bytes per pixel and thread)' * (
                width * height <= LARGEST)) + '.')


def _check_memory(
    size: tuple[int, int], bytes_per_pixel: int, max_pixels: int) -> None:
  """Raises a ValueError if a decoder needs too many bytes."""
  width, height = size
  needed = width * height * bytes_per_pixel
  maximum = _BYTES_PER_PIXEL * max(max_pixels, MAX_PIXELS)
  if needed > maximum:
    raise ValueError(
        f'decoding its {height} x {width} pixels needs {needed >> 20:,} MiB, '
        f'but the maximum is {maximum >> 20:,} MiB. Make it smaller, or save '
        'it as JPEG or PNG; or, if a config is used, raise data.max_pixels.')


@functools.cache
def _supported(formats: tuple[str, ...]) -> tuple[str, ...]:
  """Returns the formats that this build of Pillow supports."""
  Image.init()
  return tuple(name for name in formats if name in Image.OPEN)


class _File(io.BytesIO):
  """A file in memory that a parser reads a limited number of times.

  Attributes:
    is_open: whether the header has been read.
    exif: EXIF segments of a JPEG. They are hidden from Pillow, and so are the
      directories of further JPEGs in the file.
  """

  def __init__(self, data: bytes):
    super().__init__(data)
    self._reads_left = _FREE_READS + len(data) // _BYTES_PER_READ
    self._joined_left = _FREE_JOINED + _JOINED_PER_BYTE * len(data)
    self._total = 0
    self._is_jpeg = data.startswith(_JPEG)
    self.is_open = False
    self.exif: list[bytes] = []

  def read(self, size: int | None = -1, /) -> bytes:
    part = _read(self, size)
    self._reads_left -= 1
    if self._reads_left < 0:
      raise ValueError(_TOO_MANY_PARTS)
    length = len(part)
    if length < 3 or self.is_open:  # A marker or a length, or pixels.
      return part
    self._total += length
    self._joined_left -= self._total
    if self._joined_left < 0:
      raise ValueError(_TOO_MANY_PARTS)
    if not self._is_jpeg or part[:4] not in _METADATA:
      return part
    if part.startswith(_EXIF):
      self.exif.append(part.removeprefix(_EXIF))
    return bytes(length)


def _check_header(data: bytes, max_pixels: int) -> bytes:
  """Checks what Pillow would read without limits; returns the data to open."""
  if data[:2] in (b'II', b'MM') and len(data) >= 16:
    _check_directories(data)
  elif data.startswith((_CODESTREAM, _JPEG2000)):
    end = data.rfind(_END_OF_CODESTREAM)
    # The header may declare another size than the codestream.
    for found in re.finditer(_CODESTREAM, data):
      _check_codestream(data, found.start(), end, max_pixels)
  elif data[4:8] == b'ftyp':
    for kind, start, end in _boxes(data):
      if kind in (b'meta', b'moov') and end - start > _MAX_AVIF_HEADER:
        raise ValueError(
            f'its header has {end - start:,} bytes, but the maximum is '
            f'{_MAX_AVIF_HEADER:,}. Save it again.')
    # AVIF has its orientation elsewhere; Pillow would parse all of EXIF.
    return _AVIF_EXIF.sub(rb'\1free', data)
  return data


def _check_codestream(
    data: bytes, at: int, end: int, max_pixels: int) -> None:
  """Raises a ValueError unless a JPEG 2000 is complete and small enough."""
  if end < at + 42:
    raise ValueError(
        f'its JPEG 2000 codestream is cut off ({len(data)} bytes). Copy it '
        'again.')
  right, bottom, left, top = struct.unpack_from('>4I', data, at + 8)
  (channels,) = struct.unpack_from('>H', data, at + 40)
  size = right - left, bottom - top
  check_pixels(size, max_pixels)
  _check_memory(size, _JPEG2000_BYTES * (channels + 1), max_pixels)


def _boxes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
  """Yields (type, start, end) of the boxes of an AVIF."""
  at, number = 0, 0
  while at + 16 <= len(data) and number < _FREE_READS:
    size, kind = struct.unpack_from('>I4s', data, at)
    start = at + 8
    if size == 1:
      (size,) = struct.unpack_from('>Q', data, start)
      start += 8
    at = max(start, at + size if size else len(data))  # 0: up to the end.
    number += 1
    yield kind, start, at


def _check_directories(data: bytes) -> None:
  """Raises a ValueError if a TIFF has too many entries, values or bytes.

  Pillow copies the bytes of each entry, even of those that share them, and
  converts numbers to Python objects. It also reads directories of EXIF.
  """
  order, is_big = '<' if data.startswith(b'II') else '>', 43 in data[2:4]
  offset, count, entry = (
      struct.Struct(order + form) for form in (
          ('Q', 'Q', 'HHQQ') if is_big else ('I', 'H', 'HHII')))
  following = list(offset.unpack_from(data, 8 if is_big else 4))
  visited, num_entries, num_bytes = {0}, 0, 0
  while following:
    at = following.pop()
    if at in visited:
      continue
    visited.add(at)
    num_values = 0
    with contextlib.suppress(*_OUTSIDE):  # Pillow ignores the rest, too.
      (entries,) = count.unpack_from(data, at)
      at += count.size
      for _ in range(entries):
        tag, kind, values, place = entry.unpack_from(data, at)
        at += entry.size
        form = order + _TIFF_NUMBERS.get(kind, 'c')  # c: text and bytes.
        size = values * struct.calcsize(form)
        num_entries += 1
        num_bytes += size
        num_values += values * (kind in _TIFF_NUMBERS)
        if tag in _SUBDIRECTORIES and values == 1 and form[1] in 'HIQ':
          if size <= offset.size:
            place = at - offset.size
          with contextlib.suppress(*_OUTSIDE):
            following += struct.unpack_from(form, data, place)
      following += offset.unpack_from(data, at)
    if (num_values > _MAX_VALUES or num_entries + len(visited) > _MAX_ENTRIES
        or num_bytes > 2 * len(data)):
      raise ValueError('its header has too many strips, tiles or values. Save '
                       'it again with fewer.')


def _check_tiles(image: Image.Image, max_pixels: int) -> None:
  """Raises a ValueError if a tile of a TIFF exceeds `max_pixels`."""
  tags = getattr(image, 'tag_v2', {})
  tile = tags.get(_TILE_WIDTH, 1), tags.get(_TILE_LENGTH, 1)
  for side in (*tile, tags.get(_ROWS_PER_STRIP, 1)):
    if not isinstance(side, int) or side < 0:
      raise ValueError(f'a tile or strip has the side {side!r}, but a '
                       'non-negative integer was expected.')
  check_pixels(tile, max_pixels)
