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
  # Without a check, OpenJPEG accepts a file that ends after any tile.
  files['jpeg2000 tiles'] = pictures.encode(
      rgb, 'JPEG2000', tile_size=(16, 16))
  files['jpeg2000 codestream'] = pictures.encode(
      rgb, 'JPEG2000', tile_size=(16, 16), no_jp2=True)
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
      chunk(kind, body) for kind, body in parts)


def with_size(data, width, height):
  """Returns a JPEG with another size in its header."""
  at = next(i for i in range(len(data))
            if data[i:i + 2] in (b'\xff\xc0', b'\xff\xc2')) + 5
  return data[:at] + struct.pack('>HH', height, width) + data[at + 4:]


def directory(entries):
  """Returns a TIFF directory of (tag, type, count, value)."""
  return struct.pack('<H', len(entries)) + b''.join(
      struct.pack('<HHII', *entry) for entry in sorted(entries)) + bytes(4)


def shared_bytes(entries, size):
  """Returns an EXIF block whose entries all have the same `size` bytes."""
  at = 8 + 2 + 12 * entries + 4
  return b'II*\0\x08\0\0\0' + directory(
      [(tag + 1, 7, size, at) for tag in range(entries)]) + bytes(size)


def exif_bombs():
  """Returns images of 24 x 33 pixels with a malicious EXIF block, by name."""
  files, block = good(), shared_bytes(60_000, 4_000_000)
  start, png_start = files['jpeg'][:2], files['png'][:33]
  rest = files['jpeg'][2:].replace(b'JFIF', b'JFIX')  # Pillow needs its dpi.
  small = shared_bytes(3000, 29_000)
  profile = b'\nexif\n1\n' + small.hex().encode()
  segments = b''.join(segment(0xe1, b'Exif\0\0' + block[at:at + 60_000])
                      for at in range(0, len(block), 60_000))
  return {
      'jpeg': start + segments + rest,
      'jpeg of many pictures': start + segment(0xe2, b'MPF\0' + small) + rest,
      'webp': pictures.encode(picture(), 'WEBP', exif=block),
      'png': png_start + chunk(b'eXIf', block) + files['png'][33:],
      'png prefixes': png_start + chunk(
          b'eXIf', b'Exif\0\0' * 500_000) + files['png'][33:],
      'png profile': png_start + chunk(
          b'zTXt', b'Raw profile type exif\0\0' + zlib.compress(profile)
          ) + files['png'][33:],
      'avif': avif_with_exif(shared_bytes(9000, 4_000_000))}


def avif_with_exif(block):
  """Returns an AVIF whose EXIF item is `block`, at the end of the file."""
  data = bytearray(pictures.encode(
      picture(), 'AVIF', exif=shared_bytes(1, 16)))
  at = data.index(b'iloc')
  # Items of an ID, a data reference, a number of extents, an offset, a size.
  assert data[at + 4:at + 12] == b'\0\0\0\0\x44\0\0\2', data[at:at + 12]
  data[at + 32:at + 40] = struct.pack('>II', len(data), len(block) + 4)
  return bytes(data) + bytes(4) + block


def segment(marker, content):
  """Returns a segment of a JPEG."""
  return struct.pack('>BBH', 0xff, marker, len(content) + 2) + content


def chunk(kind, content):
  """Returns a chunk of a PNG."""
  return (struct.pack('>I', len(content)) + kind + content
          + struct.pack('>I', zlib.crc32(kind + content)))


def box(kind, content):
  """Returns a box of a JPEG 2000 or AVIF file."""
  return struct.pack('>I4s', 8 + len(content), kind) + content


def gif_with_comment(blocks):
  """Returns a GIF with a comment of many blocks before its image."""
  data = good()['gif']
  at = 13 + (3 << (data[10] & 7) + 1)  # After the palette.
  return data[:at] + b'!\xfe' + (b'\xff' + bytes(255)) * blocks + b'\0' + (
      data[at:])


def avif_of_items(count):
  """Returns the header of an AVIF with many items."""
  items = b''.join(box(b'infe', b'\3\0\0\0' + struct.pack(
      '>IH4sx', i + 1, 0, b'av01')) for i in range(count))
  return box(b'ftyp', b'avif\0\0\0\0avifmif1miaf') + box(b'meta', bytes(4) + (
      box(b'hdlr', bytes(8) + b'pict' + bytes(13)) + box(b'iinf', (
          b'\1\0\0\0' + struct.pack('>I', count) + items))))


def jpeg2000(width, height, *, cut=True):
  """Returns a JPEG 2000 with another size, without or with an end marker."""
  data = bytearray(pictures.encode(picture(16, 16), 'JPEG2000', no_jp2=True))
  for at in (8, 24):  # Of the image, and of its tiles.
    data[at:at + 8] = struct.pack('>II', width, height)
  return bytes(data[:200]) + b'\xff\xd9' * (not cut)


