"""Archives are written and read as by NumPy."""

import numpy as np

from vit_jax.weights.formats import npz


def test_numpy_reads_what_is_written(tmp_path):
  arrays = {'a/kernel': np.arange(6, dtype=np.float32).reshape(2, 3),
            'b': np.float32(3), 'empty': np.zeros((4, 0), np.float32)}
  npz.write(tmp_path / 'x.npz', arrays)
  with np.load(tmp_path / 'x.npz', allow_pickle=False) as found:
    assert set(found) == set(arrays)
    for name, array in arrays.items():
      np.testing.assert_array_equal(found[name], array)
  opened = npz.open_file(tmp_path / 'x.npz')
  assert opened.shapes['a/kernel'] == (2, 3)
  np.testing.assert_array_equal(opened.read('a/kernel'), arrays['a/kernel'])
