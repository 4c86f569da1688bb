"""How images are stored: unchanged, or reduced once instead of every epoch."""

import dataclasses
import io

import numpy as np
from PIL import Image

from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel

QUALITY = 95  # Pillow's JPEG quality; higher values mostly add bytes.
_GREY_MODES = ('1', 'L')


@dataclasses.dataclass(frozen=True)
class ImageFormat:
  """How images are stored.

  Attributes:
    shorter_side: larger images are reduced to this side in pixels; 0 keeps
      all sizes.
    quality: JPEG quality of reduced images.
    max_pixels: limit for files that are decoded.
  """
  shorter_side: int = 0
  quality: int = QUALITY
  max_pixels: int = limits.MAX_PIXELS

  def __post_init__(self):
    if self.shorter_side < 0:
      raise ValueError(
          '--shorter-side must be a number of pixels, or 0 for any size; got '
          f'{self.shorter_side}.')
    if not 1 <= self.quality <= 100:
      raise ValueError(
          f'--quality must be from 1 to 100; got {self.quality}.')

  @property
  def description(self) -> str:
    """Text for the dataset's description; empty if images are unchanged."""
    if not self.shorter_side:
      return ''
    return (
        f'Images with a shorter side of more than {self.shorter_side} pixels '
        'were reduced with a Lanczos filter; JPEGs have quality '
        f'{self.quality}.')

  def encode(self, image: bytes | np.ndarray) -> bytes:
    """Returns the stored file of an image.

    A large JPEG becomes a smaller JPEG, and other large images PNG, rotated
    and opaque as training decodes them. Images of more than 8 bits and
    unreadable files are stored unchanged.

    Args:
      image: file content, or uint8 pixels [height, width], [height, width, 1]
        or [height, width, 3].

    Raises:
      ValueError: for pixels that PNG cannot represent.
    """
    if isinstance(image, np.ndarray):
      pixels = _to_image(image)
      return _save(self._reduce(pixels) or pixels, 'PNG')
    return self._reduce_file(image) or bytes(image)

  def is_reduced(self, image: bytes | np.ndarray, stored: bytes) -> bool:
    """Whether the stored image is smaller than the original."""
    if isinstance(image, np.ndarray):
      return 0 < self.shorter_side < min(image.shape[:2])
    return stored != image

  def _reduce_file(self, content: bytes) -> bytes | None:
    """Returns a smaller file; None if it is stored unchanged."""
    if not self.shorter_side:
      return None
    try:
      with limits.open_image(content, max_pixels=self.max_pixels) as header:
        form, mode, size = header.format, header.mode, header.size
        is_deep = multichannel.is_deep(header)
      if min(size) <= self.shorter_side or is_deep:
        return None
      image = self._reduce(decode.decode(
          content, channels=1 if mode in _GREY_MODES else 3,
          max_pixels=self.max_pixels))
    except ValueError:
      return None
    assert image is not None
    if form != 'JPEG':
      return _save(image, 'PNG')
    return _save(image, 'JPEG', quality=self.quality)

  def _reduce(self, image: Image.Image) -> Image.Image | None:
    """Returns a smaller image; None if it is small enough."""
    shorter = min(image.size)
    if not self.shorter_side or shorter <= self.shorter_side:
      return None
    width, height = (
        max(1, round(side * self.shorter_side / shorter))
        for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


UNCHANGED = ImageFormat()


def from_flags(
    config: data.DataConfig, *, shorter_side: int, quality: int | None,
) -> ImageFormat:
  """Returns the format that --shorter-side and --quality describe.

  Raises:
    ValueError: if the images are not 8-bit grey or RGB, or --quality is given
      without --shorter-side.
  """
  if quality is not None and not shorter_side:
    raise ValueError(
        '--quality applies to reduced images only. Give --shorter-side, or '
        'remove it.')
  if shorter_side and not config.is_picture:
    raise ValueError(
        '--shorter-side applies to 8-bit images of 1 or 3 channels, but these '
        f'have {config.channels} channels of {config.dtype}. Remove it.')
  return ImageFormat(
      shorter_side, QUALITY if quality is None else quality, config.max_pixels)


def _to_image(pixels: np.ndarray) -> Image.Image:
  if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (1,), (3,)):
    raise ValueError(
        'Only uint8 pixels of 1 or 3 channels can be stored as PNG, but the '
        f'image is {pixels.dtype} {list(pixels.shape)}.')
  return Image.fromarray(
      pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


def _save(image: Image.Image, form: str, **options: int) -> bytes:
  buffer = io.BytesIO()
  image.save(buffer, form, **options)
  return buffer.getvalue()
