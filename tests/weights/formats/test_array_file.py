"""Values are read as float32."""

import numpy as np
import pytest

from vit_jax.weights.formats import array_file


def opened(array):
  return array_file.ArrayFile(
      path='x', format='npz', shapes={'a': array.shape},
      load=lambda name: array)


@pytest.mark.parametrize('dtype', ['float16', 'float32', 'float64'])
def test_floats_become_float32(dtype):
  found = opened(np.array([0.5, -2], dtype)).read('a')
  assert found.dtype == np.float32
  np.testing.assert_array_equal(found, [0.5, -2])
