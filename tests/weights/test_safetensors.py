"""Safetensors: read as the library reads them, and bfloat16 as well."""

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vit_jax.weights import files
from vit_jax.weights import npz
from vit_jax.weights import safetensors as ours


def test_whoever_may_read_a_new_file_may_read_what_is_written(tmp_path):
  (tmp_path / 'new').touch()
  ours.write(tmp_path / 'x', {'a': np.zeros(2, np.float32)})
  assert (tmp_path / 'x').stat().st_mode == (tmp_path / 'new').stat().st_mode


def test_what_is_written_is_what_the_library_reads(tmp_path):
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  ours.write(tmp_path / 'x', {'a.weight': array, 'b': array.T})
  found = safetensors.numpy.load_file(tmp_path / 'x')
  np.testing.assert_array_equal(found['a.weight'], array)
  np.testing.assert_array_equal(found['b'], array.T)
  opened = ours.open_file(tmp_path / 'x')
  np.testing.assert_array_equal(opened.read('b'), array.T)
  assert opened.metadata == {'format': 'pt'}


def test_text_is_kept_beside_the_arrays(tmp_path):
  ours.write(tmp_path / 'x', {'a': np.zeros(1, np.float32)},
             metadata={'vit_jax': '{"model": {}}'})
  with safetensors.safe_open(tmp_path / 'x', framework='numpy') as found:
    assert found.metadata() == {'format': 'pt', 'vit_jax': '{"model": {}}'}
  assert ours.open_file(tmp_path / 'x').metadata['vit_jax'] == '{"model": {}}'


def test_bfloat16_is_read(tmp_path):
  array = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
  safetensors.numpy.save_file({'a': array, 'b': array}, tmp_path / 'x')
  np.testing.assert_array_equal(
      ours.open_file(tmp_path / 'x').read('b'), [[1.5, -2.0]])


@pytest.mark.parametrize('keep', [12, 0.5, 0.99])
def test_a_truncated_file_is_an_error(keep, tmp_path):
  ours.write(tmp_path / 'x', {'a': np.zeros(1000, np.float32)})
  data = (tmp_path / 'x').read_bytes()
  (tmp_path / 'x').write_bytes(
      data[:keep if keep > 1 else int(keep * len(data))])
  with pytest.raises(ValueError, match='truncated or damaged'):
    ours.open_file(tmp_path / 'x')


def test_each_format_is_told_by_its_content(tmp_path):
  npz.write(tmp_path / 'a.safetensors', {'x': np.zeros(1)})
  ours.write(tmp_path / 'a.npz', {'x': np.zeros(1, np.float32)})
  (tmp_path / 'a.txt').write_text('These are no weights.')
  (tmp_path / 'empty').write_bytes(b'')
  assert files.sniff(tmp_path / 'a.safetensors') == 'npz'
  assert files.sniff(tmp_path / 'a.npz') == 'safetensors'
  assert files.sniff(tmp_path / 'a.txt') is None
  assert files.sniff(tmp_path / 'empty') is None
