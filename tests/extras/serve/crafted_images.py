"""Image files that cost a decoder much time or memory."""

import struct
import zlib

from tests import hostile


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


def crafted():
  """Returns (file, whether it is an image) by name."""
  files, huge = hostile.good(), 60_000
  jpeg, progressive = files['jpeg'], files['jpeg progressive']
  scan = progressive.index(b'\xff\xda')
  block = shared_bytes(60_000, 4_000_000)
  exif = b''.join(segment(0xe1, b'Exif\0\0' + block[at:at + 60_000])
                  for at in range(0, len(block), 60_000))
  return {
      'jpeg huge': (hostile.with_size(jpeg, huge, huge), False),
      'png huge': (hostile.png(8000, 8000), False),
      'text bomb': (hostile.png(4, 4, chunks=[
          (b'zTXt', b'a\0\0' + zlib.compress(bytes(80 << 20)))]), False),
      'gif of many comment blocks': (gif_with_comment(49_000), False),
      'jpeg of many scans': (
          progressive[:scan] + progressive[scan:scan + 40] * 400_000, False),
      'jpeg of empty scans': (
          hostile.with_size(jpeg, 4000, 4000) + b'\xff\xda' * 200, True),
      # Pillow needs the resolution of an EXIF block if there is no other.
      'jpeg exif': (
          jpeg[:2] + exif + jpeg[2:].replace(b'JFIF', b'JFIX'), False),
      'tiff': (files['tiff'], False),
      'jpeg 2000': (bytes.fromhex('ff4fff51'), False)}
