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
import dataclasses
from typing import Any

from etils import epy

from vit_jax.commands import arguments
from vit_jax.extras.serve import settings as settings_lib

with epy.lazy_imports():
  from vit_jax.extras.serve import export_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  parser.set_defaults(data_dir='')  # Allows --config.data.
  parser.add_argument(
      '--format', required=True, choices=tuple(settings_lib.SUFFIXES),
      help='jax: StableHLO for jax.export.deserialize, on a CPU, a GPU or a '
      'TPU; onnx: for ONNX Runtime')
  parser.add_argument(
      '--output', required=True, metavar='PATH',
      help='new path to write: a .stablehlo file for jax, an .onnx file for '
      'onnx. With more than 2 GiB of weights, a folder with the program and '
      'the weights')
  parser.add_argument(
      '--server', action='store_true',
      help=f'also write {", ".join(settings_lib.SERVER)} next to it, which '
      'serve the formats jax and onnx; see docs/serving.md')
  parser.add_argument(
      '--quantize', choices=('int8',),
      help='int8 instead of float32, for --format=onnx; needs --calibrate')
  parser.add_argument(
      '--calibrate', nargs='+', default=(), metavar='PATH',
      help='images like those to predict; up to '
      f'{settings_lib.MAX_CALIBRATION}, such as training images, set the '
      'ranges of int8')
  parser.add_argument(
      '--float-nodes', nargs='+', default=(), metavar='NODE',
      help='matrix products that stay float32; a warning names candidates')
  parser.add_argument(
      '--accept-loss', action='store_true',
      help='exit with status 0 even if int8 predicts another class for more '
      f'than {100 - 100 * settings_lib.MIN_AGREEMENT:g} %% of the images, or '
      f'loses more than {100 * settings_lib.MAX_LOSS:g} point of accuracy')
  parser.add_argument(
      'paths', nargs='*', metavar='PATH',
      help='images to verify the export on: files, folders, globs, or tables, '
      'whose columns --config.data.table sets; the first '
      f'{settings_lib.MAX_IMAGES} are used, or all to compare int8 with '
      'float32')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  arguments.check_output(args.output, (settings_lib.SUFFIXES[args.format],))
  settings = settings_lib.Settings(**{
      field.name: getattr(args, field.name)
      for field in dataclasses.fields(settings_lib.Settings)})
  export_files.check(settings)
  model = arguments.load_model(args)
  labels, errors = arguments.find_images(args, model.run)
  calibration, missing = arguments.find_images(
      args, model.run, paths=args.calibrate)
  return export_files.export(
      model, settings, labels, errors | missing, calibration=list(calibration))
