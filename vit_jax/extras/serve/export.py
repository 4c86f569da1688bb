"""Exports a model to a format that runs without this code, and reads it back.

    jax         StableHLO by `jax.export`: `f(images)` on a CPU, GPU or TPU
    onnx        by jax2onnx, for ONNX Runtime

Each takes `images` [batch, height, width, channels], float32 in the model's
value range with any batch size, and returns `logits` and `representation`. The
weights are included, and everything is computed in float32, because ONNX
Runtime has no bfloat16 on CPUs.

Neither format can hold 2 GiB in a file. Larger models become folders, with the
weights in a separate file:

    jax         model.stablehlo, `f(weights, images)`, and weights.npz, its
                first argument: `dict(numpy.load('weights.npz'))`
    onnx        model.onnx, which refers to model.onnx.data
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import functools
import importlib
import logging
import os
import pathlib
from typing import Any

import flax.linen as nn
import jax
from jax import export as jax_export
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from vit_jax import console
from vit_jax import tree
from vit_jax import types
from vit_jax.exceptions import UserError
from vit_jax.extras.serve import settings as settings_lib
from vit_jax.inference import image_files
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib
from vit_jax.models import factory

PLATFORMS = ('cpu', 'cuda', 'tpu')
OUTPUTS = ('logits', 'representation')
# The newest ONNX operator set that ONNX Runtime 1.20 (2024) supports fully.
OPSET = 21
# Limit of FlatBuffers (jax) and Protocol Buffers (onnx), minus program space.
MAX_BYTES = 2**31 - 2**24
# Files in the folder of a large model.
PROGRAMS = {'jax': 'model.stablehlo', 'onnx': 'model.onnx'}
WEIGHTS = 'weights.npz'
# Libraries that write or run a format.
LIBRARIES: dict[str, tuple[str, ...]] = {
    'jax': (), 'onnx': ('jax2onnx', 'onnxruntime')}

Images = Float[np.ndarray, 'batch height width channels']
Run = Callable[[Images], dict[str, np.ndarray]]


def write(
    model: model_lib.Model, path: str | os.PathLike, *, form: str,
) -> None:
  """Writes a model in the format `form`, a key of `LIBRARIES`.

  Overwrites the file at `path`; if `is_folder`, `path` must not exist. Raises
  an `ImportError` if the converter is not installed.
  """
  write_format = {'jax': _write_jax, 'onnx': _write_onnx}[form]
  write_format(in_float32(model), pathlib.Path(path))


def check_installed(form: str) -> None:
  """Raises an `ImportError` if a library of the format is missing."""
  for name in LIBRARIES[form]:
    library(name, form)


def is_folder(model: model_lib.Model) -> bool:
  """Returns whether the model is exported as a folder."""
  return 4 * tree.num_elements(model.params) > MAX_BYTES


def in_float32(model: model_lib.Model) -> model_lib.Model:
  """Returns the float32 model to export; `model` itself if nothing changes."""
  config = factory.with_remat(dataclasses.replace(
      model.config.without_fused_kernels(), dtype='float32'), 'none')
  return (model if config == model.config
          else dataclasses.replace(model, config=config))


def read(path: str | os.PathLike, *, form: str) -> Run:
  """Returns a function from images to the outputs of an exported model.

  Raises an `ImportError` if the runtime is not installed.
  """
  return {'jax': _read_jax, 'onnx': _read_onnx}[form](pathlib.Path(path))


def difference(model: model_lib.Model, run: Run, images: Images) -> float:
  """Returns the largest absolute difference of logits, or of features.

  Of the outputs of a regression, it is relative to the largest, if that is
  above 1. The model is evaluated in float32 on preprocessed images.
  """
  expected, actual = in_float32(model)(images), run(images)
  name = OUTPUTS[0] if model.config.num_classes else OUTPUTS[1]
  want, got = np.asarray(expected[name]), np.asarray(actual[name])
  if want.shape != got.shape:
    raise UserError(
        f'The exported model returns {name} of shape {list(got.shape)}, but '
        f'the original {list(want.shape)}.')
  largest = np.abs(want).max() if model.preprocess.activation == 'none' else 1
  return float(np.abs(want - got).max() / max(1, largest))


def _forward(
    model: model_lib.Model, *, unrolled: bool = False,
) -> tuple[Callable[[types.Params, Any], dict[str, jax.Array]], types.Params]:
  """Returns a function of weights and images, and the weights."""
  module = factory.build(model.config, num_classes=model.config.num_classes)

  def forward(params: types.Params, images: Any) -> dict[str, jax.Array]:
    with (nn.intercept_methods(_unroll_layers) if unrolled
          else contextlib.nullcontext()):
      outputs = module.apply({'params': params}, images)
    return {name: outputs[name] for name in OUTPUTS}

  return forward, model.params_for(model.preprocess.resolution)


def _unroll_layers(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    context: nn.module.InterceptorContext,
) -> Any:
  """Replaces the encoder's scan over layers with a Python loop.

  Loops prevent operator fusion in ONNX Runtime, and jax2onnx cannot trace the
  scan with a symbolic batch size.
  """
  scanned = context.module
  if scanned.name != 'encoder' or context.method_name != '__call__':
    return method(*args, **kwargs)
  tokens, *shared = args
  kind, settings = scanned.block()
  block = kind(*settings, parent=None)
  outputs: list[dict[str, jax.Array]] = []
  for i in range(scanned.config.depth):
    layer = jax.tree.map(
        lambda x, i=i: x[i], scanned.variables['params']['layers'])
    tokens, captured = block.apply(
        {'params': layer}, tokens, jnp.asarray(i), *shared)
    outputs.append(captured)
  # A decoder may use several layers.
  return tokens, {name: [one[name] for one in outputs] for name in outputs[0]}


def _write_jax(model: model_lib.Model, path: pathlib.Path) -> None:
  forward, params = _forward(model)
  batch, = jax_export.symbolic_shape('batch')
  images = jax.ShapeDtypeStruct(
      (batch, *model.preprocess.resolution, model.preprocess.channels),
      np.float32)
  arguments: tuple[Any, ...] = (images,)
  program: Callable[..., Any] = functools.partial(forward, params)
  if is_folder(model):
    path.mkdir()
    weights = {name: np.asarray(value, np.float32)
               for name, value in tree.flatten(params).items()}
    np.savez(path / WEIGHTS, **weights)  # type: ignore[arg-type]
    arguments = weights, images
    program = lambda named, images: forward(tree.unflatten(named), images)
    path = path / PROGRAMS['jax']
  exported = jax_export.export(
      jax.jit(program), platforms=PLATFORMS)(*arguments)
  path.write_bytes(exported.serialize())


def _read_jax(path: pathlib.Path) -> Run:
  weights: tuple[Any, ...] = ()
  if path.is_dir():
    with np.load(path / WEIGHTS) as file:
      weights = jax.device_put(dict(file)),
    path = path / PROGRAMS['jax']
  exported = jax_export.deserialize(bytearray(path.read_bytes()))
  return lambda images: jax.device_get(exported.call(*weights, images))


def _write_onnx(model: model_lib.Model, path: pathlib.Path) -> None:
  jax2onnx = library('jax2onnx', 'onnx')
  forward, params = _forward(model, unrolled=True)
  separate = is_folder(model)
  if separate:
    path.mkdir()
    path = path / PROGRAMS['onnx']
  # onnx_ir warns about every shape that it omits, but runtimes infer them.
  logging.getLogger('onnx_ir').setLevel(logging.ERROR)
  program = jax2onnx.to_onnx(
      lambda images: tuple(forward(params, images).values()),
      [('batch', *model.preprocess.resolution, model.preprocess.channels)],
      model_name='vit_jax', opset=OPSET, input_names=['images'],
      output_names=list(OUTPUTS), return_mode='ir')
  library('onnx_ir', 'onnx').save(
      program, path, external_data=f'{path.name}.data' if separate else None)


def _read_onnx(path: pathlib.Path) -> Run:
  runtime = library('onnxruntime', 'onnx')
  if path.is_dir():
    path = path / PROGRAMS['onnx']
  # It warns about each constant that it computes once and removes.
  runtime.set_default_logger_severity(3)
  session = runtime.InferenceSession(
      str(path), providers=['CPUExecutionProvider'])
  return lambda images: dict(zip(OUTPUTS, session.run(
      list(OUTPUTS), {'images': np.asarray(images, np.float32)})))


def library(name: str, form: str) -> Any:
  """Imports a library that an export format needs."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name != name.partition('.')[0]:
      raise
    raise UserError(
        f'--format={form} needs {name}, which is not installed. In an '
        "environment of its own (docs/serving.md): pip install '.[export]'"
    ) from error


