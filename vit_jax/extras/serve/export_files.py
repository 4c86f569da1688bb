"""Exports a model to new files, once the result agrees with the model."""

from collections.abc import Mapping, Sequence
import os
import pathlib
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.extras.serve import export as export_lib
from vit_jax.extras.serve import quantize
from vit_jax.extras.serve import settings as settings_lib
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib

_SERVING = pathlib.Path(__file__).parent / 'serving'


def check(settings: settings_lib.Settings) -> None:
  """Raises if a file to write exists, or a library is not installed."""
  for path in (_json_path(settings), *_server_paths(settings)):
    atomic_files.check_absent(epath.Path(path))
  export_lib.check_installed(settings.format)


def export(
    loaded: model_lib.Model, settings: settings_lib.Settings,
    labels: Mapping[str, Sequence[image_files.Labels]],
    errors: dict[str, str], *, calibration: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
  """Exports a model, and prints what was compared and written.

  Args:
    loaded: the model.
    settings: what is written.
    labels: labels of the images to compare, by path; see `image_files.find`.
    errors: errors by path of images that were not found.
    calibration: images that set the ranges of int8.

  Returns:
    The exit status, 1 for unreadable images or a loss that is not accepted; and
    the results.

  Raises:
    UserError: if the export differs from the model, or settings do not fit it.
  """
  if settings.server:
    loaded.check_head()
    check_server(loaded.preprocess, has_decoder=loaded.has_decoder)
  model = export_lib.in_float32(loaded)
  if loaded.config.dtype != 'float32':
    print(f'exported and compared in float32, not {loaded.config.dtype}')
  if loaded.thresholds:
    print('note: the thresholds of the classes are not written: without them, '
          'the most probable class is predicted')
  found = list(labels)[:settings_lib.MAX_IMAGES]
  with image_files.ReadProgress(len(found), errors) as reading:
    batches = export_lib.batches(model, found, reading)
  if not found:
    print('compared on random images only; add PATHs of images for more')
  form, compared = settings.format, dict[str, Any]()
  with atomic_files.create(settings.output) as path:
    export_lib.write(model, path, form=form)
    differences = export_lib.compare(model, path, batches, form=form)
    if settings.quantize:
      compared = quantize.replace(
          model, path, settings, labels, reading, calibration=calibration)
  _write_others(model, settings)
  failed = reading.report() or (
      compared.get('loss', '') != '' and not settings.accept_loss)
  return int(failed), {
      'output': settings.output, 'format': form, 'differences': differences,
      **compared, 'errors': reading.errors}


def _json_path(settings: settings_lib.Settings) -> str:
  return f'{settings.output}.json'


def _write_others(
    model: model_lib.Model, settings: settings_lib.Settings) -> None:
  """Writes preprocessing and server, and prints what was written."""
  atomic_files.write_json(_json_path(settings), {
      **preprocessing.to_plain(model.preprocess), 'jax': jax.__version__})
  print(f'wrote {settings.output} ({settings.format})'
        + ': a folder, since a file is limited to 2 GiB' * (
            export_lib.is_folder(model)))
  if settings.format == 'jax':
    print(f'jax {jax.__version__} and releases of the 6 months after it can '
          'read the file; export again for later ones (docs/serving.md)')
  print(f'wrote {_json_path(settings)} (preprocessing and class names)')
  for script in _server_paths(settings):
    atomic_files.write_text(
        script, (_SERVING / os.path.basename(script)).read_text())
    print(f'wrote {script}')


def check_server(
    preprocess: preprocessing.Preprocess, *, has_decoder: bool = False,
) -> None:
  """Raises a UserError for a model that the server cannot serve."""
  if preprocess.activation == 'none' or preprocess.channels != 3 or (
      preprocess.pixel_dtype != 'uint8'):
    what = ('predicts numbers' if preprocess.activation == 'none' else
            f'takes {preprocess.channels} channels of {preprocess.pixel_dtype}')
    raise UserError(
        'The server returns the classes of 8-bit RGB images, but the model '
        f'{what}. Export without --server.')
  for op in preprocess.sections:
    if op['op'] not in ('resize', 'central_crop') or not (
        op.get('antialias', True) and op.get('method') != 'area'):
      raise UserError(
          'The server resizes with filters of Pillow and crops the centre, but '
          f'the model needs {op}. Export without --server.')
  if has_decoder:
    raise UserError(
        'The server returns the classes of images, but the model predicts '
        'those of pixels. Export without --server.')


def _server_paths(settings: settings_lib.Settings) -> list[str]:
  """Returns the files of the example server to write."""
  folder = os.path.dirname(settings.output)
  return [os.path.join(folder, name) for name in settings_lib.SERVER
          if settings.server]
