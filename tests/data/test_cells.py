"""Columns and texts behave as the lists of their cells."""

import numpy as np
import pyarrow as pa
import pytest

from vit_jax.data import cells as cells_lib

MIXED = [1, 1.0, True, '1', None, 'cat', [1, 'a'], [1.0, 'a'], 1, 'cat', None]


@pytest.mark.parametrize('column', [
    cells_lib.Column.of(MIXED), cells_lib.Texts.from_json(MIXED),
    cells_lib.Column.of(cells_lib.Texts.from_json(MIXED))])
def test_cells_keep_their_type(column):
  assert len(column) == len(MIXED)
  for found in (list(column), [column[i] for i in range(len(MIXED))],
                column[:20]):
    assert [(type(cell), cell) for cell in found] == [
        (type(cell), cell) for cell in MIXED]


@pytest.mark.parametrize('values', [
    ['b', 'a', None, 'b'], [3, 1, None, 3], [0.5, float('nan'), 0.5],
    [True, False, None], [[1, 2], [], None, [1, 2]], [{'a': 1}, None]])
def test_a_column_of_arrow_has_its_values(values):
  chunks = pa.chunked_array([pa.array(values), pa.array(values)])
  assert repr(list(cells_lib.Column.from_arrow(chunks))) == repr(values * 2)


@pytest.mark.parametrize('rows', [
    [], [3], [2, 2, 0], [4, 3, 2, 1, 0], [0, 1, 2, 3, 4]])
def test_some_rows_of_a_column_keep_the_order_of_their_cells(rows):
  column = cells_lib.Column.of(['b', 'a', 'b', 'c', 'd'])
  taken = column.take(np.array(rows, np.int64))
  expected = [column[row] for row in rows]
  assert list(taken) == expected
  assert list(taken.cells) == list(dict.fromkeys(expected))


def test_lists_are_flattened_row_by_row():
  lists = [['a', 'b'], [], ['c'], ['a', 'b'], ['b'], []]
  items, ends = cells_lib.Column.of(lists).flatten()
  assert list(items) == [item for cell in lists for item in cell]
  assert ends.tolist() == [2, 2, 3, 5, 6, 6]


def test_repeated_cells_without_rows_are_dropped():
  column = cells_lib.Column.repeat(['a', 'b', 'a'], [2, 0, 1])
  assert list(column) == ['a', 'a', 'a'] and list(column.cells) == ['a']
  rows = cells_lib.Column.repeat(['a', 'b', 'a'], [1, 1, 1]).rows_of()
  assert {name: of.tolist() for name, of in rows.items()} == {
      'a': [0, 2], 'b': [1]}


def test_texts_are_kept_as_they_are():
  texts = ['a.png', 'e\u0301\u20ac', 'not-utf8-\udcff', '', 'a.png']
  found = cells_lib.Texts.of(texts)
  assert list(found) == found[:] == texts == list(found.encode())
  assert [found[-i] for i in range(1, 6)] == texts[::-1]
  with pytest.raises(IndexError):
    found[5]  # pylint: disable=pointless-statement


def test_skipped_rows_are_empty():
  builder = cells_lib.Builder()
  for row, text in ((1, 'a'), (2, 'b'), (5, 'c')):
    builder.append(text, row)
  assert list(builder.build(num_rows=7)) == ['', 'a', 'b', '', '', 'c', '']
