"""How images are stored: as they are, or made smaller once for all epochs.

A training that crops 224 pixels out of a photograph of 12 million decodes most
of them for nothing, anew in every epoch.
"""

import dataclasses
import io

import numpy as np
from PIL import Image

from vit_jax import data
from vit_jax.data.images import decode
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel

QUALITY = 95  # Of JPEG, as Pillow counts: beyond, files grow and little else.
_GREY = ('1', 'L')


@dataclasses.dataclass(frozen=True)
class Pictures:
  """What becomes of images.

  Attributes:
    shorter_side: the most pixels that it may have; 0 for any.
    quality: of the JPEGs that are written for larger ones.
    max_pixels: of a file that is decoded.
  """
  shorter_side: int = 0
  quality: int = QUALITY
  max_pixels: int = limits.MAX_PIXELS

  def __post_init__(self):
    if self.shorter_side < 0:
      raise ValueError(
          'The shorter side of an image has at least a pixel (--shorter-side), '
          f'or 0 for as many as there are; got {self.shorter_side}.')
    if not 1 <= self.quality <= 100:
      raise ValueError(
          f'A JPEG has a quality from 1 to 100 (--quality); got '
          f'{self.quality}.')

  @property
  def description(self) -> str:
    """What was done to them, in words; '' for nothing."""
    if not self.shorter_side:
      return ''
    return (
        f'Images whose shorter side had more than {self.shorter_side} pixels '
        'were made smaller, by a Lanczos filter; JPEGs have quality '
        f'{self.quality}.')

  def stored(self, image: bytes | np.ndarray) -> bytes:
    """Returns the file that is stored of an image.

    A larger JPEG becomes a smaller JPEG; a larger image of another kind
    becomes PNG, upright and without transparency, as training
    decodes it. What has more than 8 bits stays as it is, as does a file that
    cannot be read: what is done about it, a run says (`data.unreadable`).

    Args:
      image: bytes of a file, or uint8 pixels [height, width], [height, width,
        1] or [height, width, 3].

    Raises:
      ValueError: for pixels that PNG cannot hold as they are.
    """
    if isinstance(image, np.ndarray):
      pixels = _picture(image)
      return _encoded(self._smaller(pixels) or pixels, 'PNG')
    return self._smaller_file(image) or bytes(image)

  def made_smaller(self, image: bytes | np.ndarray, stored: bytes) -> bool:
    """Returns whether what is stored of an image has fewer pixels."""
    if isinstance(image, np.ndarray):
      return 0 < self.shorter_side < min(image.shape[:2])
    return stored != image

  def _smaller_file(self, data: bytes) -> bytes | None:
    """Returns a file of fewer pixels; None if this is to stay."""
    if not self.shorter_side:
      return None
    try:
      with limits.open_image(data, max_pixels=self.max_pixels) as header:
        form, mode, size = header.format, header.mode, header.size
        is_deep = multichannel.is_deep(header)
      if min(size) <= self.shorter_side or is_deep:
        return None
      image = self._smaller(decode.decode(
          data, channels=1 if mode in _GREY else 3,
          max_pixels=self.max_pixels))
    except ValueError:
      return None
    assert image is not None
    if form != 'JPEG':
      return _encoded(image, 'PNG')
    return _encoded(image, 'JPEG', quality=self.quality)

  def _smaller(self, image: Image.Image) -> Image.Image | None:
    """Returns an image of fewer pixels; None if it has no more already."""
    shorter = min(image.size)
    if not self.shorter_side or shorter <= self.shorter_side:
      return None
    width, height = (
        max(1, round(side * self.shorter_side / shorter))
        for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


AS_THEY_ARE = Pictures()


def of(
    config: data.DataConfig, *, shorter_side: int, quality: int | None,
) -> Pictures:
  """Returns what becomes of the images of a data set.

  Args:
    config: the section `data`.
    shorter_side: as of `Pictures`.
    quality: as of `Pictures`; None for its own.

  Raises:
    ValueError: if they are no pictures of 8 bits that could be made smaller,
      or none of them is to be.
  """
  if quality is not None and not shorter_side:
    raise ValueError(
        '--quality is of images that are made smaller; without --shorter-side '
        'all files stay as they are. Give --shorter-side, or leave it out.')
  if shorter_side and not config.is_picture:
    raise ValueError(
        f'Images of {config.channels} channels of {config.dtype} stay as they '
        'are: --shorter-side is for those of 1 or 3 channels of 8 bits. Leave '
        'it out.')
  return Pictures(
      shorter_side, QUALITY if quality is None else quality, config.max_pixels)


def _picture(pixels: np.ndarray) -> Image.Image:
  if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (1,), (3,)):
    raise ValueError(
        f'an array of {pixels.dtype} {list(pixels.shape)} is no image that '
        '`data prepare` can write: uint8 with 1 or 3 channels')
  return Image.fromarray(
      pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


def _encoded(image: Image.Image, form: str, **options: int) -> bytes:
  buffer = io.BytesIO()
  image.save(buffer, form, **options)
  return buffer.getvalue()
