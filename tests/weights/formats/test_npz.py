"""Damaged and hostile archives are errors; others are read as by NumPy."""

import struct
import zipfile

import numpy as np
from numpy.lib import format as npy_format
import pytest

from vit_jax.weights.formats import array_file
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


def test_a_flipped_bit_is_an_error(tmp_path):
  np.savez(tmp_path / 'x.npz', a=np.ones(1000, np.float32))
  data = bytearray((tmp_path / 'x.npz').read_bytes())
  data[2000] ^= 1
  (tmp_path / 'x.npz').write_bytes(bytes(data))
  with pytest.raises(ValueError, match='truncated or damaged.*CRC'):
    npz.open_file(tmp_path / 'x.npz').read('a')


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
  monkeypatch.setattr(array_file, 'FREE_BYTES', 0)
  np.savez_compressed(tmp_path / 'x.npz', a=np.zeros(2**20, np.float32))
  with pytest.raises(ValueError, match='zip bomb'):
    npz.open_file(tmp_path / 'x.npz')


def test_a_header_that_declares_too_much_is_an_error(tmp_path):
  with zipfile.ZipFile(tmp_path / 'x.npz', 'w') as file:
    with file.open('a.npy', 'w') as member:
      npy_format.write_array_header_1_0(member, {
          'descr': '<f4', 'fortran_order': False, 'shape': (2**40,)})
      member.write(bytes(64))
  with pytest.raises(ValueError, match=r'a.npy declares .* but has '):
    npz.open_file(tmp_path / 'x.npz')


def archive(path, **members):
  with zipfile.ZipFile(path, 'w') as file:
    for name, content in members.items():
      file.writestr(name, content)
  return path


def array_of(header):
  return (b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header))
          + header.encode() + bytes(12))


FIELDS = "{'descr': '<f4', 'fortran_order': False, 'shape': "


@pytest.mark.parametrize(('members', 'words'), [
    ({'readme.txt': b'hello'}, 'not an array'),
    ({'a.npy': b'hello'}, 'not an array that NumPy wrote'),
    ({'a.npy': array_of(FIELDS + '(True,)}')}, 'damaged .*a.npy declares '),
    ({'a.npy': array_of(FIELDS + '(2, -1)}')}, 'damaged .*a.npy declares '),
    *(({'a.npy': array_of(header)}, 'not an array that NumPy') for header in (
        FIELDS + '(3.0,)}', "{'descr': '<f4'}", "'", '-' * 60000 + '1',
        '(' * 4000, '__import__("os")'))])
def test_an_archive_that_numpy_did_not_write_is_an_error(
    members, words, tmp_path):
  with pytest.raises(ValueError, match=words) as error:
    npz.open_file(archive(tmp_path / 'x.npz', **members))
  assert len(str(error.value)) < 500
  assert 'allow_pickle' not in str(error.value)
