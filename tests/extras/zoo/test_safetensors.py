"""Safetensors are read and written as by the library, including bfloat16."""

import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.extras.zoo import safetensors as ours
from vit_jax.extras.zoo.arrays import matching


def test_a_written_file_has_default_permissions(tmp_path):
  (tmp_path / 'new').touch()
  ours.write(tmp_path / 'x', {'a': np.zeros(2, np.float32)})
  assert (tmp_path / 'x').stat().st_mode == (tmp_path / 'new').stat().st_mode


def test_the_library_reads_what_is_written(tmp_path):
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  ours.write(tmp_path / 'x', {'a.weight': array, 'b': array.T},
             metadata={'vit_jax': '{}'})
  found = safetensors.numpy.load_file(tmp_path / 'x')
  np.testing.assert_array_equal(found['a.weight'], array)
  np.testing.assert_array_equal(found['b'], array.T)
  opened = ours.open_file(tmp_path / 'x')
  np.testing.assert_array_equal(opened.read('b'), array.T)
  assert opened.metadata == {'format': 'pt', 'vit_jax': '{}'}


def test_tied_arrays_are_read_by_each_of_their_names(tmp_path):
  """As written by `safetensors.torch.save_model`."""
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  safetensors.numpy.save_file(
      {'embed.weight': array, 'bias': array[0]}, tmp_path / 'x',
      metadata={'format': 'pt', 'head.weight': 'embed.weight',
                'bias': 'embed.weight', 'other.weight': 'missing.weight'})
  opened = ours.open_file(tmp_path / 'x')
  assert opened.tied == {'head.weight': 'embed.weight'}
  np.testing.assert_array_equal(opened.read('head.weight'), array)
  np.testing.assert_array_equal(opened.read('bias'), array[0])
  every, renamed = matching.with_tied_names(opened)
  assert set(every.shapes) == {'embed.weight', 'bias', 'head.weight'}
  assert renamed.shapes == {'bias': (3,), 'head.weight': (2, 3)}
