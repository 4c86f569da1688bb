"""Valid, damaged and crafted image files."""

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


def shared_bytes(entries, size):
  """Returns an EXIF block whose entries all have the same `size` bytes."""
  at = 8 + 2 + 12 * entries + 4
  return b'II*\0\x08\0\0\0' + struct.pack('<H', entries) + b''.join(
      struct.pack('<HHII', tag + 1, 7, size, at) for tag in range(entries)
      ) + bytes(4 + size)


def segment(marker, content):
  """Returns a segment of a JPEG."""
  return struct.pack('>BBH', 0xff, marker, len(content) + 2) + content


def chunk(kind, content):
  """Returns a chunk of a PNG."""
  return (struct.pack('>I', len(content)) + kind + content
          + struct.pack('>I', zlib.crc32(kind + content)))


def gif_with_comment(blocks):
  """Returns a GIF with a comment of many blocks before its image."""
  data = good()['gif']
  at = 13 + (3 << (data[10] & 7) + 1)  # After the palette.
  return data[:at] + b'!\xfe' + (b'\xff' + bytes(255)) * blocks + b'\0' + (
      data[at:])


def webp(width, height):
  """Returns an animated WebP of two small frames on a large canvas."""
  def chunk(kind, content):
    return kind + struct.pack('<I', len(content)) + content

  def three(*numbers):
    return b''.join(number.to_bytes(3, 'little') for number in numbers)

  frame = good()['webp lossless'][12:]
  body = b'WEBP' + chunk(b'VP8X', b'\2\0\0\0' + three(width - 1, height - 1))
  body += chunk(b'ANIM', bytes(6)) + 2 * chunk(
      b'ANMF', three(0, 0, 32, 23, 100) + b'\0' + frame)
  return chunk(b'RIFF', body)


def crafted():
  """Returns (file, whether it is an image) by name.

  They cost a decoder much time or memory.
  """
  files, huge = good(), 60_000
  jpeg, png_file, progressive = (
      files[name] for name in ('jpeg', 'png', 'jpeg progressive'))
  scan = progressive.index(b'\xff\xda')
  block, small = shared_bytes(60_000, 4_000_000), shared_bytes(3000, 29_000)
  exif = b''.join(segment(0xe1, b'Exif\0\0' + block[at:at + 60_000])
                  for at in range(0, len(block), 60_000))
  padding = segment(0xe1, b'Exif\0\0' + bytes(1000)) * 12_000
  return {
      'jpeg huge': (with_size(jpeg, huge, huge), False),
      'png huge': (png(8000, 8000), False),
      'webp huge': (webp(8192, 8192), False),
      'text bomb': (png(4, 4, chunks=[
          (b'zTXt', b'a\0\0' + zlib.compress(bytes(80 << 20)))]), False),
      'png of many chunks': (
          png(4, 4, chunks=[(b'tIME', b'')] * 2**16), False),
      'gif of many comment blocks': (gif_with_comment(49_000), False),
      'jpeg of many scans': (
          progressive[:scan] + progressive[scan:scan + 40] * 400_000, False),
      'jpeg of empty scans': (
          with_size(jpeg, 4000, 4000) + b'\xff\xda' * 200, True),
      'jpeg padded': (jpeg[:2] + b'\xff' * 2**20 + jpeg[2:], True),
      'jpeg of many exif segments': (jpeg[:2] + padding + jpeg[2:], False),
      # Pillow needs the resolution of an EXIF block if there is no other.
      'jpeg exif': (
          jpeg[:2] + exif + jpeg[2:].replace(b'JFIF', b'JFIX'), False),
      'jpeg of many pictures': (
          jpeg[:2] + segment(0xe2, b'MPF\0' + small) + jpeg[2:], True),
      'webp exif': (pictures.encode(picture(), 'WEBP', exif=block), True),
      'png exif': (png_file[:33] + chunk(b'eXIf', block) + png_file[33:], True),
      'png exif prefixes': (png_file[:33] + chunk(
          b'eXIf', b'Exif\0\0' * 500_000) + png_file[33:], False),
      'png exif profile': (png_file[:33] + chunk(
          b'zTXt', b'Raw profile type exif\0\0' + zlib.compress(
              b'\nexif\n1\n' + small.hex().encode())) + png_file[33:], True),
      'tiff': (files['tiff'], False),
      'jpeg 2000': (bytes.fromhex('ff4fff51'), False)}
