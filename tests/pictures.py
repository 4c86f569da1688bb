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


def save_all(root, names, *, side=8):
  """Saves a different picture under each name, and returns the folder."""
  for seed, name in enumerate(names):
    save(root / name, picture(seed, side=side))
  return root


def write_table(root, header, cells, *, side=8, name='labels.csv'):
  """Saves pictures and a table of their paths and cells; returns its path."""
  save_all(root, [f'{i}.png' for i in range(len(cells))], side=side)
  (root / name).write_text('\n'.join([f'path,{header}', *(
      f'{i}.png,{cell}' for i, cell in enumerate(cells))]))
  return root / name
