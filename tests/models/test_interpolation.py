"""Patch embedding, and interpolation of position embeddings."""

import re

import numpy as np
import pytest

from tests import leaves
from vit_jax import registry
from vit_jax.models import ablations
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib

resize = ablations.AblationConfig().resize_positions

METHODS = ['linear', 'bilinear', *['cubic', 'bicubic'] * leaves.has(
    registry.INTERPOLATE)]
RNG = np.random.default_rng(0)
GRIDS = [((3, 3), (6, 6)), ((6, 6), (3, 3)), ((2, 5), (7, 3)),
         ((7, 3), (2, 5)), ((4, 9), (6, 6)), ((1, 4), (3, 4))]


def positions(grid, *, prefix=1, width=5):
  return RNG.normal(size=(prefix + grid[0] * grid[1], width)).astype(np.float32)


def as_grid(values, grid, *, prefix=1):
  return values[prefix:].reshape(*grid, -1)


def aligned(values, old, new):
  """Linear interpolation along both axes, with aligned corners."""
  grid = values.reshape(*old, -1)
  for axis in (0, 1):
    at = np.linspace(0, old[axis] - 1, new[axis])
    grid = np.apply_along_axis(
        lambda line: np.interp(at, np.arange(len(line)), line), axis, grid)  # noqa: B023
  return grid


def test_grid_of_a_config_is_that_of_its_patches():
  config = factory.parse({'variant': 'Ti/16', 'patch': [4, 8]})
  assert config.grid((12, 40)) == (3, 5)


@pytest.mark.parametrize('image, patch, sizes', [
    ((225, 224), (16, 16), '224x224 and 240x224.'),
    ((30, 50), (8, 12), '24x48 and 32x60.'),
    ((10, 10), (16, 16), '16x16.'),  # A smaller size would be 0x0.
    ((0, 16), (16, 16), '16x16.'),
])
def test_image_that_does_not_divide_is_an_error_with_nearest_sizes(
    image, patch, sizes):
  with pytest.raises(ValueError, match=re.escape(
      f'An image of {image[0]}x{image[1]} does not divide into patches of '
      f'{patch[0]}x{patch[1]}. Nearest sizes that do: {sizes}') + '$'):
    positions_lib.grid_shape(image, patch)


@pytest.mark.parametrize('old, new', GRIDS)
def test_linear_resize_aligns_corners(old, new):
  values = positions(old)
  got = positions_lib.resize_positions(values, old_grid=old, new_grid=new)
  assert got.dtype == np.float32
  np.testing.assert_array_equal(got[:1], values[:1])  # The class token.
  np.testing.assert_allclose(
      as_grid(got, new), aligned(values[1:], old, new), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('method', METHODS)
def test_stacked_positions_are_resized_per_layer(method):
  layers = [positions((3, 4)) for _ in range(3)]
  sizes = {'old_grid': (3, 4), 'new_grid': (5, 2), 'method': method}
  got = positions_lib.resize_positions(np.stack(layers), **sizes)
  want = [positions_lib.resize_positions(layer, **sizes) for layer in layers]
  np.testing.assert_allclose(got, np.stack(want), rtol=1e-5, atol=1e-6)


# Parameters by name, with their shapes on grids of 3x4 and of 5x2.
TABLES = {
    'positions': ((13, 6), (11, 6)),
    'encoder/layers/positions': ((2, 12, 6), (2, 10, 6)),
    'positions_rows': ((3, 6), (5, 6)),
    'encoder/layers/positions_columns': ((2, 4, 6), (2, 2, 6)),
    'encoder/layers/row/positions_rows': ((2, 3, 6), (2, 5, 6)),
}
SIZES = {'old_grid': (3, 4), 'new_grid': (5, 2)}


@pytest.mark.parametrize('name', [*TABLES, 'positions_cls', 'cls',
                                  'encoder/layers/mlp/out/bias'])
def test_same_grid_and_other_parameters_are_unchanged(name):
  values = RNG.normal(size=TABLES.get(name, [(3, 4)])[0])
  assert resize(
      name, values, old_grid=(3, 4), new_grid=(3, 4)) is values
  if name not in TABLES:
    assert resize(name, values, **SIZES) is values


def concatenated(rows, columns):
  """Returns row and column embeddings of each patch."""
  return np.concatenate([np.repeat(rows, len(columns), axis=0),
                         np.tile(columns, (len(rows), 1))], axis=1)


def test_separate_axes_are_resized_like_the_grid():
  rows, columns = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (3, 4))
  want = resize('positions', concatenated(rows, columns), **SIZES)
  got = concatenated(resize('positions_rows', rows, **SIZES),
                     resize('positions_columns', columns, **SIZES))
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(('name', 'shape', 'words'), [
    ('positions', (8, 6), '8 position embeddings do not cover a grid of 3x4'),
    ('positions_rows', (2, 6), '2 position embeddings do not cover a grid'),
    ('a/distances', (25, 2, 3), 'relative positions .* of 3x4, .* to 5x2')])
def test_parameter_of_another_grid_is_an_error(name, shape, words):
  with pytest.raises(ValueError, match=words):
    resize(name, np.zeros(shape, np.float32), **SIZES)
