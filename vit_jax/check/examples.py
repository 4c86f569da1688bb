"""What one example is: its file's facts, and what is kept of its pixels."""

from collections.abc import Callable
import dataclasses
import hashlib
import io
import os
from typing import Any

from jaxtyping import Num, UInt8
import numpy as np
from PIL import ExifTags
from PIL import Image

from vit_jax.data.augment import ops
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.images import multichannel

# Of bytes or pixels, to a Pillow image or `Bands`; raises a ValueError.
Decode = Callable[[Any], ops.Picture]

SHOWN_SIDE = 96  # The longest side of what a page shows, in pixels.
_QUALITY = 80  # Of its JPEG: some 2 KB each.

# By its suffix, what a file says it is; others say nothing.
_FORMATS = {
    '.jpg': 'JPEG', '.jpeg': 'JPEG', '.jpe': 'JPEG', '.jfif': 'JPEG',
    '.png': 'PNG', '.apng': 'PNG', '.webp': 'WEBP', '.bmp': 'BMP',
    '.gif': 'GIF', '.ppm': 'PPM', '.pgm': 'PPM', '.pbm': 'PPM',
    '.tif': 'TIFF', '.tiff': 'TIFF', '.avif': 'AVIF', '.jp2': 'JPEG2000'}
ANIMATED = 'animated: its first picture is used'
TURNED = 'turned upright as its EXIF says'
MISNAMED = 'of another format than its name says'
FLAT = 'of one colour'


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
  """An example that could be read.

  Attributes:
    digest: 64 bits of the file's bytes, or of the pixels where there are none.
    size: width and height in pixels, upright.
    mode: format and pixels, as 'JPEG RGB' or 'uint16 x 13'.
    num_bytes: of the file, or of the pixels.
    remarks: what is odd, and no fault.
    thumbnail: as `fingerprint.thumbnail`.
    shown: a JPEG to look at.
    picture: in RGB, of a side of `keep` pixels or a little more.
  """
  digest: int
  size: tuple[int, int]
  mode: str
  num_bytes: int
  remarks: tuple[str, ...]
  thumbnail: UInt8[np.ndarray, '64 64 3']
  shown: bytes
  picture: Image.Image | None


def look(
    image: bytes | np.ndarray, key: str, decode: Decode, *, keep: int = 0,
) -> Seen:
  """Returns what an example is.

  Args:
    image: bytes of a file, or pixels.
    key: of the example: perhaps the name of a file.
    decode: as a run would decode it.
    keep: the shorter side of the picture that is kept, for a model; 0 for
      none.

  Raises:
    ValueError: if a run could not decode it.
  """
  decoded = decode(image)
  remarks: tuple[str, ...] = ()
  if isinstance(image, np.ndarray):
    mode = _pixels(image)
    data = str(image.shape).encode() + mode.encode() + image.tobytes()
    num_bytes = image.nbytes
  elif image.startswith(multichannel.NUMPY):
    mode, data, num_bytes = _pixels(multichannel.load_array(image)), image, len(image)
  else:
    mode, remarks = _facts(image, key)
    data, num_bytes = image, len(image)
  picture = _to_rgb(decoded)
  thumbnail = perceptual_hash.thumbnail(picture)
  if perceptual_hash.is_flat(thumbnail[None])[0]:
    remarks = (*remarks, FLAT)
  digest = hashlib.blake2b(data, digest_size=8).digest()
  return Seen(
      int.from_bytes(digest, 'little'), decoded.size, mode, num_bytes, remarks,
      thumbnail, _shown(picture), _reduced(picture, keep) if keep else None)


def _facts(data: bytes, key: str) -> tuple[str, tuple[str, ...]]:
  """Returns format and mode of a file, and what is odd about it."""
  with Image.open(io.BytesIO(data)) as opened:
    said = _FORMATS.get(os.path.splitext(key)[1].lower())
    # An MPO is a JPEG with others behind it, as many cameras write.
    kind = 'JPEG' if opened.format == 'MPO' else str(opened.format)
    remarks = [remark for remark, holds in (
        (ANIMATED, kind != 'JPEG' and getattr(opened, 'n_frames', 1) > 1),
        (TURNED, _orientation(opened) > 1),
        (MISNAMED, said is not None and said != kind)) if holds]
    return f'{kind} {opened.mode}', tuple(remarks)


def _orientation(opened: Image.Image) -> int:
  try:
    found = opened.getexif().get(ExifTags.Base.Orientation, 1)
  except Exception:  # A defective EXIF block; the pixels are what matters.
    return 1
  return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _pixels(array: np.ndarray) -> str:
  """Returns the type and the channels of an array."""
  channels = array.shape[2] if array.ndim > 2 else 1
  return f'{array.dtype} x {channels}'


def _to_rgb(decoded: ops.Picture) -> Image.Image:
  """Returns a picture to look at; of other channels the first three or one.

  These are stretched from their lowest value to their highest.
  """
  if isinstance(decoded, Image.Image):
    return decoded.convert('RGB')
  pixels = decoded.pixels
  pixels = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1]
  return Image.fromarray(_stretched(pixels)).convert('RGB')


def _stretched(
    pixels: Num[np.ndarray, 'height width channels'],
) -> UInt8[np.ndarray, '...']:
  values = np.nan_to_num(pixels.astype(np.float32))
  low, high = float(values.min()), float(values.max())
  scaled = (values - low) * (255 / max(high - low, 1e-12))
  grey = scaled.shape[-1] == 1
  return (scaled[..., 0] if grey else scaled).astype(np.uint8)


def _reduced(picture: Image.Image, keep: int) -> Image.Image:
  """Returns a large picture smaller by whole pixels: many are held at once."""
  factor = min(picture.size) // keep
  return picture.reduce(factor) if factor > 1 else picture


def _shown(picture: Image.Image) -> bytes:
  small = picture.copy() if max(picture.size) <= SHOWN_SIDE else picture
  if small is picture:
    scale = SHOWN_SIDE / max(picture.size)
    size = [max(1, round(side * scale)) for side in picture.size]
    small = picture.resize(
        (size[0], size[1]), Image.Resampling.BOX, reducing_gap=3.0)
  buffer = io.BytesIO()
  small.save(buffer, 'JPEG', quality=_QUALITY)
  return buffer.getvalue()
