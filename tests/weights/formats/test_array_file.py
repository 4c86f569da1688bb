"""Values must be finite floats."""

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


@pytest.mark.parametrize('dtype', ['int64', 'bool', 'complex64', 'V3', 'M8[s]'])
def test_other_types_are_errors(dtype):
  with pytest.raises(ValueError, match='x: a has dtype .* must be float32'):
    opened(np.zeros(2, dtype)).read('a')


@pytest.mark.parametrize('value', [np.nan, -np.inf, 1e39])
def test_values_that_are_not_finite_are_counted(value):
  with pytest.raises(ValueError, match='a holds 2 of 3 values that are NaN'):
    opened(np.array([value, 0.0, value])).read('a')
