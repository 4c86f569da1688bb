"""Columns of tables in a few buffers, without a Python object per row.

`Texts` holds one text per row, such as paths. `Column` holds each distinct cell
once, and its number per row: label rules look at distinct cells only.
"""

import array
from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import json
from typing import Any

from jaxtyping import Int64, Integer, Shaped, UInt8
import numpy as np
import pyarrow as pa

from vit_jax.data import shared


def _same(text: str) -> str:
  return text


def to_json(cell: Any) -> str:
  """Returns the JSON of a cell; what it cannot express becomes text."""
  return json.dumps(cell, default=str)


def parse_json(text: str) -> Any:
  """Returns the cell of its JSON; None if it is empty."""
  return json.loads(text) if text else None


class Builder:
  """Collects texts, one after another, and the rows that have them."""

  def __init__(self) -> None:
    self._data = bytearray()
    self._ends, self._rows = array.array('q'), array.array('q')

  def append(self, text: str, row: int | None = None) -> None:
    """Adds a text in the next row, or skips rows before `row`."""
    self._data += text.encode(errors='surrogatepass')
    self._ends.append(len(self._data))
    if row is not None:
      self._rows.append(row)

  def build(
      self, parse: Callable[[str], Any] = _same, num_rows: int | None = None,
  ) -> 'Texts':
    """Returns the texts; those of skipped rows are empty."""
    ends = np.frombuffer(self._ends, np.int64)
    if num_rows is not None:
      ends = np.append(0, ends)[np.searchsorted(
          np.frombuffer(self._rows, np.int64), np.arange(num_rows), 'right')]
    return Texts(np.frombuffer(self._data, np.uint8), ends, parse)


class Texts(Sequence[Any]):
  """Texts, or the cells that `parse` returns for them, in one buffer.

  `ends` are their positions in `data`.
  """

  def __init__(
      self, data: UInt8[np.ndarray, 'bytes'],
      ends: Integer[np.ndarray, 'texts'], parse: Callable[[str], Any] = _same):
    self._data, self._ends = data, shared.compact(ends)
    self._parse = parse

  @classmethod
  def of(cls, texts: Iterable[str],
         parse: Callable[[str], Any] = _same) -> 'Texts':
    builder = Builder()
    for text in texts:
      builder.append(text)
    return builder.build(parse)

  @classmethod
  def from_json(cls, cells: Iterable[Any]) -> 'Texts':
    """Returns cells that JSON can express; others become text."""
    return cls.of(map(to_json, cells), parse_json)

  def share(self) -> 'Texts':
    """Returns texts to keep, in memory that processes share."""
    return Texts(
        shared.share(self._data), shared.share(self._ends), self._parse)

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self[i] for i in range(len(self))[index]]
    index = range(len(self))[index]  # From the end if it is negative.
    ends = self._ends.data  # Items of arrays take several times as long.
    return self._parse(str(
        self._data.data[ends[index - 1] if index else 0:ends[index]],
        errors='surrogatepass'))

  def __iter__(self) -> Iterator[Any]:
    data, start = self._data.data, 0
    for end in self._ends.data:
      yield self._parse(str(data[start:end], errors='surrogatepass'))
      start = end

  def encode(self) -> 'Column':
    """Returns the cells as a column; equal texts are one cell."""
    offsets = np.append(0, self._ends).astype(np.int64)
    found = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(self), [
            None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        ).dictionary_encode()
    return Column(_Parsed(found.dictionary, self._parse),
                  found.indices.to_numpy())


@dataclasses.dataclass(frozen=True, eq=False)
class _Parsed(Sequence[Any]):
  """Cells of encoded texts, parsed when they are read."""
  encoded: pa.LargeBinaryArray
  parse: Callable[[str], Any]

  def __len__(self) -> int:
    return len(self.encoded)

  def __getitem__(self, index: Any) -> Any:
    return self.parse(
        self.encoded[index].as_py().decode(errors='surrogatepass'))


