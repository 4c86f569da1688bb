"""Damaged and hostile archives are errors; others are read as by NumPy."""

import struct
import zipfile

import numpy as np
from numpy.lib import format as npy_format
import pytest

from vit_jax.weights import npz


def test_numpy_reads_what_is_written(tmp_path):
  arrays = {'a/kernel': np.arange(6, dtype=np.float32).reshape(2, 3),
            'b': np.float32(3), 'empty': np.zeros((4, 0), np.float32)}
  npz.write(tmp_path / 'x.npz', arrays)
  with np.load(tmp_path / 'x.npz', allow_pickle=False) as found:
    assert set(found) == set(arrays)
    for name, array in arrays.items():
      np.testing.assert_array_equal(found[name], array)
  opened = npz.open_file(tmp_path / 'x.npz')
  assert opened.headers['a/kernel'].shape == (2, 3)
  np.testing.assert_array_equal(opened.read('a/kernel'), arrays['a/kernel'])


def test_a_flipped_bit_is_an_error(tmp_path):
  np.savez(tmp_path / 'x.npz', a=np.ones(1000, np.float32))
  data = bytearray((tmp_path / 'x.npz').read_bytes())
  data[2000] ^= 1
  (tmp_path / 'x.npz').write_bytes(bytes(data))
  with pytest.raises(ValueError, match='truncated or damaged.*CRC'):
    npz.open_file(tmp_path / 'x.npz').read('a')


def test_flipped_bits_of_compressed_arrays_are_errors(tmp_path):
  array = np.random.default_rng(0).normal(size=1000)
  np.savez_compressed(tmp_path / 'x.npz', a=array)
  np.testing.assert_array_equal(
      npz.open_file(tmp_path / 'x.npz').load('a'), array)
  whole = (tmp_path / 'x.npz').read_bytes()
  packed = zipfile.ZipFile(tmp_path / 'x.npz').infolist()[0].compress_size
  errors = 0
  for place in range(40, 30 + packed, packed // 20):
    data = bytearray(whole)
    data[place] ^= 0x55
    (tmp_path / 'x.npz').write_bytes(bytes(data))
    try:
      # Some bits have no effect, such as the size of a dictionary.
      np.testing.assert_array_equal(
          npz.open_file(tmp_path / 'x.npz').load('a'), array)
    except ValueError as error:
      assert 'truncated or damaged' in str(error)
      errors += 1
  assert errors > 10


def test_a_zip_bomb_is_not_unpacked(tmp_path):
  with zipfile.ZipFile(tmp_path / 'x.npz', 'w', zipfile.ZIP_DEFLATED) as file:
    with file.open('a.npy', 'w') as member:
      npy_format.write_array_header_1_0(member, {
          'descr': '<f4', 'fortran_order': False, 'shape': (100 * 2**20,)})
      for _ in range(400):
        member.write(bytes(2**20))
  with pytest.raises(ValueError, match='zip bomb'):
    npz.open_file(tmp_path / 'x.npz')


def test_a_header_that_declares_too_much_is_an_error(tmp_path):
  with zipfile.ZipFile(tmp_path / 'x.npz', 'w') as file:
    with file.open('a.npy', 'w') as member:
      npy_format.write_array_header_1_0(member, {
          'descr': '<f4', 'fortran_order': False, 'shape': (2**40,)})
      member.write(bytes(64))
  with pytest.raises(ValueError, match=r'a declares .* but has '):
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
    ({}, 'holds no array'),
    ({'readme.txt': b'hello'}, 'not an array'),
    ({'a.npy': b'hello'}, 'not an array that NumPy wrote'),
    ({'a.npy': array_of(FIELDS + '(True,)}')}, 'a declares .*damaged'),
    ({'a.npy': array_of(FIELDS + '(2, -1)}')}, 'a declares .*damaged'),
    *(({'a.npy': array_of(header)}, 'not an array that NumPy') for header in (
        FIELDS + '(3.0,)}', "{'descr': '<f4'}", "'", '-' * 60000 + '1',
        '(' * 4000, '__import__("os")'))])
def test_an_archive_that_numpy_did_not_write_is_an_error(
    members, words, tmp_path):
  with pytest.raises(ValueError, match=words) as error:
    npz.open_file(archive(tmp_path / 'x.npz', **members))
  assert len(str(error.value)) < 500
  assert 'allow_pickle' not in str(error.value)
