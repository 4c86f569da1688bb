"""Exports a model for other runtimes and verifies the result.

    python main.py export --model=runs/quickstart/finetune --format=onnx \
        --output=digits.onnx my_images/

Preprocessing and class names are written to a file next to it, here
digits.onnx.json; --server adds a server for HTTP. With int8 weights and inputs
of matrix products, whose ranges are those of up to 256 images:

    python main.py export --model=runs/quickstart/finetune --format=onnx \
        --output=digits.onnx --quantize=int8 --calibrate=train/ test.csv

compares size, speed and, for the images of a table with labels or in folders
called like the classes, accuracy before and after. If the classes of more than
5 % of the images change, or more than one point of accuracy is lost, the file
is written with a warning and the exit status is 1, unless --accept-loss is set.

The exported file is loaded and run on random images and the given ones. If a
logit differs by more than 0.001, nothing is written. An unreadable image is
reported and skipped; the exit status is then 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath
  import jax
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax.data import preprocessing
  from vit_jax.data.sources import columns as columns_lib
  from vit_jax.extras import pictures
  from vit_jax.extras.serve import export
  from vit_jax.extras.serve import quantize
  from vit_jax.inference import image_files
  from vit_jax.inference import images as images_lib
  from vit_jax.inference import model as model_lib

_SERVING = pathlib.Path(__file__).parents[1] / 'serving'
TOLERANCE = 1e-3
BATCH_SIZES = (1, 2, 5)
MAX_IMAGES, MAX_CALIBRATION = 32, 256
# Lost accuracy, and share of images of the same class, that are accepted.
MAX_LOSS, MIN_AGREEMENT = 0.01, 0.95
SERVER = ('image_file.py', 'preprocess.py', 'server.py', 'worker.py')
SUFFIXES = {'jax': '.stablehlo', 'onnx': '.onnx'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  parser.add_argument(
      '--format', required=True, choices=tuple(SUFFIXES),
      help='jax: StableHLO for jax.export.deserialize, on a CPU, a GPU or a '
      'TPU; onnx: for ONNX Runtime')
  parser.add_argument(
      '--output', required=True, metavar='PATH',
      help='new path to write: a .stablehlo file for jax, an .onnx file for '
      'onnx. With more than 2 GiB of weights, a folder with the program and '
      'the weights')
  parser.add_argument(
      '--server', action='store_true',
      help=f'also write {", ".join(SERVER)} next to it, which serve '
      'the formats jax and onnx; see docs/serving.md')
  parser.add_argument(
      '--quantize', choices=('int8',),
      help='int8 instead of float32, for --format=onnx; needs --calibrate')
  parser.add_argument(
      '--calibrate', nargs='+', default=(), metavar='PATH',
      help=f'images like those to predict; up to {MAX_CALIBRATION}, such as '
      'training images, set the ranges of int8')
  parser.add_argument(
      '--float-nodes', nargs='+', default=(), metavar='NODE',
      help='matrix products that stay float32; a warning names candidates')
  parser.add_argument(
      '--accept-loss', action='store_true',
      help='exit with status 0 even if int8 predicts another class for more '
      f'than {100 - 100 * MIN_AGREEMENT:g} %% of the images, or loses more '
      f'than {100 * MAX_LOSS:g} point of accuracy')
  parser.add_argument(
      'paths', nargs='*', metavar='PATH',
      help=f'images to verify the export on; the first {MAX_IMAGES} are used, '
      'or all to compare int8 with float32')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  arguments.check_output(args.output, (SUFFIXES[args.format],))
  settings = f'{args.output}.json'
  server = [os.path.join(os.path.dirname(args.output), name)
            for name in SERVER if args.server]
  for written in (settings, *server):
    atomic_files.check_absent(epath.Path(written))
  _check_quantize(args)
  export.check_installed(args.format)
  labels, errors = image_files.find(args.paths)
  found = list(labels)[:MAX_IMAGES]
  loaded = arguments.load_model(args)
  if args.server:
    _check_server(loaded.preprocess)
    if loaded.has_decoder:
      raise ValueError(
          'The server returns the classes of images, but the model predicts '
          'those of pixels. Export without --server.')
  model = export.in_float32(loaded)
  if loaded.config.dtype != 'float32':
    print(f'exported and compared in float32, not {loaded.config.dtype}')
  if loaded.thresholds:
    print('note: the thresholds of the classes are not written: without them, '
          'the most probable class is predicted')
  with image_files.ReadProgress(len(found), errors) as reading:
    batches = _verification_batches(model, found, reading)
  if not found:
    print('compared on random images only; add PATHs of images for more')
  differences = {}
  with atomic_files.create(args.output) as path:
    export.write(model, path, form=args.format)
    read = export.read(path, form=args.format)
    for what, images in batches.items():
      differences[what] = export.difference(model, read, images)
      print(f'{what}: largest difference of a logit {differences[what]:.1e}')
      if not differences[what] <= TOLERANCE:  # True for NaN, too.
        raise ValueError(
            f'The {args.format} export differs by {differences[what]:.2g} in a '
            f'logit on {what}, more than {TOLERANCE}. Nothing was written.')
    compared = (_quantize(
        args, model, path, labels, reading) if args.quantize else {})
  atomic_files.write_json(settings, {
      **preprocessing.to_plain(model.preprocess), 'jax': jax.__version__})
  print(f'wrote {args.output} ({args.format})'
        + ': a folder, since a file is limited to 2 GiB' * (
            export.is_folder(model)))
  if args.format == 'jax':
    print(f'jax {jax.__version__} and releases of the 6 months after it can '
          'read the file; export again for later ones (docs/serving.md)')
  print(f'wrote {settings} (preprocessing and class names)')
  for script in server:
    atomic_files.write_text(script, (
        _SERVING / os.path.basename(script)).read_text())
    print(f'wrote {script}')
  failed = reading.report() or (
      compared.get('loss', '') != '' and not args.accept_loss)
  return int(failed), {
      'output': args.output, 'format': args.format,
      'differences': differences, **compared, 'errors': reading.errors}


def _check_quantize(args: argparse.Namespace) -> None:
  if not args.quantize:
    if args.calibrate or args.float_nodes or args.accept_loss:
      raise ValueError('--calibrate, --float-nodes and --accept-loss need '
                       '--quantize=int8.')
    return
  if args.format != 'onnx':
    raise ValueError(
        f'--quantize={args.quantize} needs --format=onnx, but it is '
        f'{args.format}.')
  if not args.calibrate:
    raise ValueError(
        f'--quantize={args.quantize} needs images to measure the ranges of '
        'activations: --calibrate=FOLDER, such as of training images.')


def _quantize(
    args: argparse.Namespace, model: model_lib.Model, path: pathlib.Path,
    labels: dict[str, list[image_files.Labels]],
    reading: image_files.ReadProgress,
) -> dict[str, Any]:
  """Replaces the file at `path` by its int8 version; reports the difference."""
  if export.is_folder(model) or not model.config.num_classes:
    raise ValueError(
        '--quantize needs a model with a head and less than 2 GiB of weights.')
  found, missing = image_files.find(args.calibrate)
  reading.errors |= missing
  _, images = _read(
      model, pictures.interleave(found)[:MAX_CALIBRATION], reading)
  print(f'int8: ranges of {console_lib.format_count(len(images), "image")}')
  source = path.with_name(f'{path.name}.float32')
  try:
    path.rename(source)
    quantize.write(source, path, images, float_nodes=args.float_nodes)
    sources, tested = _read(model, list(labels) or list(found), reading)
    classes = np.array([
        _class_of(name, labels.get(name, []), model.preprocess.labels)
        for name in sources])
    known = int((classes >= 0).sum())
    numbers = model.preprocess.activation == 'none'
    both, agreement = quantize.compare(
        (source, path), tested, classes, numbers=numbers)
    console_lib.table(
        f'{"" if labels else "calibration "}images: {len(tested):,}; '
        + ('variance kept: ' if numbers else 'the same class for ')
        + console_lib.format_percent(agreement, digits=1),
        ('', 'MiB', 'images/s',
         'accuracy of ' + console_lib.format_count(known, 'image')), [
            (name, f'{one.mebibytes:.1f}',
             console_lib.format_number(one.images_per_sec),
             '–' if math.isnan(one.accuracy) else
             console_lib.format_percent(one.accuracy, digits=2))
            for name, one in zip(('float32', 'int8'), both)])
    loss = _loss(both[0].accuracy - both[1].accuracy, agreement,
                 numbers=numbers)
    if loss:
      nodes = ' '.join(quantize.noisiest_nodes(source, path, images))
      status = ('accepted (--accept-loss)' if args.accept_loss else
                'the exit status is 1; --accept-loss accepts it')
      print(f'warning: int8 {loss}. The file is written, and {status}. '
            'Calibrate with more images, or leave out the noisiest matrix '
            f'products: --float-nodes {nodes}')
  finally:
    source.unlink(missing_ok=True)
  return {'float32': dataclasses.asdict(both[0]),
          'int8': dataclasses.asdict(both[1]), 'agreement': agreement,
          'examples': known, 'loss': loss}


def _loss(lost: float, agreement: float, *, numbers: bool) -> str:
  """Returns what int8 loses if that is too much, else ''.

  Args:
    lost: lost accuracy; NaN without labels.
    agreement: as returned by `quantize.compare`; NaN counts as too little.
    numbers: whether the model predicts numbers.
  """
  least = console_lib.format_percent(MIN_AGREEMENT)
  found = console_lib.format_percent(agreement, digits=1)
  return ', and '.join(filter(None, [
      '' if agreement >= MIN_AGREEMENT else
      f'keeps {found} of the variance of the predictions, less than {least}'
      if numbers else f'predicts the class of float32 for {found} of the '
      f'images, less than {least}',
      f'loses {100 * lost:.1f} points of accuracy, more than '
      f'{100 * MAX_LOSS:g}' if lost > MAX_LOSS else '']))


def _read(
    model: model_lib.Model, paths: list[str], reading: image_files.ReadProgress,
) -> tuple[list[str], np.ndarray]:
  """Returns paths of readable images and their preprocessed pixels.

  Raises:
    ValueError: if none can be read.
  """
  sources: list[str] = []
  pixels = []
  for names, images in images_lib.batches(
      paths, model.preprocess, size=MAX_IMAGES, on_error=reading.add_error):
    sources += map(str, names)
    pixels.append(images[:len(names)])
  if not pixels:
    raise reading.none_readable()
  return sources, np.concatenate(pixels)


def _class_of(
    path: str, rows: Sequence[image_files.Labels], names: tuple[str, ...],
) -> int:
  """Returns the class of an image; -1 if none, several or another.

  It is that of its rows in tables or, without labels, of its folder. Numbers
  are class names as in training: '0.0' is '0'.
  """
  found = set()
  cells = [columns_lib.clean(cell) for row in rows for cell in row.values()]
  for cell in cells or [pathlib.Path(path).parent.name]:
    if cell is None:  # Without a label.
      continue
    number = columns_lib.to_integer(cell)
    found |= {str(cell), str(cell if number is None else number)} & {*names}
  return names.index(found.pop()) if len(found) == 1 else -1


def _check_server(preprocess: preprocessing.Preprocess) -> None:
  """Raises a ValueError for a model that preprocess.py cannot serve."""
  if preprocess.activation == 'none' or preprocess.channels != 3 or (
      preprocess.pixel_dtype != 'uint8'):
    what = ('predicts numbers' if preprocess.activation == 'none' else
            f'takes {preprocess.channels} channels of {preprocess.pixel_dtype}')
    raise ValueError(
        'The server returns the classes of 8-bit RGB images, but the model '
        f'{what}. Export without --server.')
  for op in preprocess.sections:
    if op['op'] not in ('resize', 'central_crop') or not (
        op.get('antialias', True) and op.get('method') != 'area'):
      raise ValueError(
          'The server resizes with filters of Pillow and crops the centre, but '
          f'the model needs {op}. Export without --server.')


def _verification_batches(
    model: model_lib.Model, found: list[str], reading: image_files.ReadProgress,
) -> dict[str, np.ndarray]:
  """Returns preprocessed batches of images by description.

  Raises:
    ValueError: if no given image can be read.
  """
  preprocess = model.preprocess
  rng = np.random.default_rng(0)
  batches = {}
  for size in BATCH_SIZES:
    pixels = rng.uniform(
        0, 1, (size, *preprocess.resolution, preprocess.channels))
    batches[console_lib.format_count(size, 'random image')] = (
        preprocess.value_scale.normalize(pixels.astype(np.float32)))
  if found:
    sources, images = _read(model, found, reading)
    batches[console_lib.format_count(len(sources), 'image')] = images
  return batches
