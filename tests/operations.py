"""Image operations from sections, and images to apply them to."""

import numpy as np
from PIL import Image

from vit_jax.data.images import ops as ops_lib


def rng(seed=0):
  return np.random.default_rng(seed)


def noise(height=40, width=60, seed=0):
  """Returns an image of random pixels."""
  return Image.fromarray(rng(seed).integers(
      0, 256, (height, width, 3), dtype=np.uint8))


def build(*sections, size=(24, 32)):
  return ops_lib.build(sections, size=size, where='data.train_ops')


def changed(op, count=200, image=None):
  """Returns the pixels of an image, and those of its changed results."""
  image = image or noise()
  before = np.asarray(image)
  after = [np.asarray(op(image, rng(i))) for i in range(count)]
  assert {a.shape for a in after} == {before.shape}
  return before, [a for a in after if (a != before).any()]
