"""A model as one file that runs without this code: written, and read back.

    jax         StableHLO by `jax.export`: `f(images)` on a CPU, a GPU or a TPU
    onnx        by jax2onnx, for ONNX Runtime and what reads its files
    savedmodel  by jax2tf, for TensorFlow Serving and TensorFlow Lite

All take `images` [batch, height, width, channels], float32 in the model's value
range, of any number, and give `logits` and `representation`. The weights are
inside, and all is computed in float32: ONNX Runtime has no bfloat16 on a CPU.
"""

from collections.abc import Callable
import dataclasses
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
from jax import export as jax_export
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from vit_jax import model as model_lib
from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax.models import encoder

PLATFORMS = ('cpu', 'cuda', 'tpu')
OUTPUTS = ('logits', 'representation')
# Of ONNX operators: the newest that ONNX Runtime 1.20 (2024) runs whole.
OPSET = 21
# Of one file, as FlatBuffers (jax) and Protocol Buffers (the others) have it,
# less some room for the program.
MAX_BYTES = 2**31 - 2**24

Images = Float[np.ndarray, 'batch height width channels']
Run = Callable[[Images], dict[str, np.ndarray]]


def write(
    model: model_lib.Model, path: str | os.PathLike, *, form: str,
) -> None:
  """Writes a model.

  Args:
    model: with its weights.
    path: a file, or of 'savedmodel' a folder; it is overwritten.
    form: one of `FORMATS`.

  Raises:
    ValueError: for another format, or weights too large for one file.
    ModuleNotFoundError: if the format's converter is not installed.
  """
  records.check_name(form, list(FORMATS), what='format')
  num_bytes = 4 * tree.num_elements(model.params)
  if num_bytes > MAX_BYTES:
    raise ValueError(
        f'The weights are {num_bytes / 2**30:.2f} GiB, but a file of '
        f'{", ".join(FORMATS)} holds less than 2: L/16 fits, H/14 does not. '
        'Serve it with this code: vit_jax.load(...).predict.')
  FORMATS[form][0](in_float32(model), pathlib.Path(path))


def in_float32(model: model_lib.Model) -> model_lib.Model:
  """Returns the model as it is written; itself where it is so already."""
  config = dataclasses.replace(model.config, dtype='float32', remat='none')
  return (model if config == model.config
          else dataclasses.replace(model, config=config))


def read(path: str | os.PathLike, *, form: str) -> Run:
  """Returns what runs a file: images to named outputs.

  Raises:
    ModuleNotFoundError: if what runs the format is not installed.
  """
  records.check_name(form, list(FORMATS), what='format')
  return FORMATS[form][1](pathlib.Path(path))


def difference(model: model_lib.Model, run: Run, images: Images) -> float:
  """Returns the largest difference of a logit, or of a feature without any.

  Args:
    model: what was written; it is compared in float32.
    run: what was read back.
    images: in the model's value range.
  """
  wanted, got = in_float32(model)(images), run(images)
  name = OUTPUTS[0] if model.config.num_classes else OUTPUTS[1]
  want, have = np.asarray(wanted[name]), np.asarray(got[name])
  if want.shape != have.shape:
    raise ValueError(
        f'The file gives {name} of shape {list(have.shape)}, but the model '
        f'{list(want.shape)}.')
  return float(np.abs(want - have).max())


def _forward(
    model: model_lib.Model, *, unrolled: bool = False,
) -> Callable[[Any], dict[str, jax.Array]]:
  """Returns the model as a function of images alone."""
  module = models.build(model.config, num_classes=model.config.num_classes)
  params = model.resized_params(model.preprocess.resolution)

  def forward(images: Any) -> dict[str, jax.Array]:
    if unrolled:
      with nn.intercept_methods(_one_by_one):
        outputs = module.apply({'params': params}, images)
    else:
      outputs = module.apply({'params': params}, images)
    return {name: outputs[name] for name in OUTPUTS}

  return forward


