"""Tables of names and layouts, read in both directions."""

import numpy as np
import pytest

from vit_jax.weights.formats import layout
from vit_jax.weights.formats.layout import Row

TABLE = layout.Table('test', rows=(
    Row('encoder/layers/qkv', 'block.{layer}.{q|k|v}',
        'n l (h e) d -> l d n h e'),
    Row('encoder/layers/scale', 'block.{layer}.scale'),
    Row('encoder/layers/scale', 'stacked.scale', read_only=True),
    Row('stage{stage}/unit1/w', 'stages.{stage-1}.0.w', 'o i -> i o'),
    Row('stage{stage}/units/w', 'stages.{stage-1}.{unit+1:02}.w',
        'l o i -> l i o'),
    Row('gone', 'gone', read_only=True)),
    renames={r'^old\.': 'block.'},
    unsupported={'dist.*': 'a distillation token'})


def values(shape, start=0):
  return start + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def arrays():
  result = {f'block.{i}.{part}': values((4, 5), 100 * i + 10 * j)
            for i in range(3) for j, part in enumerate('qkv')}
  result |= {f'block.{i}.scale': values((5,), i) for i in range(3)}
  result |= {f'stages.{s}.{u}.w': values((2, 3), s + ord(u[-1]))
             for s in range(2) for u in ('0', '01', '02')}
  return result


def read(names_to_arrays):
  matches, problems = layout.matches(TABLE, list(names_to_arrays))
  assert not problems
  return {m.ours: layout.to_ours([names_to_arrays[n] for n in m.theirs], m, h=2)
          for m in matches}


def test_arrays_are_stacked_and_rearranged():
  ours = read(arrays())
  assert {name: a.shape for name, a in ours.items()} == {
      'encoder/layers/qkv': (3, 5, 3, 2, 2), 'encoder/layers/scale': (3, 5),
      'stage1/unit1/w': (3, 2), 'stage1/units/w': (2, 3, 2),
      'stage2/unit1/w': (3, 2), 'stage2/units/w': (2, 3, 2)}
  # Layer 2, input 4, of v, head 1, its first.
  assert ours['encoder/layers/qkv'][2, 4, 2, 1, 0] == (
      arrays()['block.2.v'][2, 4])
  np.testing.assert_array_equal(
      ours['stage2/units/w'][1], arrays()['stages.1.02.w'].T)


def test_a_round_trip_changes_no_bit_and_no_name():
  there = arrays()
  back = {}
  for name, array in read(there).items():
    back |= layout.to_theirs(TABLE, name, array)
  assert set(back) == set(there)
  for name in there:
    np.testing.assert_array_equal(back[name], there[name])


@pytest.mark.parametrize(('missing', 'added', 'problem'), [
    *((name, '', f'{name}: missing') for name in (
        'block.1.scale', 'block.2.scale', 'block.0.k', 'stages.1.01.w')),
    ('', 'block.999999999.scale', 'encoder/layers/scale: numbered up to '
     '999,999,999, but there are 4 of them'),
    ('', 'dist.bias', 'dist.bias: unexpected (a distillation token)'),
    ('', 'else', 'else: unexpected'),
    ('', 'stages.0.1.w', 'stages.0.1.w: unexpected'),
    *(('', other, 'encoder/layers/scale: found under two names')
      for other in ('old.1.scale', 'stacked.scale'))])
def test_missing_and_unexpected_names_are_problems(missing, added, problem):
  names = {*arrays(), added} - {missing, ''}
  problems = layout.matches(TABLE, sorted(names))[1]
  assert problem in '\n'.join(problems)
