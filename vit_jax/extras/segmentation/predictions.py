"""Classes of the pixels of images: their shares, arrays and files."""

from collections.abc import Callable, Generator, Iterable, Sequence
import contextlib
import functools
import os
from typing import Any

from jaxtyping import Float, UInt8
import numpy as np
from PIL import Image

from vit_jax import atomic_files
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
          functools.partial(of_image, model), sources, outputs['logits']),
      images, **options)


def of_image(
    model: model_lib.Model, image: images_lib.ImageLike,
    logits: Float[np.ndarray, 'rows columns classes'],
) -> UInt8[np.ndarray, 'height width']:
  """Returns the class of each pixel of an image for its logits."""
  width, height = images_lib.open_image(image, model.preprocess).size
  return from_logits(logits, (height, width))


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
      classes = of_image(model, path, logits)
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
  picture.putpalette(colours(count).tobytes())
  return picture


def overlay(
    image: Image.Image, classes: UInt8[np.ndarray, 'height width'], count: int,
) -> Image.Image:
  """Returns the mean of an image and the colours of its pixels' classes."""
  return Image.blend(
      image.convert('RGB'), mask_image(classes, count).convert('RGB'), 0.5)


def from_logits(
    logits: Float[np.ndarray, 'rows columns classes'], size: tuple[int, int],
) -> UInt8[np.ndarray, 'height width']:
  """Returns the class of each pixel of an image of size (height, width).

  Logits are interpolated bilinearly.
  """
  by_class = np.moveaxis(np.asarray(logits, np.float32), -1, 0)
  return np.stack([np.asarray(Image.fromarray(scores).resize(
      size[::-1], Image.Resampling.BILINEAR)) for scores in by_class]).argmax(
          axis=0).astype(np.uint8)


def colours(count: int) -> UInt8[np.ndarray, '256 3']:
  """Returns the colours of the first classes, and grey for other values."""
  import matplotlib
  values = np.arange(256)  # tab20 has pairs: all dark colours come first.
  found = matplotlib.colormaps['tab20'](
      2 * values % 20 + values // 10 % 2, bytes=True)[:, :3]
  found[count:] = 191
  return found
