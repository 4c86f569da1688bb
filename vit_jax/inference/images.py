"""Pictures in, arrays in a model's value range out: what a person hands over.

A picture is a path, a Pillow image, or an array: uint8 in 0 ... 255 or float in
0 ... 1, [height, width] or [height, width, 1, 3 or 4]; the fourth channel is
how opaque it is, on white.
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import glob
import os
from typing import Any, TypeGuard

from etils import epath
import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np
from PIL import Image

from vit_jax.data.augment import ops
from vit_jax.data.images import decode as decode_lib
from vit_jax.data.images import multichannel
from vit_jax.data.images import threads
from vit_jax.weights.configs import preprocessing as preprocessing_lib

Picture = str | os.PathLike | Image.Image | np.ndarray
# Told of a picture that cannot be read, and why.
Failed = Callable[[Picture, Exception], None]


@dataclasses.dataclass(frozen=True)
class Batch:
  """Pictures that were read.

  Attributes:
    pictures: as they were given, `count` of them.
    images: in the model's value range; zeros after the first `count`.
  """
  pictures: tuple[Picture, ...]
  images: Float[np.ndarray, 'batch height width channels']

  @property
  def count(self) -> int:
    """How many of `images` are pictures."""
    return len(self.pictures)


def is_one(pictures: Any, *, channels: int) -> TypeGuard[Picture]:
  """Whether this is one picture, of a model's channels, and not several."""
  if isinstance(pictures, (str, os.PathLike, Image.Image)):
    return True
  if getattr(getattr(pictures, 'dtype', None), 'kind', '') in ('U', 'O'):
    return False  # An array of paths.
  return hasattr(pictures, 'ndim') and pictures.ndim < 4 and not (
      pictures.ndim == 3 and pictures.shape[-1] not in (1, 3, 4, channels))


def read(
    picture: Picture, preprocess: preprocessing_lib.Preprocess,
) -> Float[np.ndarray, 'height width channels']:
  """Returns a picture as its model was trained on pictures.

  Args:
    picture: see the top of the file.
    preprocess: size, crop and value range.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if it is no picture; a file is named.
  """
  pixels = ops.to_array(
      _applied(picture, preprocess), size=preprocess.resolution)
  low, high = preprocess.value_range or (0.0, 255.0)
  mean, std = (np.asarray(v, np.float32)
               for v in (preprocess.mean, preprocess.std))
  return ((pixels.astype(np.float32) - low) / (high - low) - mean) / std


def batches(
    pictures: Iterable[Picture], preprocess: preprocessing_lib.Preprocess, *,
    size: int, failed: Failed | None = None,
) -> Iterator[Batch]:
  """Yields batches of one size, in order; the last is filled up with zeros.

  Only a few batches are in memory at a time. What cannot be read is told to
  `failed` and left out: a batch may then be smaller than its place.

  Args:
    pictures: see the top of the file.
    preprocess: what is done to each.
    size: of a batch.
    failed: by default, the error is raised.

  Raises:
    FileNotFoundError, ValueError: as `read`, unless there is `failed`.
  """
  errors = () if failed is None else (OSError, ValueError, MemoryError)
  for chunk in threads.read_chunks(
      pictures, lambda picture: read(picture, preprocess), size=size,
      errors=errors):
    good: list[tuple[Picture, np.ndarray]] = []
    for picture, result in chunk:
      if isinstance(result, Exception):
        assert failed is not None
        failed(picture, result)
      else:
        good.append((picture, result))
    if good:
      images = np.stack([image for _, image in good])
      missing = size - len(images)
      yield Batch(tuple(picture for picture, _ in good), np.pad(
          images, ((0, missing), (0, 0), (0, 0), (0, 0))))


def check_batch(images: Any, preprocess: preprocessing_lib.Preprocess) -> None:
  """Raises a `ValueError` if these are no images as a model takes them."""
  if not isinstance(images, (jax.Array, np.ndarray)):
    raise ValueError(
        'Images are an array of floats, but came as '
        f'{type(images).__name__}. Give np.asarray(images, np.float32).')
  shape, dtype = images.shape, images.dtype
  channels = preprocess.channels
  if len(shape) != 4 or shape[-1] != channels:
    raise ValueError(
        f'Images are [batch, height, width, {channels}], but came as '
        f'{list(shape)}' + ('. Transpose them to (0, 2, 3, 1).' if len(
            shape) == 4 and shape[1] == channels else '.'))
  if not jnp.issubdtype(dtype, jnp.floating):
    raise ValueError(
        f'Images are floats in the value range of the model, but came as '
        f'{dtype}. Give (images / 255 - mean) / std, with model.preprocess: '
        f'mean {preprocess.mean}, std {preprocess.std}.')


