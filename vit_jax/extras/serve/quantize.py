"""Quantises an ONNX file to int8 by ONNX Runtime, and compares the two files.

Weights and inputs of matrix products are int8 and uint8; everything else stays
float32. Ranges of inputs are those of a few calibration images.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

from jaxtyping import Float, Int
import numpy as np

from vit_jax import console
from vit_jax.data.sources import columns
from vit_jax.exceptions import UserError
from vit_jax.extras import pictures
from vit_jax.extras.serve import export
from vit_jax.extras.serve import settings as settings_lib
from vit_jax.inference import image_files
from vit_jax.inference import model as model_lib

QUANTISED = ('MatMul', 'Gemm', 'Conv')
# The first batch size is that of calibration.
_BATCH_SIZE, _TIMES = 32, 5
NOISIEST = 3

Images = Float[np.ndarray, 'batch height width channels']


def write(
    source: str | os.PathLike, target: str | os.PathLike, images: Images, *,
    float_nodes: Sequence[str] = (),
) -> None:
  """Writes an int8 version of an ONNX file.

  Args:
    source: the float32 file.
    target: the file to write.
    images: preprocessed calibration images.
    float_nodes: names of nodes that stay float32.

  Raises:
    ImportError: if ONNX Runtime is not installed.
    UserError: if the file has no such node.
  """
  quantization = export.library('onnxruntime.quantization', 'onnx')
  onnx = export.library('onnx', 'onnx')
  nodes = {node.name for node in onnx.load(
      os.fspath(source), load_external_data=False).graph.node
           if node.op_type in QUANTISED}
  if unknown := set(float_nodes) - nodes:
    raise UserError(
        f'{min(unknown)!r} is not a matrix product of the model. Its matrix '
        f'products: {", ".join(sorted(nodes))}.')
  with tempfile.TemporaryDirectory() as folder:
    prepared = os.path.join(folder, 'prepared.onnx')
    quantization.shape_inference.quant_pre_process(
        os.fspath(source), prepared, skip_symbolic_shape=True)
    quantization.quantize_static(
        prepared, os.fspath(target), _reader(images),
        op_types_to_quantize=list(QUANTISED), per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=list(float_nodes))


def _reader(images: Images) -> Any:
  """Returns ONNX Runtime's iterator over calibration batches."""
  quantization = export.library('onnxruntime.quantization', 'onnx')

  class Reader(quantization.CalibrationDataReader):  # type: ignore[name-defined]
    batches = iter(_split(images))

    def get_next(self):
      return next(({'images': x} for x in self.batches), None)

  return Reader()


def _split(
    images: Images) -> list[Float[np.ndarray, 'part height width channels']]:
  return [images[i:i + _BATCH_SIZE].astype(np.float32)
          for i in range(0, len(images), _BATCH_SIZE)]


@dataclasses.dataclass(frozen=True)
class Measured:
  """A file on some images.

  Attributes:
    mebibytes: size.
    images_per_sec: median of several passes, at 32 images per batch.
    accuracy: top-1 accuracy; NaN if no label is known.
  """
  mebibytes: float
  images_per_sec: float
  accuracy: float


def compare(
    files: Sequence[str | os.PathLike], images: Images,
    labels: Int[np.ndarray, 'batch'], *, numbers: bool = False,
) -> tuple[list[Measured], float]:
  """Measures two files on the same images, in alternating passes.

  Args:
    files: the float32 and the int8 file of a model with a head.
    images: preprocessed images.
    labels: class of each image, or -1 if unknown.
    numbers: whether the model predicts numbers instead of classes.

  Returns:
    The measurements, and the fraction of images with the same class or, for
    numbers, of the variance that int8 keeps (R^2 of the worst target).
  """
  runs = [export.read(file, form='onnx') for file in files]
  secs: list[list[float]] = [[] for _ in files]
  found = [np.empty(0)] * len(files)
  for _ in range(_TIMES):
    for i, run in enumerate(runs):
      start = time.perf_counter()
      found[i] = _logits(run, images)
      secs[i].append(time.perf_counter() - start)
  known = labels >= 0
  classes = [logits.argmax(-1) for logits in found]
  agreement = (classes[0] == classes[1]).mean()
  if numbers:
    error, centred = found[1] - found[0], found[0] - found[0].mean(axis=0)
    agreement = (1 - (error ** 2).sum(axis=0)
                 / (centred ** 2).sum(axis=0)).min()
  return [Measured(
      mebibytes=pathlib.Path(file).stat().st_size / 2**20,
      images_per_sec=len(images) / statistics.median(times),
      accuracy=float((one == labels)[known].mean()) if known.any()
      else float('nan'))
          for file, times, one in zip(files, secs, classes)], float(agreement)


def _logits(run: export.Run, images: Images) -> np.ndarray:
  return np.concatenate([run(x)['logits'] for x in _split(images)])


