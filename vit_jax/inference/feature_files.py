"""Files with the features of images, one row per image: .npz and .parquet."""

from collections.abc import Iterable
import contextlib
from typing import Any

import numpy as np

SUFFIXES = ('.npz', '.parquet')

Rows = Iterable[tuple[list[str], np.ndarray]]


def write(path: Any, rows: Rows, *, name: str) -> list[int]:
  """Writes `features` and `path` of each image; returns the features' shape.

  Args:
    path: file to write.
    rows: batches of paths and features [batch, ...].
    name: its final name, whose suffix (one of `SUFFIXES`) selects the format.
  """
  return (_write_npz if name.endswith('.npz') else _write_parquet)(path, rows)


def _write_npz(path: Any, rows: Rows) -> list[int]:
  paths, features = zip(*rows)
  array = np.concatenate(features)
  with open(path, 'wb') as file:
    np.savez(file, features=array, path=np.concatenate(paths))
  return list(array.shape)


def _write_parquet(path: Any, rows: Rows) -> list[int]:
  """Writes a row group for each batch; arrays of an image are flattened."""
  import pyarrow
  from pyarrow import parquet
  total, shape, file = 0, (), None
  with contextlib.ExitStack() as stack:
    for paths, features in rows:
      shape = features.shape[1:]
      table = pyarrow.table({
          'path': [path.encode('utf-8', 'backslashreplace').decode()
                   for path in paths],
          'features': pyarrow.FixedSizeListArray.from_arrays(
              pyarrow.array(features.ravel()), int(np.prod(shape)))})
      if file is None:
        meta = {'shape': ' '.join(map(str, shape))}
        file = stack.enter_context(parquet.ParquetWriter(
            path, table.schema.with_metadata(meta)))
      file.write_table(table.cast(file.schema))
      total += len(paths)
  return [total, *shape]
