"""The content determines the format, and values must be finite floats."""

import numpy as np
import pytest

from vit_jax.weights.formats import array_file


def opened(array):
  return array_file.ArrayFile(
      path='x', format='npz', shapes={'a': array.shape},
      load=lambda name: array)


@pytest.mark.parametrize(('content', 'expected'), [
    (b'', None), (b'\x00' * 9, None), (b'<html>not found</html>', None),
    (b'PK\x03\x04', 'npz'), (b'PK\x05\x06', 'npz'),
    (b'\x80\x02\x8a\x0a', 'pytorch'),
    (b'PK\x03\x04' + bytes(22) + b'\x0a\x00\x00\x00x/data.pkl', 'pytorch'),
    ((20).to_bytes(8, 'little') + b'{"a": 1}', 'safetensors')])
def test_the_content_determines_the_format(content, expected, tmp_path):
  (tmp_path / 'x.npz').write_bytes(content)
  if expected is None:
    with pytest.raises(ValueError, match='x.npz is not a file of weights'):
      array_file.format_of(tmp_path / 'x.npz')
  else:
    assert array_file.format_of(tmp_path / 'x.npz') == expected


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
