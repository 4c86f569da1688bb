"""Files with the classes of pixels of images."""

from collections.abc import Callable, Generator, Iterable
import contextlib
import os
from typing import Any

from jaxtyping import UInt8
import numpy as np
from PIL import Image

from vit_jax import atomic_files
from vit_jax import pixel_classes
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib


@contextlib.contextmanager
def writer(
    target: str, model: model_lib.Model, paths: Iterable[str],
) -> Generator[Callable[[str, Any], None], None, None]:
  """Yields a function that writes the mask and overlay of an image's logits.

  Files are at the paths of the images relative to their common folder. An error
  leaves no files.
  """
  root = os.path.commonpath(
      [os.path.dirname(os.path.abspath(path)) for path in paths])
  count = model.config.num_classes
  with atomic_files.create(target) as folder:
    def write(path: str, logits: Any) -> None:
      classes = model.pixel_classes(path, logits)
      pictures = {'masks': mask_image(classes, count)}
      if images_lib.is_viewable(model.preprocess):
        pictures['overlays'] = overlay(
            images_lib.open_image(path, model.preprocess), classes, count)
      name = os.path.relpath(os.path.abspath(path), root)
      for kind, picture in pictures.items():
        file = folder / kind / f'{os.path.splitext(name)[0]}.png'
        if file.exists():  # Of an image with another suffix.
          file = folder / kind / f'{name}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        picture.save(file)

    yield write


def mask_image(
    classes: UInt8[np.ndarray, 'height width'], count: int) -> Image.Image:
  """Returns a picture whose palette indices are the classes of `count`."""
  picture = Image.fromarray(classes)
  picture.putpalette(pixel_classes.colours(count).tobytes())
  return picture


def overlay(
    image: Image.Image, classes: UInt8[np.ndarray, 'height width'], count: int,
) -> Image.Image:
  """Returns the mean of an image and the colours of its pixels' classes."""
  return Image.blend(
      image.convert('RGB'), mask_image(classes, count).convert('RGB'), 0.5)
