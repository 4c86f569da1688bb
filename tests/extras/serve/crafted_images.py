"""Image files that cost a decoder much time or memory."""

import struct
import zlib

from tests import hostile
from tests import pictures


def shared_bytes(entries, size):
  """Returns an EXIF block whose entries all have the same `size` bytes."""
  at = 8 + 2 + 12 * entries + 4
  return b'II*\0\x08\0\0\0' + struct.pack('<H', entries) + b''.join(
      struct.pack('<HHII', tag + 1, 7, size, at) for tag in range(entries)
      ) + bytes(4 + size)


def segment(marker, content):
  """Returns a segment of a JPEG."""
  return struct.pack('>BBH', 0xff, marker, len(content) + 2) + content


def gif_with_comment(blocks):
  """Returns a GIF with a comment of many blocks before its image."""
  data = hostile.good()['gif']
  at = 13 + (3 << (data[10] & 7) + 1)  # After the palette.
  return data[:at] + b'!\xfe' + (b'\xff' + bytes(255)) * blocks + b'\0' + (
      data[at:])


def webp(width, height):
  """Returns an animated WebP of two small frames on a large canvas."""
  def riff(kind, content):
    return kind + struct.pack('<I', len(content)) + content

  def three(*numbers):
    return b''.join(number.to_bytes(3, 'little') for number in numbers)

  frame = hostile.good()['webp lossless'][12:]
  body = b'WEBP' + riff(b'VP8X', b'\2\0\0\0' + three(width - 1, height - 1))
  body += riff(b'ANIM', bytes(6)) + 2 * riff(
      b'ANMF', three(0, 0, 32, 23, 100) + b'\0' + frame)
  return riff(b'RIFF', body)


def crafted():
  """Returns (file, whether it is an image) by name."""
  files, huge = hostile.good(), 60_000
  jpeg, png_file, progressive = (
      files[name] for name in ('jpeg', 'png', 'jpeg progressive'))
  scan = progressive.index(b'\xff\xda')
  block, small = shared_bytes(60_000, 4_000_000), shared_bytes(3000, 29_000)
  exif = b''.join(segment(0xe1, b'Exif\0\0' + block[at:at + 60_000])
                  for at in range(0, len(block), 60_000))
  padding = segment(0xe1, b'Exif\0\0' + bytes(1000)) * 12_000
  return {
      'jpeg huge': (hostile.with_size(jpeg, huge, huge), False),
      'png huge': (hostile.png(8000, 8000), False),
      'webp huge': (webp(8192, 8192), False),
      'text bomb': (hostile.png(4, 4, chunks=[
          (b'zTXt', b'a\0\0' + zlib.compress(bytes(80 << 20)))]), False),
      'png of many chunks': (
          hostile.png(4, 4, chunks=[(b'tIME', b'')] * 2**16), False),
      'gif of many comment blocks': (gif_with_comment(49_000), False),
      'jpeg of many scans': (
          progressive[:scan] + progressive[scan:scan + 40] * 400_000, False),
      'jpeg of empty scans': (
          hostile.with_size(jpeg, 4000, 4000) + b'\xff\xda' * 200, True),
      'jpeg padded': (jpeg[:2] + b'\xff' * 2**20 + jpeg[2:], True),
      'jpeg of many exif segments': (jpeg[:2] + padding + jpeg[2:], False),
      # Pillow needs the resolution of an EXIF block if there is no other.
      'jpeg exif': (
          jpeg[:2] + exif + jpeg[2:].replace(b'JFIF', b'JFIX'), False),
      'jpeg of many pictures': (
          jpeg[:2] + segment(0xe2, b'MPF\0' + small) + jpeg[2:], True),
      'webp exif': (
          pictures.encode(hostile.picture(), 'WEBP', exif=block), True),
      'png exif': (
          png_file[:33] + hostile.chunk(b'eXIf', block) + png_file[33:], True),
      'png exif prefixes': (png_file[:33] + hostile.chunk(
          b'eXIf', b'Exif\0\0' * 500_000) + png_file[33:], False),
      'png exif profile': (png_file[:33] + hostile.chunk(
          b'zTXt', b'Raw profile type exif\0\0' + zlib.compress(
              b'\nexif\n1\n' + small.hex().encode())) + png_file[33:], True),
      'tiff': (files['tiff'], False),
      'jpeg 2000': (bytes.fromhex('ff4fff51'), False)}