def batches(
    model: model_lib.Model, paths: Sequence[str],
    reading: image_files.ReadProgress,
) -> dict[str, Images]:
  """Returns preprocessed batches of images by description.

  Raises:
    UserError: if no given image can be read.
  """
  preprocess = model.preprocess
  rng = np.random.default_rng(0)
  found = {}
  for size in settings_lib.BATCH_SIZES:
    pixels = rng.uniform(
        0, 1, (size, *preprocess.resolution, preprocess.channels))
    found[console.format_count(size, 'random image')] = (
        preprocess.value_scale.normalize(pixels.astype(np.float32)))
  if paths:
    sources, images = read_images(model, paths, reading)
    found[console.format_count(len(sources), 'image')] = images
  return found


def read_images(
    model: model_lib.Model, paths: Sequence[str],
    reading: image_files.ReadProgress,
) -> tuple[list[str], Images]:
  """Returns paths of readable images and their preprocessed pixels.

  Raises:
    UserError: if none can be read.
  """
  sources: list[str] = []
  pixels = []
  for names, images in images_lib.batches(
      paths, model.preprocess, size=settings_lib.MAX_IMAGES,
      on_error=reading.add_error):
    sources += map(str, names)
    pixels.append(images[:len(names)])
  if not pixels:
    raise reading.none_readable()
  return sources, np.concatenate(pixels)


def compare(
    model: model_lib.Model, path: pathlib.Path,
    compared: Mapping[str, Images], *, form: str,
) -> dict[str, float]:
  """Prints and returns the largest difference of a logit in each batch.

  Raises:
    UserError: if one is larger than `settings.TOLERANCE`, or NaN.
  """
  run, differences = read(path, form=form), {}
  for what, images in compared.items():
    found = differences[what] = difference(model, run, images)
    print(f'{what}: largest difference of a logit {found:.1e}')
    if not found <= settings_lib.TOLERANCE:  # True for NaN, too.
      raise UserError(
          f'The {form} export differs by {found:.2g} in a logit on {what}, '
          f'more than {settings_lib.TOLERANCE}. Nothing was written.')
  return differences
