"""Valid image files, and PNGs and JPEGs with any header."""

import io
import struct
import zlib

import numpy as np
from PIL import Image
from PIL import PngImagePlugin

from tests import pictures


def picture(height=24, width=33, seed=0):
  """Returns RGB noise on a gradient, as a Pillow image."""
  rng = np.random.default_rng(seed)
  ramp = np.linspace(0, 160, width)[None, :, None]
  pixels = ramp + rng.integers(0, 90, (height, width, 3))
  return Image.fromarray(pixels.astype(np.uint8))


def good():
  """Returns files that decode to 24 x 33, by name."""
  rgb = picture()
  grey = rgb.convert('L')
  files = {
      name.lower(): pictures.encode(rgb, name) for name in (
          'JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'TIFF', 'PPM', 'MPO')}
  files['jpeg progressive'] = pictures.encode(rgb, 'JPEG', progressive=True)
  files['jpeg cmyk'] = pictures.encode(rgb.convert('CMYK'), 'JPEG')
  files['png palette'] = pictures.encode(
      rgb.quantize(17), 'PNG', transparency=3)
  files['png alpha'] = pictures.encode(rgb.convert('RGBA'), 'PNG')
  files['webp lossless'] = pictures.encode(rgb, 'WEBP', lossless=True)
  sixteen = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
  for name in ('PNG', 'TIFF', 'PPM'):
    files[f'{name.lower()} 16 bits'] = pictures.encode(sixteen, name)
  for compression in ('tiff_lzw', 'tiff_adobe_deflate', 'jpeg', 'packbits'):
    files[f'tiff {compression}'] = pictures.encode(
        rgb, 'TIFF', compression=compression)
  more = [picture(seed=i) for i in (1, 2)]
  for name in ('GIF', 'PNG', 'WEBP', 'TIFF'):
    files[f'{name.lower()} animated'] = pictures.encode(
        rgb, name, save_all=True, append_images=more)
  files['npy'] = npy(np.asarray(rgb))
  return files


def npy(array):
  """Returns the content of a .npy file."""
  buffer = io.BytesIO()
  np.save(buffer, array)
  return buffer.getvalue()


def png(width, height, *, bits=8, colour=2, data=b'', chunks=()):
  """Returns a PNG with arbitrary header values."""
  header = struct.pack('>IIBBBBB', width, height, bits, colour, 0, 0, 0)
  parts = [(b'IHDR', header), *chunks, (b'IDAT', zlib.compress(data)),
           (b'IEND', b'')]
  return PngImagePlugin._MAGIC + b''.join(
      chunk(kind, body) for kind, body in parts)


def with_size(data, width, height):
  """Returns a JPEG with another size in its header."""
  at = next(i for i in range(len(data))
            if data[i:i + 2] in (b'\xff\xc0', b'\xff\xc2')) + 5
  return data[:at] + struct.pack('>HH', height, width) + data[at + 4:]


def chunk(kind, content):
  """Returns a chunk of a PNG."""
  return (struct.pack('>I', len(content)) + kind + content
          + struct.pack('>I', zlib.crc32(kind + content)))
