"""The kind of a label is told by stated rules, and a wrong one is said."""

import numpy as np
import pytest

from vit_jax.data.sources import label_rules


def understand(columns, kind='auto', separator=None, names=None):
  if not isinstance(columns, dict):
    columns = {'label': columns}
  return label_rules.understand(
      columns, kind=kind, separator=separator, names=names, where='a.csv')


def of(found):
  return [np.asarray(found.of(i)).tolist() for i in range(len(found.labels))]


@pytest.mark.parametrize(('values', 'names', 'labels'), [
    (['cat', 'dog', ' cat '], ('cat', 'dog'), [0, 1, 0]),
    (['1', '0', '3', '1'], ('0', '1', '2', '3'), [1, 0, 3, 1]),
    ([10, 5, 10], ('5', '10'), [1, 0, 1]),
    (['1.0', '2.0', '1.0'], ('0', '1', '2'), [1, 2, 1]),
    (['007', '08', '007'], ('007', '08'), [0, 1, 0]),
    (['a;b', *['c'] * 30], ('a;b', 'c'), [0, *[1] * 30]),
    ([True, False, True], ('False', 'True'), [1, 0, 1])])
def test_one_value_a_row_is_a_class(values, names, labels):
  found = understand(values)
  assert (found.kind, found.class_names) == ('single', names)
  assert of(found) == labels and found.num_classes == len(names)


@pytest.mark.parametrize(('values', 'separator', 'labels'), [
    (['cat|dog', 'emu', '', 'dog'], None, [[0, 1], [2], [], [1]]),
    (['cat; dog', 'emu', 'dog'], None, [[0, 1], [2], [1]]),
    (['cat dog', 'emu', 'dog'], ' ', [[0, 1], [2], [1]]),
    ([['cat', 'dog'], ['emu'], [], ['cat']], None, [[0, 1], [2], [], [0]])])
def test_several_labels_in_a_cell_are_multi_label(values, separator, labels):
  found = understand(values, separator=separator)
  assert found.kind == 'multi' and found.class_names == ('cat', 'dog', 'emu')
  assert of(found) == labels


def test_columns_of_0_and_1_are_a_class_each():
  found = understand({'cat': ['1', '0', '0'], 'dog': ['1', '1', '0']})
  assert found.kind == 'multi' and found.class_names == ('cat', 'dog')
  assert of(found) == [[0, 1], [1], []]
  exclusive = understand({'cat': [1, 0], 'dog': [0, 1]})
  assert exclusive.kind == 'single' and of(exclusive) == [0, 1]


@pytest.mark.parametrize('values', [
    ['1.5', '2', '3', ''], [-1, 0, 1, None], ['1e3', 0.25, 7, float('nan')]])
def test_measured_numbers_are_regression_and_a_missing_one_is_nan(values):
  found = understand({'age': values})
  assert found.kind == 'regression' and found.targets == ('age',)
  assert found.num_classes == 1 and found.class_names is None
  assert found.labels.dtype == np.float32 and found.labels.shape == (4, 1)
  assert np.isnan(found.of(3)).tolist() == [values[3] in ('', None)
                                            or values[3] != values[3]]


def test_many_whole_numbers_of_few_rows_each_are_regression():
  prices = [str(1000 + 7 * i) for i in range(150)]
  assert understand(prices).kind == 'regression'
  assert understand(prices * 5).kind == 'single'
  assert understand(prices, kind='single').num_classes == 150


def test_columns_of_numbers_are_a_target_each():
  found = understand({'x': ['0.5', '1'], 'y': ['2', 'NaN']})
  assert found.targets == ('x', 'y') and found.num_classes == 2
  np.testing.assert_array_equal(found.labels, [[0.5, 2], [1, np.nan]])


def test_what_a_person_says_comes_before_the_rules():
  values = ['1', '0', '2', '1']
  assert understand(values, kind='regression').targets == ('label',)
  assert of(understand(values, kind='multi')) == [[1], [0], [2], [1]]
  assert understand(['a|b', 'c', 'c'], kind='single').class_names == (
      'a|b', 'c')


def test_classes_that_a_file_names_keep_their_numbers():
  found = understand([2, 0], names=('cat', 'dog', 'emu', 'yak'))
  assert of(found) == [2, 0] and found.num_classes == 4
  assert of(understand(['emu', 'cat'], names=('cat', 'dog', 'emu'))) == [2, 0]
  with pytest.raises(ValueError, match='holds 7, but its file names 2 class'):
    understand([7], names=('cat', 'dog'))


@pytest.mark.parametrize(('columns', 'kind', 'words'), [
    (['cat', '', 'dog'], 'auto', r'1 of 3 rows have no label .*row 2'),
    (['a', 'b', 'c'], 'auto', 'all its 3 values differ .*data.table.label'),
    (['a', 'a'], 'auto', "a single class, 'a'; a classifier needs two"),
    (['1', 'two'], 'regression', "'two' is no number"),
    (['', ''], 'regression', 'all of it is empty'),
    ({'x': ['1', '2'], 'y': ['a', 'b']}, 'auto', "mixed kinds: .*'y': 'text'"),
    ({'x': ['1', '2'], 'y': ['1', '0']}, 'multi', "0 and 1 alone.*'x' do not"),
    ({'x': [1, 0], 'y': [1, 1]}, 'single', 'row 1 of a.csv has a 1 in 2 of'),
    ([['a'], ['b']], 'single', 'is a list. Use --config.data.target=multi')])
def test_a_wrong_label_is_said(columns, kind, words):
  with pytest.raises(ValueError, match=words):
    understand(columns, kind=kind)
