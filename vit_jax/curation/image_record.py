"""Properties of one image: digest, size, perceptual hash, features."""

import dataclasses

from jaxtyping import Float, UInt8
import numpy as np
from PIL import Image

from vit_jax import pictures
from vit_jax.curation import similarity
from vit_jax.data.augment import ops as ops_lib
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(eq=False)
class ImageRecord:
  """A readable image; about two kilobytes.

  Attributes:
    digest: 64-bit hash of the file's bytes, or of the pixels.
    size: width and height in pixels, after EXIF rotation.
    num_bytes: size of the file, or of the pixels.
    hash: perceptual hash.
    view: pixel averages, for `similarity`.
    image: RGB, at least `min_side` pixels, until a model has seen it.
    features: of the model, for nearest neighbours; None without a model.
  """
  digest: int
  size: tuple[int, int]
  num_bytes: int
  hash: np.uint64
  view: UInt8[np.ndarray, '16 16 3']
  image: Image.Image | None = None
  features: Float[np.ndarray, 'width'] | None = None


def build(
    data: bytes | np.ndarray, decoded: ops_lib.Picture, *, min_side: int = 0,
) -> ImageRecord:
  """Returns the properties of an image.

  Args:
    data: file content, or pixels.
    decoded: the image as training decodes it.
    min_side: shorter side of the image kept for a model; 0 keeps none.
  """
  content = data if isinstance(data, bytes) else (
      f'{data.shape}{data.dtype}'.encode() + data.tobytes())
  image = to_rgb(decoded)
  thumbnail = similarity.thumbnail(image)
  # A chunk of images is held in memory.
  factor = min(image.size) // min_side if min_side else 0
  return ImageRecord(
      split_strings.stable_hash(content), decoded.size,
      len(data) if isinstance(data, bytes) else data.nbytes,
      similarity.fingerprints(thumbnail[None])[0, 0],
      np.round(similarity.view(thumbnail)).astype(np.uint8),
      (image.reduce(factor) if factor > 1 else image) if min_side else None)


def to_rgb(decoded: ops_lib.Picture) -> Image.Image:
  """Returns a displayable image; see `pictures.to_image`."""
  return (decoded if isinstance(decoded, Image.Image) else pictures.to_image(
      np.nan_to_num(decoded.pixels.astype(np.float32)))).convert('RGB')
