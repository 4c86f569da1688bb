"""Smooth test images and their files."""

import io

import numpy as np
from PIL import Image


def picture(seed, *, side=48):
  """Returns a Pillow image of smooth random colours."""
  rng = np.random.default_rng(seed)
  small = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
  return Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)


def save(path, image, **options):
  """Saves an image in a folder that may be new."""
  path.parent.mkdir(parents=True, exist_ok=True)
  image.save(path, **options)


def encode(image, file_format='PNG', **options):
  """Returns the bytes of an image file."""
  buffer = io.BytesIO()
  image.save(buffer, file_format, **options)
  return buffer.getvalue()