def noisiest_nodes(
    source: str | os.PathLike, quantised: str | os.PathLike, images: Images,
) -> list[str]:
  """Returns names of nodes with the lowest signal-to-noise ratio of inputs."""
  debug = export.library('onnxruntime.quantization.qdq_loss_debug', 'onnx')
  onnx = export.library('onnx', 'onnx')
  with tempfile.TemporaryDirectory() as folder:
    values: list[Any] = []
    for file in (source, quantised):
      path = os.path.join(folder, f'{len(values)}.onnx')
      debug.modify_model_output_intermediate_tensors(os.fspath(file), path)
      values.append(debug.collect_activations(
          path, _reader(images[:_BATCH_SIZE])))
  errors = debug.compute_activation_error(
      debug.create_activation_matching(values[1], values[0]))
  ratios = {name: error['qdq_err'] for name, error in errors.items()}
  nodes = {
      node.name: min(ratios[name] for name in node.input if name in ratios)
      for node in onnx.load(os.fspath(source)).graph.node
      if node.op_type in QUANTISED and set(node.input) & set(ratios)}
  return sorted(nodes, key=lambda name: nodes[name])[:NOISIEST]


def replace(
    model: model_lib.Model, path: pathlib.Path,
    settings: settings_lib.Settings,
    labels: Mapping[str, Sequence[image_files.Labels]],
    reading: image_files.ReadProgress, *, calibration: Sequence[str],
) -> dict[str, Any]:
  """Replaces the file at `path` by its int8 version; reports the difference.

  Args:
    model: the exported model.
    path: its float32 file.
    settings: nodes that stay float32, and whether a loss is accepted.
    labels: labels of the images to compare, by path; if empty, those that set
      the ranges are compared.
    reading: collects the images that cannot be read.
    calibration: images that set the ranges; some of them are used.

  Returns:
    The measurements of both files, `agreement`, `examples` with a known class,
    and `loss`, a text if int8 loses too much.
  """
  if export.is_folder(model) or not model.config.num_classes:
    raise UserError(
        '--quantize needs a model with a head and less than 2 GiB of weights.')
  _, images = export.read_images(
      model, pictures.interleave(calibration)[:settings_lib.MAX_CALIBRATION],
      reading)
  print(f'int8: ranges of {console.format_count(len(images), "image")}')
  source = path.with_name(f'{path.name}.float32')
  try:
    path.rename(source)
    write(source, path, images, float_nodes=settings.float_nodes)
    sources, tested = export.read_images(
        model, list(labels or calibration), reading)
    classes = np.array([
        class_of(name, labels.get(name, []), model.preprocess.labels)
        for name in sources])
    numbers = model.preprocess.activation == 'none'
    both, agreement = compare((source, path), tested, classes, numbers=numbers)
    title = f'{"" if labels else "calibration "}images: {len(tested):,}; ' + (
        'variance kept: ' if numbers else 'the same class for ')
    known = int((classes >= 0).sum())
    _show(title, both, agreement, known)
    lost = loss(both[0].accuracy - both[1].accuracy, agreement, numbers=numbers)
    if lost:
      nodes = ' '.join(noisiest_nodes(source, path, images))
      status = ('accepted (--accept-loss)' if settings.accept_loss else
                'the exit status is 1; --accept-loss accepts it')
      print(f'warning: int8 {lost}. The file is written, and {status}. '
            'Calibrate with more images, or leave out the noisiest matrix '
            f'products: --float-nodes {nodes}')
  finally:
    source.unlink(missing_ok=True)
  return {'float32': dataclasses.asdict(both[0]),
          'int8': dataclasses.asdict(both[1]), 'agreement': agreement,
          'examples': known, 'loss': lost}


def _show(
    title: str, both: Sequence[Measured], agreement: float,
    known: int,
) -> None:
  """Prints the measurements of the float32 and the int8 file."""
  console.table(
      title + console.format_percent(agreement, digits=1),
      ('', 'MiB', 'images/s',
       'accuracy of ' + console.format_count(known, 'image')), [
          (name, f'{one.mebibytes:.1f}',
           console.format_number(one.images_per_sec),
           '–' if math.isnan(one.accuracy) else
           console.format_percent(one.accuracy, digits=2))
          for name, one in zip(('float32', 'int8'), both)])


def loss(lost: float, agreement: float, *, numbers: bool) -> str:
  """Returns what int8 loses if that is too much, else ''.

  Args:
    lost: lost accuracy; NaN without labels.
    agreement: as returned by `compare`; NaN counts as too little.
    numbers: whether the model predicts numbers.
  """
  least = console.format_percent(settings_lib.MIN_AGREEMENT)
  found = console.format_percent(agreement, digits=1)
  return ', and '.join(filter(None, [
      '' if agreement >= settings_lib.MIN_AGREEMENT else
      f'keeps {found} of the variance of the predictions, less than {least}'
      if numbers else f'predicts the class of float32 for {found} of the '
      f'images, less than {least}',
      f'loses {100 * lost:.1f} points of accuracy, more than '
      f'{100 * settings_lib.MAX_LOSS:g}' * (lost > settings_lib.MAX_LOSS)]))


def class_of(
    path: str, rows: Sequence[image_files.Labels], names: Sequence[str],
) -> int:
  """Returns the class of an image; -1 if none, several or another.

  It is that of its rows in tables or, without labels, of the nearest folder
  with the name of a class. Numbers are class names as in training: '0.0' is
  '0'.
  """
  found = set()
  cells = [columns.clean(cell) for row in rows for cell in row.values()]
  folders = map(columns.clean, pathlib.Path(path).parts[:-1])
  for cell in cells or [part for part in folders if part in names][-1:]:
    if cell is None:  # Without a label.
      continue
    number = columns.to_integer(cell)
    found |= {str(cell), str(cell if number is None else number)} & {*names}
  return names.index(found.pop()) if len(found) == 1 else -1
