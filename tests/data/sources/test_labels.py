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