def _one_by_one(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    context: nn.module.InterceptorContext,
) -> Any:
  """Walks over the layers in Python, where an encoder would scan them.

  A loop is an obstacle to whatever fuses operators of a graph, and Flax's
  cannot be traced by jax2onnx with a batch of unknown size.
  """
  scanned = context.module
  if (not isinstance(scanned, encoder.Encoder)
      or context.method_name != '__call__'):
    return method(*args, **kwargs)
  tokens, positions = args
  config = scanned.config
  kind: Any = encoder.AxialBlock if config.axial else encoder.Block
  block = kind(config, False, False, scanned.grid, parent=None)
  for i in range(config.depth):
    layer = jax.tree.map(
        lambda x, i=i: x[i], scanned.variables['params']['layers'])
    tokens, _ = block.apply({'params': layer}, tokens, jnp.zeros(()), positions)
  return tokens, {}


def _write_jax(model: model_lib.Model, path: pathlib.Path) -> None:
  batch, = jax_export.symbolic_shape('batch')
  shape = jax.ShapeDtypeStruct(
      (batch, *model.preprocess.resolution, model.preprocess.channels),
      np.float32)
  exported = jax_export.export(
      jax.jit(_forward(model)), platforms=PLATFORMS)(shape)
  path.write_bytes(exported.serialize())


def _read_jax(path: pathlib.Path) -> Run:
  exported = jax_export.deserialize(bytearray(path.read_bytes()))
  return lambda images: jax.device_get(exported.call(images))


def _write_onnx(model: model_lib.Model, path: pathlib.Path) -> None:
  jax2onnx = _library('jax2onnx', 'onnx')
  forward = _forward(model, unrolled=True)
  jax2onnx.to_onnx(
      lambda images: tuple(forward(images).values()),
      [('batch', *model.preprocess.resolution, model.preprocess.channels)],
      model_name='vit_jax',
      opset=OPSET, input_names=['images'], output_names=list(OUTPUTS),
      return_mode='file', output_path=str(path))
  _take_in(path.with_name(f'{path.name}.data'), path)


def _take_in(beside: pathlib.Path, path: pathlib.Path) -> None:
  """Puts weights that were written beside a file of ONNX into it.

  jax2onnx does so with arrays above 1 MiB; the file is then of no use where it
  is moved alone.
  """
  if beside.exists():
    onnx = _library('onnx', 'onnx')
    onnx.save_model(onnx.load(str(path)), str(path))
    beside.unlink()


def _read_onnx(path: pathlib.Path) -> Run:
  runtime = _library('onnxruntime', 'onnx')
  session = runtime.InferenceSession(
      str(path), providers=['CPUExecutionProvider'])
  return lambda images: dict(zip(OUTPUTS, session.run(
      list(OUTPUTS), {'images': np.asarray(images, np.float32)})))


def _write_savedmodel(model: model_lib.Model, path: pathlib.Path) -> None:
  tf = _library('tensorflow', 'savedmodel')
  from jax.experimental import jax2tf
  height, width = model.preprocess.resolution
  channels = model.preprocess.channels
  forward = jax2tf.convert(
      _forward(model),
      polymorphic_shapes=[f'(batch, {height}, {width}, {channels})'],
      native_serialization_platforms=PLATFORMS, with_gradient=False)
  module = tf.Module()
  module.serve = tf.function(
      forward, autograph=False, input_signature=[tf.TensorSpec(
          (None, height, width, channels), tf.float32, name='images')])
  tf.saved_model.save(
      module, str(path), signatures={'serving_default': module.serve})


def _read_savedmodel(path: pathlib.Path) -> Run:
  tf = _library('tensorflow', 'savedmodel')
  serve = tf.saved_model.load(str(path)).signatures['serving_default']
  return lambda images: {
      name: np.asarray(value) for name, value in
      serve(images=tf.constant(images)).items()}


def _library(name: str, form: str) -> Any:
  """Imports what only one format needs."""
  try:
    return __import__(name)
  except ModuleNotFoundError as error:
    if error.name != name:
      raise
    raise ModuleNotFoundError(
        f'--format={form} needs {name}, which is not installed: pip install '
        f'-r requirements-export.txt', name=name) from error


FORMATS: dict[str, tuple[
    Callable[[model_lib.Model, pathlib.Path], None],
    Callable[[pathlib.Path], Run]]] = {
        'jax': (_write_jax, _read_jax),
        'onnx': (_write_onnx, _read_onnx),
        'savedmodel': (_write_savedmodel, _read_savedmodel)}
