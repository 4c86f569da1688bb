"""Images of any aspect ratio are resized to whole patches."""

import numpy as np
from PIL import Image
import pytest

from vit_jax.data.augment import ops
from vit_jax.data.images import resize as resize_lib


@pytest.mark.parametrize(('height', 'width'), [
    (100, 100), (100, 101), (100, 200), (300, 100), (1, 5000), (2000, 3000)])
def test_the_grid_is_the_largest_with_at_most_so_many_patches(height, width):
  found = resize_lib.ResizeToPatches(4, 64).target(height, width)
  # The grids ceil(height s), ceil(width s) of all scales s, in steps.
  scales = np.geomspace(1e-4, 100, 400_000)
  grids = np.ceil(np.outer(scales, (height, width)) - 1e-9).astype(int)
  best = grids[np.flatnonzero(grids.prod(1) <= 64)[-1]]
  assert (found[0] // 4, found[1] // 4) == tuple(best)


def test_the_picture_has_this_size_and_its_content_is_not_cropped():
  pixels = np.zeros((30, 60, 3), np.uint8)
  pixels[:, 30:] = 200
  picture = resize_lib.ResizeToPatches(4, 32)(
      Image.fromarray(pixels), np.random.default_rng(0))
  assert picture.size == (32, 16)
  found = np.asarray(picture)
  assert found[:, :14].max() == 0 and found[:, 18:].min() == 200


def test_the_default_number_of_patches_is_that_of_the_resolution():
  op, = ops.build([{'op': 'resize_to_patches', 'patch': 4}], size=(32, 16),
                  where='x')
  assert op == resize_lib.ResizeToPatches(4, 32)
