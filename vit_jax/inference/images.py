"""Reads and preprocesses images for a model.

An image is a path, the bytes of a file, a Pillow image, or an array [height,
width, channels] with the channels of the model, uint8 in 0 ... 255 or float in
0 ... 1; for a model of one channel also [height, width]. Files and Pillow
images are converted: an alpha channel is composited on white.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
import os
from typing import Any, TypeGuard

from etils import epath
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np
from PIL import Image

from vit_jax import exceptions
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data.images import decode
from vit_jax.data.images import ops as ops_lib
from vit_jax.exceptions import UserError

ImageLike = str | os.PathLike | bytes | Image.Image | np.ndarray
OnError = Callable[[ImageLike, Exception], None]


def is_single(images: Any, *, channels: int) -> TypeGuard[ImageLike]:
  """Whether `images` is one image, for a model with `channels` channels.

  Raises a `UserError` for an array that is neither one image nor a batch.
  """
  if isinstance(images, (str, os.PathLike, bytes, Image.Image)):
    return True
  if not hasattr(images, 'ndim') or images.dtype.kind in ('U', 'O'):
    return False  # Several, or an array of paths.
  if images.ndim != 4 or images.shape[-1] != channels:
    _check_shape(images.shape, channels=channels)
  return images.ndim < 4


def _check_shape(shape: tuple[int, ...], *, channels: int) -> None:
  """Raises a `UserError` unless an array is an image of the model.

  A grey image is not accepted for three channels: [3, height, width] would be
  three of them.
  """
  if not (len(shape) == 3 and shape[-1] == channels) and not (
      len(shape) == 2 and channels == 1):
    raise UserError(
        f'An array must be [height, width, {channels}]'
        + ', [height, width]' * (channels == 1)
        + f' or [batch, height, width, {channels}] for this model, but is '
        f'{list(shape)}. Channels come last.' + (
            ' Use numpy.moveaxis(array, -3, -1).'
            if shape[-3:-2] == (channels,) else
            ' PIL.Image.fromarray(array) converts grey and transparent images.'
            if len(shape) > 1 and shape[2:] in ((), (1,), (3,), (4,)) else ''))


def read(
    image: ImageLike, preprocess: preprocessing_lib.Preprocess,
) -> Float[np.ndarray, 'height width channels']:
  """Reads an image and preprocesses it as in the model's training.

  Raises a `FileNotFoundError`, or a `ValueError` if it is not an image.
  """
  pixels = ops_lib.to_array(
      resized(image, preprocess), size=preprocess.resolution)
  scale = preprocess.value_scale
  return scale.normalize(scale.to_unit(pixels))


def batches(
    images: Iterable[ImageLike], preprocess: preprocessing_lib.Preprocess, *,
    size: int, on_error: OnError | None = None,
) -> Iterator[tuple[
    tuple[ImageLike, ...], Float[np.ndarray, 'batch height width channels']]]:
  """Yields images, and their pixels, padded with zeros to `size` images.

  A few batches are in memory at a time. Unreadable images are left out.

  Args:
    images: see the module.
    preprocess: size, crop and value range.
    size: images per batch.
    on_error: called with each unreadable image; None raises as `read` does.
  """
  errors = () if on_error is None else (OSError, UserError, MemoryError)
  for readable, failed in decode.read_chunks(
      images, lambda image: read(image, preprocess), size=size, errors=errors):
    for image, error in failed:
      assert on_error is not None
      on_error(image, error)
    if readable:
      sources, arrays = zip(*readable)
      padding = ((0, size - len(arrays)), (0, 0), (0, 0), (0, 0))
      yield sources, np.pad(np.stack(arrays), padding)


def check_batch(images: Any, preprocess: preprocessing_lib.Preprocess) -> None:
  """Raises a `UserError` unless `images` is a preprocessed batch."""
  shape: tuple[int, ...] = getattr(images, 'shape', ())
  channels = preprocess.channels
  dtype = getattr(images, 'dtype', type(images).__name__)
  if len(shape) != 4 or shape[-1] != channels or (
      not jnp.issubdtype(dtype, jnp.floating)):
    raise UserError(
        f'Images must be an array [batch, height, width, {channels}] of floats '
        'in the value range of the model, (images / 255 - mean) / std with '
        f'mean {preprocess.mean} and std {preprocess.std}, but are '
        f'{list(shape)} {dtype}. Channels come last.')


def is_viewable(preprocess: preprocessing_lib.Preprocess) -> bool:
  """Returns whether the model's input can be shown: grey or RGB, 8 bits."""
  return decode.is_picture(
      channels=preprocess.channels, dtype=preprocess.pixel_dtype)


def resized(
    image: ImageLike, preprocess: preprocessing_lib.Preprocess,
) -> ops_lib.Picture:
  """Returns an image resized and cropped as the model sees it."""
  result = open_image(image, preprocess)
  # Random operations draw the same numbers in each evaluation, too.
  rng = np.random.default_rng(0)
  for op in preprocess.ops or ():
    result = op(result, rng)
  return result


def open_image(
    image: ImageLike, preprocess: preprocessing_lib.Preprocess,
) -> ops_lib.Picture:
  """Returns an image as it is, with the channels of the model."""
  channels = preprocess.channels
  read = functools.partial(
      decode.decode, channels=channels, dtype=preprocess.pixel_dtype)
  if isinstance(image, (str, os.PathLike)):
    data = epath.Path(image).expanduser().read_bytes()
    with exceptions.within(str(image)):
      return read(data)
  if isinstance(image, (bytes, Image.Image)):
    return read(image)
  with exceptions.naming('an image'):
    pixels = np.asarray(image)
  _check_shape(pixels.shape, channels=channels)
  return read(_to_uint8(pixels) if is_viewable(preprocess) else pixels)


def _to_uint8(array: np.ndarray) -> np.ndarray:
  """Returns an array of uint8 or floats as uint8."""
  if not array.size:
    raise UserError(f'An image of shape {list(array.shape)} has no pixels.')
  if array.dtype == np.uint8:
    return array
  if not np.issubdtype(array.dtype, np.floating):
    raise UserError(
        'An image must be uint8 in 0 ... 255 or float in 0 ... 1, but is '
        f'{array.dtype}. Divide it by the value of white: array / 255, or '
        'array / 65535 for 16 bits.')
  if not (array.min() >= 0 and array.max() <= 1):  # Catches NaN, too.
    raise UserError(
        'A float image must be in 0 ... 1, but has values from '
        f'{array.min():.4g} to {array.max():.4g}. Divide it by 255, or pass '
        'preprocessed images to model(images).')
  return np.round(255 * array).astype(np.uint8)
