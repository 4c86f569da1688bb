"""Tiles of a mosaic are at their coordinates."""

import numpy as np
import pytest

from vit_jax.extras.figures import model_figures


@pytest.mark.parametrize(('height', 'width'), [(4, 4), (2, 7)])
def test_tile_centres_have_integer_coordinates(height, width):
  tiles = np.zeros((3, 2, height, width))
  tiles[2, 1] = 1
  whole, (left, right, bottom, top) = model_figures.mosaic(tiles)
  rows, columns = np.nonzero(whole == 1)
  x = left + (columns.mean() + 0.5) * (right - left) / whole.shape[1]
  y = top + (rows.mean() + 0.5) * (bottom - top) / whole.shape[0]
  assert (x, y) == pytest.approx((2, 3))
