"""The classes of a head and of data are matched by name."""

import re

import pytest

from vit_jax import classes


def match(ours, theirs, counts=(3, 3), **options):
  return classes.match(
      classes.Classes('./photos', counts[0], tuple(ours)),
      classes.Classes('runs/x', counts[1], tuple(theirs)),
      remedy='Use other data.', **options)


def test_equal_lists_fit_even_if_a_name_occurs_twice():
  assert match('abc', 'abc') == match('aba', 'aba') == ''


def test_weights_or_data_without_names_are_matched_by_index_with_a_line():
  assert match('abc', '') == (
      'note: runs/x has no class names, so the 3 classes are matched by index: '
      'a is class 0 of both')
  assert 'note: ./photos has no class names' in match('', 'abc')
  assert 'class 0 is class 0 of both' in match('', '')
  with pytest.raises(ValueError, match='photos has 2 classes, but runs/x has '):
    match('', 'abc', counts=(2, 3))


@pytest.mark.parametrize(('ours', 'theirs', 'message'), [
    ('abd', 'abc', 'only in ./photos: d; only in runs/x: c'),
    ('ab', 'abc', './photos has other classes than runs/x: only in runs/x: c'),
    ('abcd', 'abc', './photos has other classes than runs/x: only in ./photos'),
    ('acb', 'abc', "classes differently: class 1 is 'c' instead of 'b'"),
    ('abb', 'abc', 'classes have the same name: b'),
    ('abc', 'aac', 'classes have the same name: a')])
def test_every_difference_is_an_error_with_both_lists(ours, theirs, message):
  with pytest.raises(ValueError, match=re.escape(message)) as error:
    match(ours, theirs)
  assert (f'\n  ./photos: {", ".join(ours)}\n  runs/x: {", ".join(theirs)}\n'
          'Use other data.') in str(error.value)


def test_shared_classes_can_be_measured():
  for ours, words in (('ab', 'Use shift. Use other'),
                      ('zab', 'Use shift, on data without z. Use other'),
                      ('xyz', '\nUse other'), ('bac', '\nUse other')):
    with pytest.raises(ValueError, match=words):
      match(ours, 'abc', restrict='Use shift')


def test_a_subset_is_matched_by_name():
  subset, whole = (classes.Classes(text, len(text), tuple(text))
                   for text in ('ca', 'abc'))
  assert classes.indices(subset, whole, remedy='') == {'a': 0, 'b': 1, 'c': 2}
  with pytest.raises(ValueError, match='1 of abc are not classes of ca: b'):
    classes.indices(whole, subset, remedy='')
  with pytest.raises(ValueError, match='have the same name: a'):
    classes.indices(
        subset, classes.Classes('x', 3, ('a', 'c', 'a')), remedy='')


def test_long_lists_are_shortened():
  assert classes.shorten('abcdefgh') == 'a, b, c, d, e, f, ... (8 names)'
