"""Properties of one image: digest, size, format, thumbnail."""

from collections.abc import Callable
import dataclasses
import hashlib
import io
import os
from typing import Any

from jaxtyping import UInt8
import numpy as np
from PIL import ExifTags
from PIL import Image

from vit_jax.data.augment import ops
from vit_jax.data.fingerprints import perceptual_hash
from vit_jax.data.images import multichannel

# Decodes bytes or pixels as training does; raises a ValueError.
Decode = Callable[[Any], ops.Picture]

ANIMATED = 'animated, only the first frame is used'
ROTATED = 'rotated by EXIF orientation'
MISNAMED = 'format differs from the file extension'
FLAT = 'single colour'


@dataclasses.dataclass(frozen=True, eq=False)
class ImageRecord:
  """A readable image.

  Attributes:
    digest: 64-bit hash of the file's bytes, or of the pixels.
    size: width and height in pixels, after EXIF rotation.
    mode: format and pixel mode, such as 'JPEG RGB' or 'uint16 x 13'.
    num_bytes: of the file, or of the pixels.
    remarks: unusual but valid properties.
    thumbnail: see `perceptual_hash.thumbnail`; None once it is hashed.
    image: RGB, at least `min_side` pixels, for a model.
  """
  digest: int
  size: tuple[int, int]
  mode: str
  num_bytes: int
  remarks: tuple[str, ...]
  thumbnail: UInt8[np.ndarray, '64 64 3'] | None
  image: Image.Image | None


def read(
    data: bytes | np.ndarray, key: str, decode: Decode, *, min_side: int = 0,
) -> ImageRecord:
  """Returns the properties of an image.

  Args:
    data: file content, or pixels.
    key: the example's key; its extension is compared with the format.
    decode: as training decodes it.
    min_side: shorter side of the image kept for a model; 0 keeps none.

  Raises:
    ValueError: if training could not decode it.
  """
  decoded = decode(data)
  remarks: tuple[str, ...] = ()
  if isinstance(data, np.ndarray):
    mode, num_bytes = _array_mode(data), data.nbytes
    content = f'{data.shape}{mode}'.encode() + data.tobytes()
  else:
    content, num_bytes = data, len(data)
    if data.startswith(multichannel.NUMPY):
      mode = _array_mode(multichannel.load_array(data))
    else:
      mode, remarks = _inspect_file(data, key)
  image = to_rgb(decoded)
  thumbnail = perceptual_hash.thumbnail(image)
  if perceptual_hash.is_flat(thumbnail[None])[0]:
    remarks = (*remarks, FLAT)
  digest = hashlib.blake2b(content, digest_size=8).digest()
  return ImageRecord(
      int.from_bytes(digest, 'little'), decoded.size, mode, num_bytes, remarks,
      thumbnail, _reduce(image, min_side) if min_side else None)


def to_rgb(decoded: ops.Picture) -> Image.Image:
  """Returns a displayable image: the first three channels, or the first.

  Values other than 8-bit colours are scaled from their minimum to maximum.
  """
  if isinstance(decoded, Image.Image):
    return decoded.convert('RGB')
  channels = 3 if decoded.pixels.shape[-1] >= 3 else 1
  values = np.nan_to_num(decoded.pixels[..., :channels].astype(np.float32))
  low, high = float(values.min()), float(values.max())
  scaled = ((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
  return Image.fromarray(
      scaled[..., 0] if channels == 1 else scaled).convert('RGB')


def _inspect_file(data: bytes, key: str) -> tuple[str, tuple[str, ...]]:
  """Returns format and mode of a file, and remarks."""
  with Image.open(io.BytesIO(data)) as header:
    promised = Image.registered_extensions().get(
        os.path.splitext(key)[1].lower())
    # Many cameras write MPO: a JPEG followed by others.
    kind = 'JPEG' if header.format == 'MPO' else str(header.format)
    remarks = {
        ANIMATED: kind != 'JPEG' and getattr(header, 'n_frames', 1) > 1,
        ROTATED: _orientation(header) > 1,
        MISNAMED: promised is not None and promised != kind}
    return (f'{kind} {header.mode}',
            tuple(remark for remark, holds in remarks.items() if holds))


def _orientation(header: Image.Image) -> int:
  try:
    value = header.getexif().get(ExifTags.Base.Orientation, 1)
  except Exception:  # A defective EXIF block does not affect the pixels.
    return 1
  return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _array_mode(array: np.ndarray) -> str:
  return f'{array.dtype} x {array.shape[2] if array.ndim > 2 else 1}'


def _reduce(image: Image.Image, min_side: int) -> Image.Image:
  """Shrinks a large image by an integer factor: a chunk is held in memory."""
  factor = min(image.size) // min_side
  return image.reduce(factor) if factor > 1 else image
