"""Properties of one image: digest, size, format, perceptual hash, features."""

import dataclasses
import os

from jaxtyping import Float, Float32, UInt8
import numpy as np
from PIL import Image
from scipy import ndimage

from vit_jax import pictures
from vit_jax.curation import similarity
from vit_jax.data.augment import ops as ops_lib
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel
from vit_jax.data.splits import split_strings

# Of `features`: sides in pixels and cells, and the number of angles.
_SIDE, _CELLS, _ANGLES, _COLOURS = 32, 8, 9, 4
# Relative to edges; the best of several for 20 nearest neighbours on 5,000
# CIFAR-10 images (47 %, 2026-11-21).
_COLOUR_WEIGHT = 0.2


@dataclasses.dataclass(eq=False)
class ImageRecord:
  """A readable image; about two kilobytes.

  Attributes:
    digest: 64-bit hash of the file's bytes, or of the pixels.
    size: width and height in pixels, after EXIF rotation.
    mode: format and pixel mode, such as 'JPEG RGB' or 'uint16 x 13'.
    num_bytes: size of the file, or of the pixels.
    remarks: unusual but valid properties.
    hash: perceptual hash.
    view: pixel averages, for `similarity`.
    features: for nearest neighbours.
    image: RGB, at least `min_side` pixels, until a model has seen it.
  """
  digest: int
  size: tuple[int, int]
  mode: str
  num_bytes: int
  remarks: list[str]
  hash: np.uint64
  view: UInt8[np.ndarray, '16 16 3']
  features: Float[np.ndarray, 'width']
  image: Image.Image | None = None


def build(
    data: bytes | np.ndarray, key: str, decoded: ops_lib.Picture, *,
    min_side: int = 0,
) -> ImageRecord:
  """Returns the properties of an image.

  Args:
    data: file content, or pixels.
    key: the example's key; its extension is compared with the format.
    decoded: the image as training decodes it.
    min_side: shorter side of the image kept for a model; 0 keeps none.
  """
  mode, remarks = _inspect(data, key)
  content = data if isinstance(data, bytes) else (
      f'{data.shape}{mode}'.encode() + data.tobytes())
  image = to_rgb(decoded)
  thumbnail = similarity.thumbnail(image)
  if similarity.is_flat(thumbnail[None])[0]:
    remarks.append('single colour')
  view = similarity.view(thumbnail)
  # A chunk of images is held in memory.
  factor = min(image.size) // min_side if min_side else 0
  return ImageRecord(
      split_strings.stable_hash(content), decoded.size, mode,
      len(data) if isinstance(data, bytes) else data.nbytes, remarks,
      similarity.fingerprints(thumbnail[None])[0, 0],
      np.round(view).astype(np.uint8),
      features(thumbnail[None])[0].astype(np.float16),
      (image.reduce(factor) if factor > 1 else image) if min_side else None)


def to_rgb(decoded: ops_lib.Picture) -> Image.Image:
  """Returns a displayable image; see `pictures.to_image`."""
  return (decoded if isinstance(decoded, Image.Image) else pictures.to_image(
      np.nan_to_num(decoded.pixels.astype(np.float32)))).convert('RGB')


def features(
    thumbnails: UInt8[np.ndarray, 'images 64 64 3'],
) -> Float32[np.ndarray, 'images width']:
  """Returns one row of features per image: its edges and colours.

  Histograms of gradients in 8 x 8 cells (Dalal and Triggs, "Histograms of
  Oriented Gradients for Human Detection", CVPR 2005), and the mean colours of
  4 x 4 cells. Weak compared with any trained model.
  """
  small = _cell_means(thumbnails.astype(np.float32), _SIDE)
  edges = _edges(small @ similarity.LUMA)
  colours = _cell_means(small / 255, _COLOURS)
  rows = colours.reshape(len(thumbnails), -1) - 0.5
  return np.concatenate([edges, _COLOUR_WEIGHT * rows], axis=1)


def _inspect(data: bytes | np.ndarray, key: str) -> tuple[str, list[str]]:
  """Returns the mode of a decodable image, and remarks about its file."""
  if isinstance(data, bytes) and data.startswith(multichannel.NUMPY):
    data = multichannel.load_array(data)
  if isinstance(data, np.ndarray):
    return f'{data.dtype} x {data.shape[2] if data.ndim > 2 else 1}', []
  with limits.open_image(data, max_pixels=limits.LARGEST) as header:
    expected = Image.registered_extensions().get(
        os.path.splitext(key)[1].lower())
    form = str(header.format)
    return f'{form} {header.mode}', [
        'format differs from the file extension'] * (
            expected not in (None, form))


def _edges(
    grey: Float32[np.ndarray, 'images 32 32'],
) -> Float32[np.ndarray, 'images width']:
  """Returns gradient histograms, normalised over neighbouring cells."""
  down, across = np.gradient(grey, axis=(1, 2))
  strength = np.hypot(down, across)
  # Unsigned orientation: an edge has the same angle whichever side is bright.
  turn = np.arctan2(down, across) / np.pi % 1 * _ANGLES
  lower = np.floor(turn)
  part = turn - lower
  angles = np.arange(_ANGLES)
  first = (lower[..., None] % _ANGLES == angles) * (1 - part)[..., None]
  second = ((lower[..., None] + 1) % _ANGLES == angles) * part[..., None]
  cells = _cell_means((first + second) * strength[..., None], _CELLS)
  # Normalising removes contrast; the constant keeps noise small.
  energy = ndimage.uniform_filter(
      np.square(cells).sum(axis=-1), size=(1, 3, 3), mode='nearest')
  cells = np.minimum(cells / np.sqrt(energy + 4.0)[..., None], 0.4)
  return cells.reshape(len(grey), -1).astype(np.float32) / _CELLS


def _cell_means(
    pixels: Float32[np.ndarray, 'images side side channels'], count: int,
) -> Float32[np.ndarray, 'images count count channels']:
  side = pixels.shape[1] // count
  return pixels.reshape(
      len(pixels), count, side, count, side, -1).mean(axis=(2, 4))
