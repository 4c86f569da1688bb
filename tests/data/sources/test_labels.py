"""Labels of each declared kind; cells that cannot be labels are errors."""

import numpy as np
import pyarrow as pa
import pytest

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import labels as labels_lib


def parse(columns, target='', separator=None, **arguments):
  if not isinstance(columns, dict):
    columns = {'label': columns}
  columns = {name: pa.array(cells) for name, cells in columns.items()}
  rows = np.arange(len(next(iter(columns.values()))))
  return labels_lib.parse(
      columns, rows, columns_lib.LabelConfig(
          target, columns_lib.TableConfig(separator=separator)),
      where='a.csv', **arguments)


def values(parsed):
  return [np.asarray(parsed[i]).tolist() for i in range(len(parsed.values))]


@pytest.mark.parametrize(('column', 'names', 'labels'), [
    (['cat', 'dog', ' cat '], ('cat', 'dog'), [0, 1, 0]),
    (['1', '0', '3', '1'], ('0', '1', '3'), [1, 0, 2, 1]),
    ([10, 5, 10], ('5', '10'), [1, 0, 1]),
    ([1.0, 2.0, 1.0], ('1', '2'), [0, 1, 0]),
    (['007', '08', '007'], ('007', '08'), [0, 1, 0]),
    (['a;b', *['c'] * 30], ('a;b', 'c'), [0, *[1] * 30]),
    (['NA', 'none', 'NA'], ('NA', 'none'), [0, 1, 0]),
    ([True, False, True], ('False', 'True'), [1, 0, 1])])
def test_one_value_per_row_is_a_class(column, names, labels):
  parsed = parse(column)
  assert (parsed.kind, parsed.names) == ('single', names)
  assert values(parsed) == labels


@pytest.mark.parametrize(('cells', 'names', 'expected'), [
    ([1, 0, 1], ('dog', 'cat'), [1, 0, 1]),
    (['cat', 'dog', '0'], ('dog', 'cat'), [1, 0, 0]),
    ([2, 0, 1], ('2', '10', '1'), [2, 0, 1]),
    (['2', '10', '1'], ('2', '10', '1'), [0, 1, 2])])
def test_cells_are_indices_or_names_of_declared_classes(cells, names, expected):
  parsed = parse(cells, class_names=names)
  assert parsed.names == names and values(parsed) == expected


@pytest.mark.parametrize(('column', 'separator', 'labels'), [
    (['cat|dog', 'emu', '', 'dog'], '|', [[0, 1], [2], [], [1]]),
    (['cat; dog', 'emu', ' dog'], ';', [[0, 1], [2], [1]]),
    (['cat dog', 'emu', None], ' ', [[0, 1], [2], []]),
    ([['cat', 'dog'], ['emu'], [], ['cat'], None], None,
     [[0, 1], [2], [], [0], []])])
def test_several_labels_in_a_cell_are_multi_label(column, separator, labels):
  parsed = parse(column, 'multi', separator)
  assert parsed.kind == 'multi' and parsed.names == ('cat', 'dog', 'emu')
  assert values(parsed) == labels


def test_columns_of_0_and_1_are_one_class_each():
  parsed = parse({'cat': ['1', '0', '0'], 'dog': ['1', '1', '0']}, 'multi')
  assert parsed.kind == 'multi' and parsed.names == ('cat', 'dog')
  assert values(parsed) == [[0, 1], [1], []]
  exclusive = parse({'cat': [1, 0], 'dog': [0, 1]})
  assert exclusive.kind == 'single' and values(exclusive) == [0, 1]


@pytest.mark.parametrize('column', [
    ['1.5', '2', '3', ''], [-1, 0, 1, None], [1e3, 0.25, 7, float('nan')]])
def test_regression_targets_are_vectors_and_nan_if_missing(column):
  parsed = parse({'x': column, 'y': [1, 2, 3, 4]}, 'regression')
  assert parsed.kind == 'regression' and parsed.names == ('x', 'y')
  assert parsed.values.dtype == np.float32 and parsed.values.shape == (4, 2)
  assert np.isnan(parsed.values)[:, 0].tolist() == [False] * 3 + [True]


@pytest.mark.parametrize(('columns', 'target', 'message'), [
    (['cat', '', 'dog'], '', r"1 of 3 cells in column 'label' of a.csv .*"
     'row 2: None, but the name of a class'),
    (['0', '-1', '1', '-1'], '', "2 of 4 cells .*row 2: '-1'"),
    (['1', '2', '12O.5'], 'regression', "1 of 3 .*row 3: '12O.5', but a fini"),
    (['1', 'inf'], 'regression', "row 2: 'inf', but a finite number"),
    (['', ''], 'regression', "column 'label' of a.csv is empty"),
    ({'x': ['1', '2'], 'y': ['1', '0']}, 'multi', "'x' .*row 2: '2', but 0 or"),
    ({'x': ['1', '2'], 'y': ['a', 'b']}, '', "'x' .*row 2: '2', but 0 or 1"),
    ({'x': [1, 0], 'y': [1, 1]}, '', "row 1 has a 1 in 2 of column 'x'"),
    (['a', 'a'], '', 'has 2 rows, all of the class a. A classifier needs two'),
    ([1.5, 2.5], 'single', 'row 1: 1.5, but the name of a class'),
    ([['a'], ['b']], 'single', 'holds lists.*--config.data.target=multi'),
    (['a', 'b'], 'multi', r"holds text. .*--config.data.table.separator='\|'")])
def test_cells_that_cannot_be_labels_are_errors(columns, target, message):
  with pytest.raises(ValueError, match=message):
    parse(columns, target)


@pytest.mark.parametrize('cell', [7, 2, '7', 'bat', None])
def test_cells_beyond_the_declared_classes_are_errors(cell):
  with pytest.raises(ValueError, match='row 2: .*one of 2 classes .* cat, dog'):
    parse([0 if isinstance(cell, int) else 'cat', cell],
          class_names=('cat', 'dog'))


def test_the_row_of_a_table_is_named():
  with pytest.raises(ValueError, match='row 21'):
    labels_lib.parse(
        {'label': pa.array(['a', 'b'] * 10 + [None])}, np.arange(10, 21),
        columns_lib.DEFAULT, where='a.csv')
