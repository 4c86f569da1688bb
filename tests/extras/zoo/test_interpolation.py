"""Interpolation of positions in other codebases, and of patch filters."""

import jax
import numpy as np
import pytest

from tests.models.test_interpolation import as_grid
from tests.models.test_interpolation import positions
from tests.weights import test_adapt
from vit_jax.extras.zoo import backbone_config
from vit_jax.extras.zoo import interpolation
from vit_jax.models import positions as positions_lib

RNG = np.random.default_rng(0)
resize = backbone_config.BackboneConfig().resize_positions


def test_cubic_has_half_pixel_centres():
  # Between centres a quarter and three quarters of a pixel: by symmetry the
  # middle of an odd grid stays where it is, and corners do not.
  values = positions((3, 3), prefix=0)
  got = positions_lib.resize_positions(
      values, old_grid=(3, 3), new_grid=(9, 9), method='cubic')
  old, new = as_grid(values, (3, 3), prefix=0), as_grid(got, (9, 9), prefix=0)
  np.testing.assert_allclose(new[4, 4], old[1, 1], rtol=1e-5, atol=1e-6)
  assert np.abs(new[0, 0] - old[0, 0]).max() > 0.01


@pytest.mark.parametrize(('grid', 'want'), [
    ((5, 2), [[-0.07525, 3.57525], [1.449751, 1.97825], [3.28125, 0.21875],
              [3.138375, 0.973626], [2.6305, 1.9655]]),
    ((2, 7), [[0.370074, 0.795511, 1.53736, 2.763672, 3.255836, 2.191561,
               1.29712],
              [1.018217, 2.403786, 4.057365, 3.167968, 1.544425, 1.391882,
               1.457572]])])
def test_bicubic_is_that_of_pytorch(grid, want):
  # F.interpolate(..., mode='bicubic', align_corners=False) of torch 2.13.0.
  values = (np.arange(12, dtype=np.float32) ** 2 % 7)[:, None]
  got = positions_lib.resize_positions(
      values, old_grid=(3, 4), new_grid=grid, method='bicubic')
  np.testing.assert_allclose(got.reshape(grid), want, atol=2e-6)


@pytest.mark.parametrize('grid', [(2, 6), (6, 2), (4, 4), (3, 7)])
@pytest.mark.parametrize('method', ['cubic', 'bilinear_sharp', 'linear'])
def test_a_square_of_positions_is_cropped_to_the_grid(method, grid):
  positions = np.random.default_rng(0).normal(size=(17, 5)).astype(np.float32)
  side = max(grid)
  square = resize('positions', positions, old_grid=(4, 4),
                        new_grid=(side, side), method=method)
  found = resize('positions', positions, old_grid=(4, 4), new_grid=grid,
                       method=f'{method}_square')
  np.testing.assert_array_equal(found[0], positions[0])
  np.testing.assert_array_equal(
      found[1:].reshape(*grid, 5),
      square[1:].reshape(side, side, 5)[:grid[0], :grid[1]])
  # Row and column embeddings have the scale of the longer side, too.
  for axis, name in enumerate(('positions_rows', 'positions_columns')):
    lines = positions[:4]
    np.testing.assert_allclose(
        resize(name, lines, old_grid=(4, 4), new_grid=grid,
                     method=f'{method}_square'),
        resize(name, lines, old_grid=(4, 4), new_grid=(side, side),
                     method=method)[:grid[axis]], atol=1e-6)


@pytest.mark.parametrize('new', [(6, 7), (3, 2), (4, 8)])
def test_resized_filters_solve_the_least_squares_problem_of_flexivit(new):
  old = 4, 5
  filters = np.random.default_rng(0).normal(size=(*old, 3, 6))
  # The matrix of bilinear resizing, from the images of unit vectors.
  units = np.eye(20, dtype=np.float32).reshape(20, *old)
  matrix = np.asarray(jax.image.resize(
      units, (20, *new), 'bilinear', antialias=False)).reshape(20, -1).T
  expected = np.einsum(
      'no,ocd->ncd', np.linalg.pinv(matrix.T), filters.reshape(20, 3, 6))
  resized = interpolation.resize_filters(filters, new)
  np.testing.assert_allclose(
      resized, expected.reshape(*new, 3, 6), rtol=1e-4, atol=1e-5)


def test_filters_fit_a_model_with_another_patch():
  filters = RNG.normal(size=(4, 4, 3, test_adapt.WIDTH)).astype(np.float32)
  adapted, rows = test_adapt.adapt(*(
      {**test_adapt.params(), 'patches': {'kernel': kernel}}
      for kernel in (filters, np.zeros((6, 6, 3, test_adapt.WIDTH)))))
  np.testing.assert_array_equal(
      adapted['patches']['kernel'],
      interpolation.resize_filters(filters, (6, 6)))
  assert rows['patches/kernel'].status == 'resized'
