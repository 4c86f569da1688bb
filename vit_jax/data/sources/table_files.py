"""Reads CSV, TSV, JSON-lines and Parquet files as Arrow tables.

The csv module keeps cells as text ('007' is a class name) and is strict about
quotes and row lengths, which `datasets` and `pyarrow.csv` are not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import csv
import io
import itertools
import os
from typing import Any

from etils import epath
import pyarrow as pa
import pyarrow.parquet as pq

from vit_jax import exceptions
from vit_jax import untrusted
from vit_jax.exceptions import UserError

_CHUNK = 2**16  # Rows that are Python objects at a time.


def read(path: epath.Path, *, limit: int | None = None) -> pa.Table:
  """Returns a table, or its first `limit` rows.

  Raises:
    UserError: if the file is empty or malformed, with the line.
  """
  where, suffix = os.fspath(path), path.suffix.lower()
  if suffix == '.parquet':
    with exceptions.naming(f'{where} is truncated, or not a Parquet file'):
      return pq.read_table(path).slice(0, limit)
  lines = io.TextIOWrapper(
      io.BytesIO(untrusted.read_text(path).encode()), 'utf-8', newline='')
  rows = _read_json(lines, where) if suffix in ('.jsonl', '.ndjson') else (
      _read_csv(lines, where, '\t' if suffix == '.tsv' else ''))
  rows, chunks = itertools.islice(rows, limit), []
  while chunk := [*itertools.islice(rows, _CHUNK)]:
    chunks.append(to_table(chunk, where=where))
  if not chunks:
    raise UserError(f'{where} holds no rows.')
  with exceptions.naming(f'A column of {where} holds values of several types'):
    return pa.concat_tables(chunks, promote_options='permissive')


def holds_images(path: epath.Path) -> bool:
  """Whether a Parquet file has columns of bytes."""
  with exceptions.naming(f'{path} is truncated, or not a Parquet file'):
    found = pq.read_schema(path)
  return bool(image_columns(found))


def image_columns(schema: pa.Schema) -> list[str]:
  """Returns the names of columns of bytes, or of structs with `bytes`."""
  def holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) and 'bytes' in kind.names:
      kind = kind.field('bytes').type
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

  return [field.name for field in schema if holds_bytes(field.type)]


def to_table(rows: Sequence[Mapping[str, Any]], *, where: str) -> pa.Table:
  """Returns rows of cells by column as a table.

  Raises:
    UserError: if a column holds values of several types.
  """
  columns = {}
  for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
    with exceptions.naming(
        f'Column {name!r} of {where} holds values of several types'):
      columns[name] = pa.array([row.get(name) for row in rows])
  return pa.table(columns)


def _read_json(
    lines: Iterable[str], where: str) -> Iterator[Mapping[str, Any]]:
  """Yields the objects of JSON lines."""
  for number, line in enumerate(lines, 1):
    if line.strip():
      with exceptions.within(f'Line {number} of {where} is not JSON'):
        row = untrusted.parse_json(line)
      if not isinstance(row, dict):
        raise UserError(
            f'Line {number} of {where} must be an object such as {{"file_name":'
            f' "1.jpg", "label": "cat"}}, but is {line.strip()[:60]!r}.')
      yield row


def _read_csv(
    lines: io.TextIOWrapper, where: str, delimiter: str,
) -> Iterator[Mapping[str, Any]]:
  """Yields the rows of a CSV file by the names of its header.

  The default delimiter is the first of ',', ';' and tab that the header has.
  """
  first = lines.readline()
  lines.seek(0)
  delimiter = delimiter or next((mark for mark in ',;\t' if mark in first), ',')
  reader = csv.reader(lines, delimiter=delimiter, strict=True)
  header: list[str] = []
  while True:
    # An unclosed quote would swallow all later rows.
    with exceptions.naming(
        f'The row of {where} that begins at line {reader.line_num + 1} is not '
        'valid CSV (a quote within quotes must be doubled)'):
      row = next(reader, None)
    if row is None:
      return
    if not row:
      continue
    if not header:
      header = [name.strip() for name in row]
      if len({*header}) < len(header):
        raise UserError(f'{where} has two columns of one name: {header}.')
      continue
    if len(row) != len(header):
      raise UserError(
          f'Line {reader.line_num} of {where} has {len(row)} cells, but the '
          f'header has {len(header)}: {delimiter.join(row)[:80]!r}. Put '
          f'double quotes around a cell that contains {delimiter!r}.')
    if wrong := [cell for cell in row if '\n' in cell]:
      raise UserError(
          f'A cell of {where} has a line break, up to line '
          f'{reader.line_num}: {wrong[0][:60]!r}. Is a quote not closed?')
    yield dict(zip(header, row))
