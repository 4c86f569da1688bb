"""Files, weights, names and settings that cannot be read, fitted or saved."""

import re
import struct
from unittest import mock
import zipfile

import numpy as np
import pytest

from tests import random_models
from tests.weights import test_adapt
from tests.weights.formats import test_array_file
from tests.weights.formats import test_layout
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import layout
from vit_jax.weights.formats import npz

# Each row of a table: the arguments of a call, and a part of its error.
ARRAYS = [
    *((np.zeros(2, dtype), 'x: a has dtype .* must be float32')
      for dtype in ('int64', 'bool', 'complex64', 'V3', 'M8[s]')),
    *((np.array([value, 0.0, value]), 'a holds 2 of 3 values that are NaN')
      for value in (np.nan, -np.inf, 1e39))]
SHAPES = [
    ('block.1.q', (4, 6), r'\(4, 6\) \(block.1.q\)'),
    ('stages.0.0.w', (2, 3, 4), r'expected \[o i\].*found \(2, 3, 4\)')]
OVERRIDES = [
    ({'num_head': 2}, "override 'num_head'. Did you mean 'num_heads'"),
    ({'mena': 0.5}, "Did you mean 'mean'"),
    ({'mean': (0.5, 0.5)}, 'mean must be one number, or one for each of 3'),
    ({'std': 0}, 'std must be above 0'),
    ({'labels': 'abcde'}, "labels must be a list, but is 'abcde'"),
    ({'resolution': 0}, r'resolution must be at least 1, but is \(0, 0\)'),
    ({'num_heads': 'two'}, "num_heads must be int, but is 'two'"),
    ({'backbone': {'deph': (1,)}}, "Did you mean 'depths'"),
    ({'prefix': 3}, 'prefix must be str')]


def adapt(_, changed, target=(), **options):
  source = {name: array for name, array in {
      **test_adapt.params(), **changed}.items() if array is not None}
  test_adapt.adapt(source, test_adapt.initial(**dict(target)), **options)


def adapt_without_cls(root, **new):
  """Keeps the grid, or not: no resizing makes the tokens before it fit."""
  adapt(root, {}, {'cls': False, 'grid': new.get('new_grid', (3, 3))},
        ignored=['cls', 'head/.*'], **new)


DIFFERENCES = [(changed, re.escape(
    f'The checkpoint does not fit the model:\n  {line}\nCorrect the section '
    'model, or list')) for changed, line in (
        ({'cls': None}, 'cls: expected (1, 6), found nothing'),
        ({'extra': np.zeros((2, 3))}, 'extra: expected nothing, found (2, 3)'),
        ({'cls': np.zeros((1, 7))}, 'cls: expected (1, 6), found (1, 7)'),
        ({'positions': np.zeros((10, 7))},
         'positions: expected (10, 6), found (10, 7)'))]


def open_archive(root, members):
  with zipfile.ZipFile(root / 'x.npz', 'w') as file:
    for name, content in members.items():
      file.writestr(name, content)
  npz.open_file(root / 'x.npz')


def array_of(header):
  return (b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header))
          + header.encode() + bytes(12))


FIELDS = "{'descr': '<f4', 'fortran_order': False, 'shape': "
ARCHIVES = [
    ({'readme.txt': b'hello'}, 'not an array'),
    ({'a.npy': b'hello'}, 'not an array that NumPy wrote'),
    *(({'a.npy': array_of(FIELDS + shape)}, 'damaged .*a.npy declares ')
      for shape in ('(True,)}', '(2, -1)}', f'({2**40},)}}')),
    *(({'a.npy': array_of(header)}, 'not an array that NumPy') for header in (
        FIELDS + '(3.0,)}', "{'descr': '<f4'}", "'", '-' * 60000 + '1',
        '(' * 4000, '__import__("os")'))]


def flip_a_bit(root):
  np.savez(root / 'x.npz', a=np.ones(1000, np.float32))
  data = bytearray((root / 'x.npz').read_bytes())
  data[2000] ^= 1
  (root / 'x.npz').write_bytes(bytes(data))
  npz.open_file(root / 'x.npz').read('a')


def open_a_zip_bomb(root):
  np.savez_compressed(root / 'x.npz', a=np.zeros(2**20, np.float32))
  with mock.patch.object(array_file, 'FREE_BYTES', 0):
    npz.open_file(root / 'x.npz')


def save(root, form, settings, **params):
  model = random_models.make({**random_models.TINY, **settings}, side=32)
  try:
    model.with_params({**model.params, **params}).save(root / 'x', form=form)
  finally:
    assert not list(root.iterdir())


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda _, array: test_array_file.opened(array).read('a'), ARRAYS),
        (lambda _, name, shape: test_layout.read({
            **test_layout.arrays(), name: test_layout.values(shape)}), SHAPES),
        (lambda _, name: layout.to_theirs(
            test_layout.TABLE, name, test_layout.values((2,))),
         [(name, f'no parameter {name}') for name in ('registers', 'gone')]),
        (lambda _, given: overrides_lib.parse(given), OVERRIDES),
        (adapt, DIFFERENCES),
        (adapt_without_cls, [[r'positions: expected \(9, 6\), found \(10, 6']]),
        (lambda root: adapt_without_cls(root, new_grid=(4, 4)),
         [[r'positions: expected \(16, 6\), found \(10, 6\)']]),
        (lambda root: adapt(root, {}, new=['head/.*', 'positons']),
         [[r"init\.new: the rule 'positons'"]]),
        (lambda _: adapt_lib.InitConfig(checkpoint='a', stage='b'),
         [['from a checkpoint or from a stage, not from both: got '
           "checkpoint='a' and stage='b'"]]),
        (open_archive, ARCHIVES),
        (flip_a_bit, [['truncated or damaged.*CRC']]),
        (open_a_zip_bomb, [['zip bomb']]),
        (lambda root: save(root, 'npz', {}, cls=np.full((1, 12), np.nan)),
         [['The model: cls holds 12 of 12 values that are NaN']]),
        (lambda root: save(root, 'orbax', {}, cls=np.full((1, 12), 1e300)),
         [['The model: cls holds 12 of 12 values']]),
        (lambda root, settings: save(root, 'npz', settings), [
            ({'pool_norm': True}, 'has no parameter pool_norm/bias .*as orbax'),
            ({'name': 'ablation', 'axial': True, 'pooling': 'average'},
             "the model is of 'ablation'. Save it as orbax")]),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(tmp_path, call, arguments, message):
  with pytest.raises(ValueError, match=message) as error:
    call(tmp_path, *arguments)
  # Neither a hostile header, nor what NumPy advises.
  assert len(str(error.value)) < 1_000
  assert 'allow_pickle' not in str(error.value)
