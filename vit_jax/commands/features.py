"""Writes what a model makes of pictures: a row of features for each.

    python main.py features --model=runs/quickstart/finetune \
        --output=features.npz photos/

Rows are in the order of the files, with their names. A file that cannot be
read is named and counted, and the rest goes on; the exit status is then 1.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax.commands import arguments
from vit_jax.inference import model as model_lib


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_pictures(parser)
  parser.add_argument(
      '--layer', choices=model_lib.FEATURES, default='representation',
      help='representation: what the head sees; pooled: before the tanh layer, '
      'where there is one; cls: the class token; mean: that of the patches; '
      'tokens: all, a matrix for each picture (default: %(default)s)')
  parser.add_argument(
      '--output', required=True, metavar='FILE',
      help='what to write, .npz or .parquet: `features` and `path`; it must '
      'not exist')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  arguments.check_suffix(args.output, ('.npz', '.parquet'))
  errors: dict[str, str] = {}
  found = arguments.find(args.paths, errors)
  model = arguments.load(args)
  name = model.output_of(args.layer)
  with arguments.Reading(len(found), errors) as reading:

    def rows() -> Iterator[tuple[list[str], np.ndarray]]:
      for paths, outputs in model.outputs(
          found, batch_size=args.batch_size, names=(name,),
          failed=reading.failed):
        yield list(map(str, paths)), model.layer_of(outputs, args.layer)
        reading.advance(len(paths))
      if len(reading.errors) == len(found) + len(errors):
        reading.report()  # Which, and why.
        path, error = next(iter(reading.errors.items()))
        raise ValueError(
            'None of the pictures could be read: nothing to write. '
            f'{path}: {error}')

    write = _write_npz if args.output.endswith('.npz') else _write_parquet
    with atomic_files.create(args.output) as path:
      shape = write(path, rows())
  print(f'wrote {args.output}: {args.layer} '
        f'{" x ".join(f"{n:,}" for n in shape)} of '
        + arguments.counted(shape[0], 'picture'))
  if args.json:
    atomic_files.write_json(args.json, {
        'output': args.output, 'layer': args.layer, 'shape': shape,
        'errors': reading.errors})
  return reading.report()


def _write_npz(
    path: Any, rows: Iterator[tuple[list[str], np.ndarray]],
) -> list[int]:
  paths: list[str] = []
  features: list[np.ndarray] = []
  for names, values in rows:
    paths += names
    features.append(values)
  array = np.concatenate(features)
  with open(path, 'wb') as file:
    np.savez(file, features=array, path=np.asarray(paths))
  return list(array.shape)


def _write_parquet(
    path: Any, rows: Iterator[tuple[list[str], np.ndarray]],
) -> list[int]:
  """Writes a row group for each batch; a matrix is a list, row by row."""
  import pyarrow
  from pyarrow import parquet
  total, shape, file = 0, (), None
  try:
    for paths, features in rows:
      shape = features.shape[1:]
      table = pyarrow.table({
          'path': list(map(arguments.printable, paths)),
          'features': pyarrow.FixedSizeListArray.from_arrays(
              pyarrow.array(features.ravel()), int(np.prod(shape)))})
      if file is None:
        meta = {'shape': ' '.join(map(str, shape))}
        file = parquet.ParquetWriter(
            path, table.schema.with_metadata(meta))
      file.write_table(table.cast(file.schema))
      total += len(paths)
  finally:
    if file is not None:
      file.close()
  return [total, *shape]
