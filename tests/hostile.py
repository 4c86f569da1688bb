"""Valid and malicious image files for tests of decoders."""

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
          'JPEG', 'PNG', 'WEBP', 'GIF', 'BMP', 'TIFF', 'PPM', 'AVIF',
          'JPEG2000')}
  files['jpeg progressive'] = pictures.encode(rgb, 'JPEG', progressive=True)
  files['jpeg cmyk'] = pictures.encode(rgb.convert('CMYK'), 'JPEG')
  files['png palette'] = pictures.encode(
      rgb.quantize(17), 'PNG', transparency=3)
  files['png alpha'] = pictures.encode(rgb.convert('RGBA'), 'PNG')
  files['webp lossless'] = pictures.encode(rgb, 'WEBP', lossless=True)
  sixteen = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
  for name in ('PNG', 'TIFF', 'PPM', 'JPEG2000'):
    files[f'{name.lower()} 16 bits'] = pictures.encode(sixteen, name)
  for compression in ('tiff_lzw', 'tiff_adobe_deflate', 'jpeg', 'packbits'):
    files[f'tiff {compression}'] = pictures.encode(
        rgb, 'TIFF', compression=compression)
  more = [picture(seed=i) for i in (1, 2)]
  for name in ('GIF', 'PNG', 'WEBP', 'TIFF', 'AVIF'):
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
      struct.pack('>I', len(body)) + kind + body
      + struct.pack('>I', zlib.crc32(kind + body)) for kind, body in parts)


def with_size(data, width, height):
  """Returns a JPEG with another size in its header."""
  at = next(i for i in range(len(data))
            if data[i:i + 2] in (b'\xff\xc0', b'\xff\xc2')) + 5
  return data[:at] + struct.pack('>HH', height, width) + data[at + 4:]


def tiff(**tags):
  """Returns a grey TIFF of one uncompressed strip, with other tags by name."""
  numbers = {'width': 256, 'height': 257, 'bits': 258, 'compression': 259,
             'photometric': 262, 'offset': 273, 'samples': 277, 'rows': 278,
             'count': 279, 'tile_width': 322, 'tile_length': 323,
             'tile_offset': 324, 'tile_count': 325}
  values = {'width': 4, 'height': 4, 'bits': 8, 'compression': 1,
            'photometric': 1, 'offset': 8, 'samples': 1, 'rows': 4,
            'count': 16, **tags}
  entries = b''.join(
      struct.pack('<HHII', numbers[name], 4, 1, values[name])
      for name in sorted(values, key=numbers.get))
  return (b'II*\0' + struct.pack('<I', 24) + bytes(range(16))
          + struct.pack('<H', len(values)) + entries + struct.pack('<I', 0))


def webp(width, height):
  """Returns a WebP that has only a canvas."""
  body = b'\0\0\0\0' + (width - 1).to_bytes(3, 'little') + (
      height - 1).to_bytes(3, 'little')
  chunk = b'VP8X' + struct.pack('<I', 10) + body
  return b'RIFF' + struct.pack('<I', 4 + len(chunk)) + b'WEBP' + chunk


def bad():
  """Returns (file, pattern of its error) by name."""
  files, huge = good(), 60_000
  progressive = files['jpeg progressive']
  scan = progressive.index(b'\xff\xda')
  text = zlib.compress(bytes(80 << 20))
  return {
      'empty': (b'', 'not an image'),
      'foreign': (b'hello, world', 'not an image'),
      'postscript': (b'%!PS-Adobe-3.0 EPSF-3.0\n', 'not an image'),
      'jpeg truncated': (files['jpeg'][:-300], 'truncated'),
      'png truncated': (files['png'][:-300], 'truncated'),
      'webp truncated': (files['webp'][:-100], 'not a'),
      'png corrupt': (
          files['png'][:-300] + b'\xff' * 300, 'not a readable image'),
      'jpeg huge': (with_size(files['jpeg'], huge, huge), 'Make it smaller'),
      'jpeg progressive huge': (
          with_size(progressive, huge, huge), 'Make it smaller'),
      'png huge': (png(huge, huge), 'Make it smaller'),
      'webp huge': (webp(huge, huge), 'Make it smaller'),
      'tiff huge': (tiff(width=huge, height=huge), 'Make it smaller'),
      'tiff of huge tiles': (
          tiff(tile_width=huge, tile_length=huge, tile_offset=8,
               tile_count=16), 'Make it smaller'),
      'tiff without its strip': (tiff(offset=2**31), 'not a readable image'),
      'too many scans': (
          progressive[:scan] + progressive[scan:scan + 40] * 2_000_000,
          'not a|scans'),
      'too many scans, not progressive': (
          with_size(files['jpeg'], 4000, 4000) + b'\xff\xda' * 200, 'scans'),
      'jpeg of no width': (with_size(files['jpeg'], 0, 5), 'not a'),
      'png of no width': (png(0, 5), 'not a'),
      'text bomb': (
          png(4, 4, chunks=[(b'zTXt', b'a\0\0' + text)]), 'not a'),
      'npy of many numbers': (
          files['npy'].replace(b'(24, 33, 3)', b'(24000000, 33000, 3)'
                               )[:-40], 'npy'),
      'npy of objects': (files['npy'].replace(b'|u1', b'|O8'), 'npy'),
      'npy empty': (npy(np.zeros((0, 0), np.uint8)), 'each side must'),
      'npy huge': (npy(np.zeros((2**14, 2**13), np.uint8)), 'Make it smaller'),
      'png of one column': (png(1, 2**20), 'each side must'),
      'pnm in ascii': (b'P2 9 9 255\n' + b'1 ' * 81, 'binary PNM'),
      # Pillow reads these headers byte by byte or chunk by chunk.
      'ppm padded': (b'P6' + b' ' * 2**20 + b'1 1 255\n000', 'many parts'),
      'jpeg padded': (
          files['jpeg'][:2] + b'\xff' * 2**20 + files['jpeg'][2:],
          'many parts'),
      'png of many chunks': (
          png(4, 4, chunks=[(b'tIME', b'')] * 2**16), 'many parts')}
