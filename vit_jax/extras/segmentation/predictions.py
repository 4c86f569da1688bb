"""Classes of the pixels of images: their shares, arrays and files."""

from collections.abc import Callable, Generator, Iterable, Sequence
import contextlib
import os
from typing import Any

from jaxtyping import Float, UInt8
import numpy as np
from PIL import Image

from vit_jax import atomic_files
from vit_jax import pixel_classes
from vit_jax.extras.segmentation import mask_reader
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib
from vit_jax.inference import predictions


def check(model: model_lib.Model) -> None:
  """Raises a `ValueError` without a decoder, or if images are cropped."""
  if not model.has_decoder:
    raise ValueError(
        f'{model.address or "The model"} has no decoder, and so no classes of '
        'pixels. Train one with configs/segmentation.py.')
  mask_reader.check_whole(
      model.preprocess.ops or (), where='the preprocessing of the model')


def segment(model: model_lib.Model, images: Any, **options: Any) -> Any:
  """Returns the class of each pixel of images; see `Model.segment`."""
  check(model)
  return model.collect(
      lambda outputs, sources: map(
          model.pixel_classes, sources, outputs['logits']), images, **options)


def shares(
    logits: Float[Any, 'batch rows columns classes'], *, labels: Sequence[str],
    top_k: int,
) -> list[predictions.Prediction]:
  """Returns the most frequent classes of pixels, with their shares."""
  found = np.asarray(logits).argmax(axis=-1)
  fractions = np.stack([(found == i).mean(axis=(1, 2))
                        for i in range(logits.shape[-1])], axis=-1)
  classes = np.argsort(-fractions, axis=-1, kind='stable')[:, :top_k]
  return predictions.named(
      np.take_along_axis(fractions, classes, axis=-1), classes, labels,
      classes[:, :1])


@contextlib.contextmanager
def mask_writer(
    target: str, model: model_lib.Model, paths: Iterable[str],
) -> Generator[Callable[[str, Any], None], None, None]:
  """Yields a function that writes the mask and overlay of an image's logits.

  Files are at the paths of the images relative to their common folder. An error
  leaves no files. Raises as `check`.
  """
  check(model)
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