@dataclasses.dataclass(frozen=True, eq=False)
class Column(Sequence[Any]):
  """Cells by number.

  Attributes:
    cells: each occurs in a row; in the order of their first rows. Equal cells
      are together, unless the column is a result of `map`.
    codes: number of the cell of each row.
  """
  cells: Sequence[Any]
  codes: Integer[np.ndarray, 'rows']

  @classmethod
  def of(cls, cells: Iterable[Any]) -> 'Column':
    """Returns any cells as a column; those of equal text and type are equal."""
    if isinstance(cells, Column):
      return cells
    if isinstance(cells, Texts):
      return cells.encode()
    numbers: dict[Any, int] = {}
    found: list[Any] = []
    codes = array.array('I')
    for cell in cells:
      key = cell if type(cell) is str else (type(cell), repr(cell))
      code = numbers.setdefault(key, len(found))
      if code == len(found):
        found.append(cell)
      codes.append(code)
    return cls(found, np.frombuffer(codes, np.uint32))

  @classmethod
  def from_arrow(cls, data: pa.ChunkedArray) -> 'Column':
    """Returns a column of Arrow; lists and structures are read as JSON."""
    if not len(data):
      return cls([], np.zeros(0, np.uint8))
    try:
      found = data.dictionary_encode('encode')
    except pa.ArrowNotImplementedError:
      return Texts.from_json(arrow_cells(data)).encode()
    return cls(found.chunk(0).dictionary.to_pylist(), np.concatenate(
        [chunk.indices.to_numpy() for chunk in found.chunks]))

  @classmethod
  def repeat(cls, cells: Iterable[Any], counts: Sequence[int]) -> 'Column':
    """Returns each of the cells in `counts` consecutive rows."""
    column = cls.of(cells)
    return column.take(np.repeat(np.arange(len(column)), counts))

  def __len__(self) -> int:
    return len(self.codes)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self.cells[code] for code in self.codes[index].tolist()]
    return self.cells[int(self.codes[index])]

  def __iter__(self) -> Iterator[Any]:
    return map(self.cells.__getitem__, self.codes.data)

  def map(self, function: Callable[[Any], Any]) -> 'Column':
    """Applies a function to each cell."""
    return Column([function(cell) for cell in self.cells], self.codes)

  def array(
      self, function: Callable[[Any], Any], dtype: Any,
  ) -> Shaped[np.ndarray, 'rows']:
    """Returns the number that a function returns for the cell of each row."""
    return np.fromiter(
        map(function, self.cells), dtype, len(self.cells))[self.codes]

  def where(
      self, condition: Callable[[Any], bool]) -> Int64[np.ndarray, 'chosen']:
    """Returns the rows whose cells meet a condition."""
    return np.flatnonzero(self.array(condition, bool))

  def take(self, rows: Integer[np.ndarray, 'chosen']) -> 'Column':
    """Returns the cells of some rows."""
    if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
      return self
    used, first, codes = np.unique(
        self.codes[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)
    return Column([self.cells[code] for code in used[order].tolist()],
                  shared.compact(np.argsort(order))[codes])

  def rows_of(self) -> dict[Any, Int64[np.ndarray, '_']]:
    """Returns the rows of each of a few cells."""
    numbers = dict.fromkeys(self.cells)
    codes = self.array([*numbers].index, np.int64)
    return {cell: np.flatnonzero(codes == code)
            for code, cell in enumerate(numbers)}

  def flatten(self) -> tuple['Column', Int64[np.ndarray, 'rows']]:
    """Returns the items of cells that are lists, and the ends of the rows."""
    counts = np.fromiter(map(len, self.cells), np.int64, len(self.cells))
    items = Column.of(item for cell in self.cells for item in cell)
    of_row = counts[self.codes]
    ends = np.cumsum(of_row)
    # Row r has the items from `start[r]` of its distinct cell.
    start = (np.cumsum(counts) - counts)[self.codes]
    return items.take(np.repeat(start - ends + of_row, of_row)
                      + np.arange(of_row.sum())), ends


def arrow_cells(data: pa.ChunkedArray) -> Iterator[Any]:
  """Yields the cells of an Arrow column."""
  for chunk in data.chunks:
    yield from chunk.to_pylist()