def is_picture(preprocess: preprocessing_lib.Preprocess) -> bool:
  """Whether what a model sees is something to look at: grey or RGB."""
  return preprocess.pixel_dtype == 'uint8' and preprocess.channels in (1, 3)


def show(
    picture: Picture, preprocess: preprocessing_lib.Preprocess,
) -> Image.Image:
  """Returns what of a picture the model sees; takes what `read` does.

  Raises:
    ValueError: also if it is no picture to look at, but of other channels.
  """
  if not is_picture(preprocess):
    raise ValueError(
        f'Images of {preprocess.channels} channels of '
        f'{preprocess.pixel_dtype} are no pictures to look at.')
  return _applied(picture, preprocess)


def _applied(
    picture: Picture, preprocess: preprocessing_lib.Preprocess,
) -> ops.Picture:
  """Returns a picture, or what has other channels, of the model's size."""
  image = _open(picture, preprocess)
  rng = np.random.default_rng(0)  # Nothing here draws from it.
  for op in _ops(image, preprocess):
    image = op(image, rng)
  return image


def _ops(
    image: ops.Picture, preprocess: preprocessing_lib.Preprocess,
) -> list[ops.Op]:
  size = height, width = preprocess.resolution
  method: Any = preprocess.interpolation
  whole = round(height / preprocess.crop), round(width / preprocess.crop)
  if not preprocess.keep_aspect:
    resize = ops.Resize(whole, method=method)
  elif height == width:
    resize = ops.Resize(shorter=whole[0], method=method)
  else:  # As small as it can be with both sides there.
    scale = max(whole[0] / image.height, whole[1] / image.width)
    resize = ops.Resize(
        (max(height, round(image.height * scale)),
         max(width, round(image.width * scale))), method=method)
  return [resize, ops.CentralCrop(size)]


def _open(
    picture: Picture, preprocess: preprocessing_lib.Preprocess,
) -> ops.Picture:
  channels = preprocess.channels
  as_picture = is_picture(preprocess)

  def decode(data: bytes | np.ndarray) -> ops.Picture:
    if as_picture:
      return decode_lib.decode(data, channels=channels)
    return multichannel.decode(
        data, channels=channels, dtype=preprocess.pixel_dtype)

  if isinstance(picture, (str, os.PathLike)):
    path = epath.Path(picture)
    if path.is_dir():
      raise ValueError(f'{path} is a folder, not a picture. Give its files.')
    try:
      data = path.read_bytes()
    except FileNotFoundError as error:
      raise FileNotFoundError(
          f'{path}: there is no such file.' + (
              ' Of a pattern give what it finds: pathlib.Path().glob(...).'
              if glob.has_magic(os.fspath(path)) else '')) from error
    try:
      return decode(data)
    except ValueError as error:
      raise ValueError(f'{path}: {error}') from error
  if isinstance(picture, Image.Image):
    if not as_picture:
      return decode(np.asarray(picture))
    return decode_lib.convert(picture.copy(), channels=channels)
  array = np.asarray(picture)
  if not as_picture:
    return decode(array)
  pixels = _pixels(array)
  if pixels.shape[2:] == (4,):
    return decode_lib.convert(Image.fromarray(pixels), channels=channels)
  return decode(pixels)


def _pixels(array: np.ndarray) -> np.ndarray:
  """Returns [height, width] or [height, width, 1, 3 or 4] as uint8."""
  if array.ndim != 2 and (array.ndim != 3 or array.shape[-1] not in (1, 3, 4)):
    raise ValueError(
        'A picture is [height, width] or [height, width, 1, 3 or 4], but came '
        f'as {list(array.shape)}' + (
            '. Transpose it to (1, 2, 0).'
            if array.ndim == 3 and array.shape[0] in (1, 3, 4) else '.'))
  if not array.size:
    raise ValueError(f'A picture of {list(array.shape)} has no pixels.')
  if array.dtype == np.uint8:
    return array
  if not np.issubdtype(array.dtype, np.floating):
    raise ValueError(
        'A picture is uint8 in 0 ... 255 or float in 0 ... 1, but came as '
        f'{array.dtype}. Divide it by the value of white: array / 255, or '
        'array / 65535 where that is 16 bits.')
  if not (array.min() >= 0 and array.max() <= 1):  # Nor NaN.
    raise ValueError(
        f'A picture of floats is in 0 ... 1, but goes from {array.min():.4g} '
        f"to {array.max():.4g}. Divide it by 255; what is in the model's own "
        'value range goes to model(images).')
  return np.round(255 * array).astype(np.uint8)