def tiff(**tags):
  """Returns a grey TIFF of one uncompressed strip, with other tags by name."""
  numbers = {'width': 256, 'height': 257, 'bits': 258, 'compression': 259,
             'photometric': 262, 'offset': 273, 'samples': 277, 'rows': 278,
             'count': 279, 'x_resolution': 282, 'tile_width': 322,
             'tile_length': 323, 'tile_offset': 324, 'tile_count': 325,
             'exif': 34665}
  values = {'width': 4, 'height': 4, 'bits': 8, 'compression': 1,
            'photometric': 1, 'offset': 8, 'samples': 1, 'rows': 4,
            'count': 16, **tags}
  # A tuple is (type, count, value).
  entries = [(numbers[name], *(value if isinstance(value, tuple) else
                               (4, 1, value)))
             for name, value in values.items()]
  return (b'II*\0' + struct.pack('<I', 24) + bytes(range(16))
          + directory(entries))


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


def bad():
  """Returns (file, pattern of its error) by name."""
  files, huge = good(), 60_000
  progressive = files['jpeg progressive']
  scan = progressive.index(b'\xff\xda')
  text = zlib.compress(bytes(80 << 20))
  return {
      'empty': (b'', 'not an image'),
      'postscript': (b'%!PS-Adobe-3.0 EPSF-3.0\n', 'not an image'),
      'png corrupt': (
          files['png'][:-300] + b'\xff' * 300, 'not a readable image'),
      'jpeg huge': (with_size(files['jpeg'], huge, huge), 'Make it smaller'),
      'webp huge': (webp(8200, 8200), 'Make it smaller'),
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
      'text bomb': (
          png(4, 4, chunks=[(b'zTXt', b'a\0\0' + text)]), 'not a'),
      'npy of many numbers': (
          files['npy'].replace(b'(24, 33, 3)', b'(24000000, 33000, 3)'
                               )[:-40], 'npy'),
      'npy of objects': (files['npy'].replace(b'|u1', b'|O8'), 'npy'),
      'npy empty': (npy(np.zeros((0, 0), np.uint8)), 'each side must'),
      'npy huge': (npy(np.zeros((2**14, 2**13), np.uint8)), 'Make it smaller'),
      'png of one column': (png(1, 2**20), 'each side must'),
      'pnm of other depth, truncated': (b'P5\n33 24\n6\n', 'not a readable'),
      'pnm in ascii': (b'P2 9 9 255\n' + b'1 ' * 81, 'binary PNM'),
      # Pillow reads these headers byte by byte or chunk by chunk.
      'ppm padded': (b'P6' + b' ' * 2**20 + b'1 1 255\n000', 'many parts'),
      'jpeg padded': (
          files['jpeg'][:2] + b'\xff' * 2**20 + files['jpeg'][2:],
          'many parts'),
      'png of many chunks': (
          png(4, 4, chunks=[(b'tIME', b'')] * 2**16), 'many parts'),
      # Pillow joins them in quadratic time.
      'gif of many comment blocks': (gif_with_comment(49_000), 'many parts'),
      'jpeg of many exif segments': (
          files['jpeg'][:2] + segment(0xe1, b'Exif\0\0' + bytes(1000)) * 12_000
          + files['jpeg'][2:], 'many parts'),
      'tiff of many strips': (
          tiff(offset=(4, 2_000_000, 8), count=(4, 2_000_000, 8))
          + bytes(8_000_000), 'too many strips'),
      'tiff of many rationals': (
          tiff(x_resolution=(5, 1_000_000, 8)) + b'\1\0\0\0' * 2_000_000,
          'too many strips, tiles or values'),
      'tiff of shared bytes': (
          shared_bytes(60_000, 4_000_000), 'too many strips, tiles or values'),
      'tiff of shared bytes in exif': (
          tiff(exif=(3, 1, 150)) + directory(
              [(tag, 7, 4_000_000, 8) for tag in range(5000)])
          + bytes(4_000_000), 'too many strips, tiles or values'),
      'tiff of many directories': (
          b'II*\0' + b''.join(struct.pack('<IH', at, 0) for at in range(
              8, 6 * 2**19, 6)), 'too many strips, tiles or values'),
      'avif of many items': (avif_of_items(300_000), 'its header has'),
      'jpeg2000 huge and cut': (jpeg2000(8192, 8192), 'is cut off'),
      'jpeg2000 huge': (jpeg2000(8192, 8192, cut=False), 'needs 2,048 MiB'),
      'webp animated, huge': (webp(8192, 8192), 'needs 1,600 MiB')}
