"""Writes a model as one file that runs elsewhere, and proves it.

    python main.py export --model=runs/quickstart/finetune --format=onnx \
        --output=digits.onnx photos/

What was written is loaded back and run on random images, and on the given
pictures; a logit that differs by more than 0.001 is a failure, and nothing is
left behind. A picture that cannot be read is named and counted, and the rest
goes on; the exit status is then 1.
"""

import argparse
import pathlib

import numpy as np

from vit_jax import atomic_files
from vit_jax import console as console_lib
from vit_jax.commands import arguments
from vit_jax.inference import export
from vit_jax.inference import image_files
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib

TOLERANCE = 1e-3
# Batches: the file must take any number.
SIZES = (1, 2, 5)
MAX_PICTURES = 32
# What files are called; '' is a folder.
SUFFIXES = {'jax': '.stablehlo', 'onnx': '.onnx', 'savedmodel': ''}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  parser.add_argument(
      '--format', required=True, choices=tuple(export.FORMATS),
      help='jax: StableHLO for jax.export.deserialize, on a CPU, a GPU or a '
      'TPU; onnx: for ONNX Runtime; savedmodel: a folder for TensorFlow. '
      'Behind a server: docs/serving.md')
  parser.add_argument(
      '--output', required=True, metavar='PATH',
      help='the file, .stablehlo for jax and .onnx for onnx, or for savedmodel '
      'the folder; it must not exist. Above 2 GiB of weights it is a folder of '
      'program and weights')
  parser.add_argument(
      'paths', nargs='*', metavar='PATH',
      help=f'pictures to prove it on, of which {MAX_PICTURES} are taken')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  _check_suffix(args.output, args.format)
  arguments.check_absent(args.output)
  export.check_installed(args.format)
  errors: dict[str, str] = {}
  found = image_files.find(args.paths, errors)[:MAX_PICTURES]
  loaded = arguments.load_model(args)
  model = export.in_float32(loaded)  # Once: it is copied to the device.
  if model is not loaded:
    print('written and compared in float32, though the model computes in '
          f'{loaded.config.dtype} with remat={loaded.config.remat}')
  # Before the long part.
  with image_files.ReadProgress(len(found), errors) as reading:
    proofs = _proofs(model, found, reading)
  if not found:
    print('compared on random images only: give pictures (PATH) for more')
  differences = {}
  with atomic_files.create(args.output) as path:
    export.write(model, path, form=args.format)
    read = export.read(path, form=args.format)
    for what, images in proofs.items():
      differences[what] = export.difference(model, read, images)
      if not differences[what] <= TOLERANCE:  # Nor NaN.
        raise ValueError(
            f'As {args.format}, a logit differs by {differences[what]:.2g} on '
            f'{what}, more than {TOLERANCE}. Nothing was written.')
  for what, value in differences.items():
    print(f'{what}: largest difference of a logit {value:.1e}')
  print(f'wrote {args.output} ({args.format})'
        + ': a folder, since one file holds no 2 GiB' * (
            args.format in export.PROGRAMS
            and export.is_folder(model, form=args.format)))
  if args.json:
    atomic_files.write_json(args.json, {
        'output': args.output, 'format': args.format,
        'differences': differences, 'errors': reading.errors})
  return reading.report()


def _check_suffix(path: str, form: str) -> None:
  """Raises if a file is called as one of another format would be.

  Raises:
    ValueError: naming the ending of this format.
  """
  wanted, found = SUFFIXES[form], pathlib.PurePath(path).suffix
  if wanted and found != wanted:
    raise ValueError(
        f'{path} must end with {wanted}: it is to be of the format {form}.')
  if found and found in SUFFIXES.values():
    of = next(name for name, suffix in SUFFIXES.items() if suffix == found)
    if of != form:
      raise ValueError(
          f'{path} is called as a file of the format {of}, but {form} is a '
          f'folder. Leave {found} out, or use --format={of}.')


def _proofs(
    model: model_lib.Model, found: list[str], reading: image_files.ReadProgress,
) -> dict[str, np.ndarray]:
  """Returns batches of images in the model's value range, by what they are.

  Raises:
    ValueError: if there are pictures, and none can be read.
  """
  preprocess = model.preprocess
  rng = np.random.default_rng(0)
  proofs = {}
  for size in SIZES:
    pixels = rng.uniform(
        0, 1, (size, *preprocess.resolution, preprocess.channels))
    proofs[console_lib.format_count(size, 'random image')] = (
        (pixels - preprocess.mean) / preprocess.std).astype(np.float32)
  if not found:
    return proofs
  for batch in images_lib.batches(
      found, preprocess, size=MAX_PICTURES, on_error=reading.add_error):
    proofs[console_lib.format_count(batch.count, 'image')] = (
        batch.images[:batch.count])
  if len(proofs) == len(SIZES):
    path, error = next(iter(reading.errors.items()))
    raise ValueError(
        f'None of the images could be read: {path}: {error}')
  return proofs
