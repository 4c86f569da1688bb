"""The classes of a head and of data are matched by name."""

import re

import pytest

from vit_jax import classes


def match(ours, theirs, counts=None, *, ordered=False, **options):
  counts = counts or (len(ours), len(theirs))
  return classes.match(
      classes.Classes('the data', counts[0], tuple(ours), './photos', ordered),
      classes.Classes('the model', counts[1], tuple(theirs)), **options)


@pytest.mark.parametrize(('ours', 'theirs', 'options', 'numbers'), [
    ('abc', 'abc', {}, ()), ('aba', 'aba', {}, ()),
    ('abc', 'abc', {'ordered': True}, ()), ('abc', 'cab', {}, (1, 2, 0)),
    ('ca', 'abc', {'subset': True}, (2, 0)),
    ('ab', 'abc', {'subset': True}, (0, 1))])
def test_names_are_matched_in_any_order(ours, theirs, options, numbers):
  assert match(ours, theirs, **options) == (numbers, '')


@pytest.mark.parametrize(('ours', 'theirs', 'line'), [
    ('abc', '', 'the model has no class names, so the 3 classes are matched by '
     'index: a is class 0 of both'),
    ('', 'abc', 'the data (./photos) has no class names'),
    ('', '', 'class 0 is class 0 of both')])
def test_without_names_on_a_side_an_index_is_matched_with_a_line(
    ours, theirs, line):
  numbers, found = match(ours, theirs, (3, 3))
  assert numbers == () and line in found


@pytest.mark.parametrize(('ours', 'theirs', 'options', 'words'), [
    ('abd', 'abc', {}, 'model.\n  the data (./photos): a, b, d; only here: d\n'
     '  the model: a, b, c; only here: c\nNames must be the same'),
    ('ab', 'abc', {}, 'the model: a, b, c; only here: c'),
    ('ad', 'abc', {'subset': True}, 'only here: d'),
    ('abb', 'abc', {}, 'a, b, b; several times: b'),
    ('abc', 'aac', {'subset': True}, 'a, a, c; several times: a'),
    ('ba', 'ab', {'ordered': True}, 'than the model, or in another order.'),
    ('ab', '', {'counts': (2, 3)}, 'a, b\n  the model: 3 without names\n'),
    ('bcdefghij', 'a', {}, 'b, c, d, e, f, g, ... (9 names); only here: b')])
def test_anything_else_is_an_error_with_both_lists(
    ours, theirs, options, words):
  with pytest.raises(ValueError, match=re.escape(words)) as error:
    match(ours, theirs, **options)
  assert 'The data has other classes than the model' in str(error.value)
