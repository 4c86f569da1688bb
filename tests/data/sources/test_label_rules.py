"""The kind of label follows documented rules; invalid labels are errors."""

import numpy as np
import pytest

from vit_jax.data.sources import label_rules as label_rules_lib


def parse(columns, kind='auto', separator=None, class_names=None):
  if not isinstance(columns, dict):
    columns = {'label': columns}
  return label_rules_lib.parse_labels(
      columns, kind=kind, separator=separator, class_names=class_names,
      where='a.csv')


def values(parsed):
  return [np.asarray(parsed[i]).tolist() for i in range(len(parsed.values))]


@pytest.mark.parametrize(('column', 'names', 'labels'), [
    (['cat', 'dog', ' cat '], ('cat', 'dog'), [0, 1, 0]),
    (['1', '0', '3', '1'], ('0', '1', '2', '3'), [1, 0, 3, 1]),
    ([10, 5, 10], ('5', '10'), [1, 0, 1]),
    (['1.0', '2.0', '1.0'], ('0', '1', '2'), [1, 2, 1]),
    (['007', '08', '007'], ('007', '08'), [0, 1, 0]),
    (['a;b', *['c'] * 30], ('a;b', 'c'), [0, *[1] * 30]),
    ([True, False, True], ('False', 'True'), [1, 0, 1])])
def test_one_value_per_row_is_a_class(column, names, labels):
  parsed = parse(column)
  assert (parsed.kind, parsed.class_names) == ('single', names)
  assert values(parsed) == labels and parsed.num_classes == len(names)


@pytest.mark.parametrize(('column', 'separator', 'labels'), [
    (['cat|dog', 'emu', '', 'dog'], None, [[0, 1], [2], [], [1]]),
    (['cat; dog', 'emu', 'dog'], None, [[0, 1], [2], [1]]),
    (['cat dog', 'emu', 'dog'], ' ', [[0, 1], [2], [1]]),
    ([['cat', 'dog'], ['emu'], [], ['cat']], None, [[0, 1], [2], [], [0]])])
def test_several_labels_in_a_cell_are_multi_label(column, separator, labels):
  parsed = parse(column, separator=separator)
  assert parsed.kind == 'multi' and parsed.class_names == ('cat', 'dog', 'emu')
  assert values(parsed) == labels


def test_columns_of_flags_are_one_class_each():
  parsed = parse({'cat': ['1', '0', '0'], 'dog': ['1', '1', '0']})
  assert parsed.kind == 'multi' and parsed.class_names == ('cat', 'dog')
  assert values(parsed) == [[0, 1], [1], []]
  exclusive = parse({'cat': [1, 0], 'dog': [0, 1]})
  assert exclusive.kind == 'single' and values(exclusive) == [0, 1]


def test_columns_of_minus_one_and_one_are_flags_if_multi_label():
  columns = {'cat': ['1', '-1', '-1'], 'dog': ['1', '1', '-1']}
  parsed = parse(columns, kind='multi')
  assert values(parsed) == [[0, 1], [1], []] and parsed.kind == 'multi'
  assert parse(columns).describe() == (
      'regression of cat, dog (only -1 and 1: classes if data.target=multi)')
  assert parse(columns['cat']).describe() == (
      'regression of label (only -1 and 1: classes if data.target=single)')
  assert parse({'cat': ['1', '', '0'], 'dog': ['0', '-1', '1']}).describe() == (
      'regression of cat, dog (all cells are -1, 0, 1 or empty: to '
      'train classes, replace -1 and empty cells by 0 or 1)')
  assert parse({'cat': ['1', '', '0'], 'dog': ['0', '2', '1']}).describe() == (
      'regression of cat, dog')
  with pytest.raises(ValueError, match="or all of them -1 and 1, but 'cat'"):
    parse({'cat': ['0', '-1'], 'dog': ['1', '0']}, kind='multi')


@pytest.mark.parametrize('column', [
    ['1.5', '2', '3', ''], [-1, 0, 1, None], ['1e3', 0.25, 7, float('nan')]])
def test_measurements_are_regression_targets_and_nan_if_missing(column):
  parsed = parse({'age': column})
  assert parsed.kind == 'regression' and parsed.targets == ('age',)
  assert parsed.num_classes == 1 and parsed.class_names is None
  assert parsed.values.dtype == np.float32 and parsed.values.shape == (4, 1)
  assert np.isnan(parsed.values).ravel().tolist() == [False] * 3 + [True]


def test_many_whole_numbers_with_few_rows_each_are_regression():
  prices = [str(1000 + 7 * i) for i in range(150)]
  assert parse(prices).kind == 'regression'
  assert parse(prices * 5).kind == 'single'
  assert parse(prices, kind='single').num_classes == 150


def test_declared_classes_keep_their_indices():
  parsed = parse([2, 0], class_names=('cat', 'dog', 'emu', 'yak'))
  assert values(parsed) == [2, 0] and parsed.num_classes == 4
  names = ('cat', 'dog', 'emu')
  assert values(parse(['emu', 'cat'], class_names=names)) == [2, 0]
  numbers = ('1', '10', '2')  # Folders in the order of their text.
  assert values(parse([2, 1.0, 0], class_names=numbers)) == [2, 1, 0]
  assert values(parse(['2', '10', '1'], class_names=numbers)) == [2, 1, 0]
  with pytest.raises(ValueError, match='holds 7, but its file declares 2 clas'):
    parse([7], class_names=('cat', 'dog'))


@pytest.mark.parametrize(('columns', 'kind', 'message'), [
    (['cat', '', 'dog'], 'auto', r'1 of 3 rows have no label .*row 2'),
    (['a', 'b', 'c'], 'auto', 'all its 3 values differ .*data.table.label'),
    (['a', 'a'], 'auto', "a single class, 'a'; a classifier needs two"),
    (['1', 'two'], 'regression', "'two' is not a number"),
    (['', ''], 'regression', 'it is empty'),
    (['nan', '1.5', 'abc'], 'regression', "'abc' is not a number"),
    (['nan', 'nan'], 'regression', 'it is empty'),
    ({'x': ['1', '2'], 'y': ['a', 'b']}, 'auto', 'y of a.csv hold text'),
    ({'x': ['1', '2'], 'y': ['1', '0']}, 'multi', "0 and 1 only.*'x' do not"),
    ({'x': [1, 0], 'y': [1, 1]}, 'single', 'row 1 of a.csv has a 1 in 2 of'),
    ([['a'], ['b']], 'single', 'is a list. Use --config.data.target=multi')])
def test_invalid_labels_are_errors(columns, kind, message):
  with pytest.raises(ValueError, match=message):
    parse(columns, kind=kind)


def test_a_mistyped_number_is_an_error_and_not_a_class():
  column = [*(f'{i / 4}' for i in range(10)), '12O.5'] * 2
  with pytest.raises(ValueError, match=r"2 of 22; .*'12O.5' in row 11\."):
    parse(column)
  assert parse(column, kind='single').num_classes == 11
  # Class names that are not measurements.
  assert parse([*'0123456789' * 3, 'other']).num_classes == 11
