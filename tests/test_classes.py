"""The classes of a head and of data are matched by name."""

import dataclasses
import functools
import re

import pytest

from vit_jax import classes


def match(
    ours, theirs, counts=None, function=classes.match, **options):
  counts = counts or (len(ours), len(theirs))
  return function(
      classes.Classes('./photos', counts[0], tuple(ours)),
      classes.Classes('runs/x', counts[1], tuple(theirs)),
      remedy='Use other data.', **options)


indices = functools.partial(match, function=classes.indices)


def test_equal_lists_fit_even_if_a_name_occurs_twice():
  assert match('abc', 'abc') == match('aba', 'aba') == ''


def test_weights_or_data_without_names_are_matched_by_index_with_a_line():
  assert match('abc', '', (3, 3)) == (
      'note: runs/x has no class names, so the 3 classes are matched by index: '
      'a is class 0 of both')
  assert 'note: ./photos has no class names' in match('', 'abc', (3, 3))
  assert 'class 0 is class 0 of both' in match('', '', (3, 3))
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


def test_the_source_is_named_in_the_lists_and_lines_only():
  data, model = (classes.Classes(f'the {owner}', 2, names, f'/{owner}s/x')
                 for owner, names in (('data', 'ab'), ('model', 'ac')))
  with pytest.raises(ValueError, match=re.escape(
      'The data has other classes than the model: only in the data: b; only '
      'in the model: c.\n  the data (/datas/x): a, b\n  the model (/models/x')):
    classes.match(data, model, remedy='')
  assert 'note: the model (/models/x) has no' in classes.match(
      data, dataclasses.replace(model, names=()), remedy='')


@pytest.mark.parametrize(('theirs', 'advised'), [('abd', True), ('ab', False)])
def test_new_names_are_advised_only_for_as_many_classes(theirs, advised):
  for function in match, indices:
    with pytest.raises(ValueError) as error:
      function('abc', theirs, rename='convert --labels=FILE')
    assert ('names of the data: convert --labels=FILE' in str(
        error.value)) == advised


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
  with pytest.raises(ValueError, match='Abc has 1 class that ca lacks: b'):
    classes.indices(whole, subset, remedy='')
  with pytest.raises(ValueError, match='have the same name: a'):
    classes.indices(
        subset, classes.Classes('x', 3, ('a', 'c', 'a')), remedy='')


def test_long_lists_are_shortened():
  assert classes.shorten('abcdefgh') == 'a, b, c, d, e, f, ... (8 names)'
