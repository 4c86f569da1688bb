"""Encoding of stored images: unchanged, or reduced once."""

import dataclasses
import io

import numpy as np
from PIL import Image

from vit_jax import fields
from vit_jax.data.images import decode
from vit_jax.data.images import image_file
from vit_jax.exceptions import UserError

_QUALITY = 95  # Pillow's JPEG quality; higher values mostly add bytes.


@dataclasses.dataclass(frozen=True)
class ImageFormat:
  """Format of stored images.

  Attributes:
    shorter_side: larger images are reduced to this side in pixels; 0 keeps
      all sizes.
  """
  shorter_side: int = 0
  max_pixels: int = image_file.MAX_PIXELS

  def __post_init__(self):
    fields.check_range(self, 'shorter_side')

  @property
  def description(self) -> str:
    """Text for the dataset's description; empty if images are unchanged."""
    if not self.shorter_side:
      return ''
    return (
        f'Images with a shorter side of more than {self.shorter_side} pixels '
        f'were reduced with a Lanczos filter; JPEGs have quality {_QUALITY}.')

  def encode(self, image: bytes | np.ndarray) -> bytes:
    """Returns the stored file of an image.

    A large JPEG becomes a smaller JPEG, and other large images PNG, rotated
    and opaque as training decodes them. Images of more than 8 bits and
    unreadable files are stored unchanged. Pixel arrays become PNG.

    Raises:
      UserError: for pixels other than uint8 grey or RGB.
    """
    if isinstance(image, np.ndarray):
      channels = 1 if image.shape[2:] in ((), (1,)) else 3
      return self._save(decode.decode(image, channels=channels), 'PNG')
    if not self.shorter_side:
      return bytes(image)
    try:
      with image_file.open_image(image, max_pixels=self.max_pixels) as header:
        form, mode, size = header.format, header.mode, header.size
        is_deep = image_file.is_deep(header)
      if is_deep or not self._is_large(size):
        return bytes(image)
      decoded = decode.decode(image, channels=1 if mode in ('1', 'L') else 3,
                              max_pixels=self.max_pixels)
    except UserError:
      return bytes(image)
    return self._save(decoded, 'JPEG' if form == 'JPEG' else 'PNG')

  def _is_large(self, size: tuple[int, int]) -> bool:
    return 0 < self.shorter_side < min(size)

  def _save(self, image: Image.Image, form: str) -> bytes:
    """Returns the file of an image, reduced if it is large."""
    if self._is_large(image.size):
      scale = self.shorter_side / min(image.size)
      image = image.resize(
          (max(1, round(image.width * scale)),
           max(1, round(image.height * scale))), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, form, quality=_QUALITY)  # Which PNG ignores.
    return buffer.getvalue()
