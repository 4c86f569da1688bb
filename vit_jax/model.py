"""A model with its weights, ready to be called: what `vit_jax.load` returns.

    model = vit_jax.load('ViT-B_16.npz')
    model.predict('cat.jpg')                # Names and probabilities.
    model.features(['cat.jpg', 'dog.jpg'])  # [2, width]
    model.rollout('cat.jpg')                # Where it looks.
    logits = model(images)['logits']        # Arrays in, arrays out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax import images as images_lib
from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax import types
from vit_jax.analysis import attention as attention_lib
from vit_jax.checkpoints import export
from vit_jax.checkpoints import formats
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import own
from vit_jax.checkpoints import pretrained
from vit_jax.checkpoints import sources
from vit_jax.interop import files
from vit_jax.interop import preprocess as preprocess_lib

Preprocess = preprocess_lib.Preprocess
Log = Callable[[str], None]
is_run = own.is_run

ORBAX = 'orbax'
FORMATS = (*export.FORMATS, ORBAX)
_MAX_SIZES = 4  # Resolutions whose positions are kept.
# What `Model.features` gives; `cls` and `mean` are of the tokens.
FEATURES = ('representation', 'pooled', 'cls', 'mean', 'tokens', 'logits')

ACTIVATIONS = {'softmax': jax.nn.softmax, 'sigmoid': jax.nn.sigmoid}

Picture = images_lib.Picture


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The likeliest classes of a picture, the likeliest first.

  Attributes:
    names: of the classes; 'class 3' where the weights came without names.
    probabilities: of the classes.
    classes: their indices.
  """
  names: tuple[str, ...]
  probabilities: tuple[float, ...]
  classes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
  """The numbers that a model predicts of a picture.

  Attributes:
    names: of the targets; 'target 0' where the weights came without names.
    values: in the units of the labels that were learned.
  """
  names: tuple[str, ...]
  values: tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """A model and its parameters.

  Attributes:
    config: the typed section `model`.
    params: nested dict of arrays.
    preprocess: how an image becomes what the model was trained on.
    resolution: height and width that the position embeddings are for.
    positions: how they are resized to others: 'linear' or 'cubic'.
    origin: where the weights are from.
    report: a line for each parameter that was read, and for what was ignored.
  """
  config: models.ModelConfig
  params: types.Params
  preprocess: Preprocess
  resolution: tuple[int, int]
  positions: str = 'linear'
  origin: str = ''
  report: tuple[str, ...] = ()

  def __call__(
      self, images: Float[Array, 'batch height width channels'] |
      Float[np.ndarray, 'batch height width channels'],
  ) -> types.Outputs:
    """Applies the model to images in its value range.

    It is compiled for each shape of a batch, on its first use: many batches of
    one size are faster than each of another.

    Args:
      images: float, of any number and any resolution: (x / 255 - mean) / std,
        with those of `preprocess`.

    Returns:
      `logits` [batch, classes], `representation` [batch, width], `tokens`
      [batch, tokens, width], and what else the model names.

    Raises:
      ValueError: if these are no such images, or do not divide into patches.
    """
    _check_images(images, self.preprocess)
    number, height, width, _ = jnp.shape(images)
    params = self.resized_params((height, width))
    apply = _apply(self.config)
    if number:
      return apply(params, images)
    shapes = jax.eval_shape(apply, params, jax.ShapeDtypeStruct(
        (1, height, width, self.preprocess.channels),
        jnp.result_type(images)))
    return jax.tree.map(
        lambda leaf: jnp.zeros((0, *leaf.shape[1:]), leaf.dtype), shapes)

  @functools.cached_property
  def _on_device(self) -> types.Params:
    """The parameters where they are computed with; copied once."""
    return jax.device_put(self.params)

  @functools.cached_property
  def resized_params(self) -> Callable[[tuple[int, int]], types.Params]:
    """Gives the parameters for images of a height and width, on the device.

    All but positions are shared. Raises a `ValueError` if such images do not
    divide into patches.
    """
    # The positions alone: a model of another size is not another model.
    @functools.lru_cache(maxsize=_MAX_SIZES)
    def positions(size: tuple[int, int]) -> dict[str, jax.Array]:
      return jax.device_put(resized(
          self.params, self.config, old=self.resolution, new=size,
          method=self.positions))

    def params(size: tuple[int, int]) -> types.Params:
      return _with(self._on_device, positions(size))

    return params

  def __repr__(self) -> str:
    height, width = self.resolution
    return (f'Model({self.origin or self.config.name}: '
            f'{tree.num_elements(self.params):,} parameters, images of '
            f'{height} x {width}, {self.config.num_classes} classes)')

  def predict(
      self, pictures: Picture | Iterable[Picture], top_k: int = 5, *,
      activation: preprocess_lib.Activation | None = None,
      batch_size: int = 32,
  ) -> Prediction | Estimate | list[Prediction] | list[Estimate]:
    """Classifies one picture or several, or predicts numbers of them.

    Args:
      pictures: paths, Pillow images, or arrays [height, width, 1, 3 or 4],
        uint8 in 0 ... 255 or float in 0 ... 1; one, several (a list,
        Path.glob, ...), or an array [batch, ...].
      top_k: classes of each; all, where there are fewer.
      activation: 'softmax', or 'sigmoid' of a model whose pictures have several
        classes; by default what `preprocess` says: the loss that a run of ours
        was trained with, softmax where nothing is said.
      batch_size: pictures at a time.

    Returns:
      A prediction for each, or an `Estimate` where the model predicts numbers;
      for one picture, its own.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no head.
    """
    result: list[Any] = []
    for outputs in self._all(pictures, batch_size):
      result += (self.estimates(outputs['logits']) if self.predicts_numbers
                 else self.likeliest(outputs['logits'], top_k=top_k,
                                     activation=activation))
    return result[0] if self._is_one(pictures) else result

  def likeliest(
      self, logits: Float[Any, 'batch classes'], *, top_k: int = 5,
      activation: preprocess_lib.Activation | None = None,
  ) -> list[Prediction]:
    """Returns what `predict` does, of logits.

    Raises:
      ValueError: if the model has no head, or there is no such activation.
    """
    if not self.config.num_classes:
      raise ValueError(
          f'{self.origin or "The model"} has no head, and so no classes. Use '
          'model.features, or fine-tune it first.')
    if top_k < 1:
      raise ValueError(f'top_k must be at least 1, but is {top_k}.')
    activation = activation or self.preprocess.activation
    if activation == 'none':
      raise ValueError(
          f'{self.origin or "The model"} predicts numbers, of which none is '
          'the likeliest. Use model.predict or model.estimates.')
    records.check_name(activation, list(ACTIVATIONS), what='activation')
    count = min(top_k, self.config.num_classes)
    probabilities = ACTIVATIONS[activation](jnp.asarray(logits, jnp.float32))
    values, classes = jax.device_get(jax.lax.top_k(probabilities, count))
    return [Prediction(
        names=tuple(self._name(int(i)) for i in row),
        probabilities=tuple(map(float, value)), classes=tuple(map(int, row)))
        for row, value in zip(classes, values)]

  @property
  def predicts_numbers(self) -> bool:
    """Whether what the head gives are numbers, not logits of classes."""
    return self.preprocess.activation == 'none'

  def estimates(self, logits: Float[Any, 'batch targets']) -> list[Estimate]:
    """Returns what `predict` does of a model that predicts numbers."""
    names = self.preprocess.labels or tuple(
        f'target {i}' for i in range(self.config.num_classes))
    return [Estimate(names, tuple(map(float, row)))
            for row in np.asarray(logits, np.float64)]

  def features(
      self, pictures: Picture | Iterable[Picture], *,
      layer: str = 'representation', batch_size: int = 32,
  ) -> Float[np.ndarray, '...']:
    """Returns what the model makes of one picture or several.

    Args:
      pictures: as `predict` takes them.
      layer: 'representation' [width], what the head sees; 'pooled' [width],
        before the tanh layer, where there is one; 'cls' [width], the class
        token; 'mean' [width], that of the patches; 'tokens' [tokens, width],
        all after the final norm; 'logits' [classes].
      batch_size: pictures at a time.

    Returns:
      float32, with a leading axis for the pictures unless there is but one.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such layer.
    """
    name = self.output_of(layer)
    result = np.concatenate([
        self.layer_of(outputs, layer) for outputs in
        self._all(pictures, batch_size, names=(name,))])
    return result[0] if self._is_one(pictures) else result

  def output_of(self, layer: str) -> str:
    """Returns the output of the model that holds a layer of `features`.

    Raises:
      ValueError: if the model has no such layer.
    """
    records.check_name(layer, FEATURES, what='layer')
    if layer == 'cls' and not getattr(self.config, 'has_cls', False):
      raise ValueError("The model has no class token. Use layer='mean'.")
    tokens = layer in ('cls', 'mean', 'tokens')
    if tokens or layer == 'pooled':
      self._need_tokens(layer, instead="layer='representation'")
    if layer == 'logits' and not self.config.num_classes:
      raise ValueError(
          f'{self.origin or "The model"} has no head, and so no logits. Use '
          "layer='representation', or fine-tune it first.")
    return 'tokens' if tokens else layer

  def layer_of(
      self, outputs: Mapping[str, Any], layer: str,
  ) -> Float[np.ndarray, 'batch ...']:
    """Returns a layer of `features` from the outputs of a batch, as float32."""
    values = outputs[self.output_of(layer)]
    if layer == 'cls':
      values = values[:, 0]
    elif layer == 'mean':
      values = values[:, getattr(self.config, 'num_prefix', 0):]
    values = np.asarray(values, np.float32)  # bfloat16 rounds sums.
    return values.mean(1) if layer == 'mean' else values

  def attention(
      self, pictures: Picture | Iterable[Picture], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns the attention of every layer and head, after the softmax.

    It is large: 144 x 197 x 197 numbers, 21 MiB, a picture for B/16 at 224.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.

    Returns:
      float32 [batch, layers, heads, tokens, tokens]: of each token (rows) to
      each (columns), class token and registers first; without the first axis
      for a single picture.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such attention.
    """
    result = np.concatenate([
        weights.swapaxes(0, 1)
        for weights in self._weights(pictures, batch_size)])
    return result[0] if self._is_one(pictures) else result

  def rollout(
      self, pictures: Picture | Iterable[Picture], *, batch_size: int = 8,
  ) -> Float[np.ndarray, '...']:
    """Returns how much of each patch is in what the head sees (figure 6).

    See `analysis.attention.rollout_map`.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.

    Returns:
      float64 [batch, rows, columns], summing to one for each picture; without
      the first axis for a single picture.

    Raises:
      FileNotFoundError: if a file is not there.
      ValueError: if one is no picture, or the model has no such attention.
    """
    # Batch by batch: the attention of many pictures would fill memory.
    result = np.concatenate([
        attention_lib.rollout_map(
            weights, grid=models.grid(self.config, self.preprocess.resolution),
            pooling=getattr(self.config, 'pooling', ''))
        for weights in self._weights(pictures, batch_size)])
    return result[0] if self._is_one(pictures) else result

  def _weights(
      self, pictures: Picture | Iterable[Picture], batch_size: int,
  ) -> Iterator[Float[np.ndarray, 'layers batch heads tokens tokens']]:
    """Yields the attention of each batch."""
    self._need_tokens('attention', instead='model.features')
    if getattr(self.config, 'axial', False):
      raise ValueError(
          'Axial attention is within rows and within columns: there is none of '
          'every token to every other.')
    for outputs in self._all(
        pictures, batch_size, names=('layers',), capture=True):
      yield np.asarray(outputs['layers']['attention'], np.float32)

  def _need_tokens(self, what: str, *, instead: str) -> None:
    if self.config.name != 'vit':
      raise ValueError(
          f'A {self.config.name} has no tokens, and so no {what}. Use '
          f'{instead}.')

  def _is_one(self, pictures: Any) -> TypeGuard[Picture]:
    return images_lib.is_one(pictures, channels=self.preprocess.channels)

  def _name(self, index: int) -> str:
    labels = self.preprocess.labels
    return labels[index] if index < len(labels) else f'class {index}'

  def outputs(
      self, pictures: Iterable[Picture], *, batch_size: int = 32,
      names: Sequence[str] = ('logits',), capture: bool = False,
      failed: images_lib.Failed | None = None,
  ) -> Iterator[tuple[tuple[Picture, ...], dict[str, Any]]]:
    """Yields, batch by batch, pictures and what the model makes of them.

    All of however many pictures: only a few batches are in memory.

    Args:
      pictures: as `predict` takes them.
      batch_size: pictures at a time.
      names: of the outputs that are wanted; see `models.vit.ViT`.
      capture: whether `layers` is one, of every layer.
      failed: told of each picture that cannot be read; it is then left out.

    Raises:
      FileNotFoundError, ValueError: for such a picture, without `failed`.
    """
    if batch_size < 1:
      raise ValueError(f'batch_size must be at least 1, but is {batch_size}.')
    params = self.resized_params(self.preprocess.resolution)
    apply = _apply(self.config, capture, tuple(names))
    for batch in images_lib.batches(
        pictures, self.preprocess, size=batch_size, failed=failed):
      outputs = jax.device_get(apply(params, batch.images))
      yield batch.pictures, {
          name: _first(value, batch.count, axis=int(name == 'layers'))
          for name, value in outputs.items()}

  def _all(
      self, pictures: Picture | Iterable[Picture], batch_size: int,
      **asked: Any,
  ) -> Iterator[dict[str, Any]]:
    """Yields outputs of one picture or several; batches no larger than these.
    """
    given: list[Any] = (
        [pictures] if self._is_one(pictures)
        else list(pictures))  # type: ignore[arg-type]
    if not given:
      raise ValueError('There are no pictures: none was given.')
    for _, outputs in self.outputs(
        given, batch_size=min(batch_size, len(given)), **asked):
      yield outputs

  def save(
      self, target: str | os.PathLike, *, form: str = ORBAX,
  ) -> list[str]:
    """Writes the model, whole or not at all.

    Args:
      target: a file or folder that does not exist, here or at gs://.
      form: one of `FORMATS`.

    Returns:
      Lines on what must be given to `load` to read it back, and on what the
      format's own library does otherwise.

    Raises:
      FileExistsError: if there is something at `target`.
      ValueError: if the format has no place for a part of the model, or a
        parameter is no array of finite floats.
    """
    records.check_name(form, FORMATS, what='format')
    if form != ORBAX and self.preprocess.channels != 3:
      raise ValueError(
          f'The model takes images of {self.preprocess.channels} channels, and '
          f'{form} is of three. Save it as {ORBAX}.')
    for name, array in tree.flatten(self.params).items():
      files.to_float32(np.asarray(array), name=name, path='The model')
    if form == ORBAX:
      own.write(
          target, self.config, self.params, resolution=self.resolution,
          preprocess=self.preprocess, positions=self.positions,
          origin=self.origin)
      return []
    return export.write(
        target, form, self.config, self.params,  # type: ignore[arg-type]
        resolution=self.resolution, preprocess=self.preprocess,
        positions=self.positions)


def load(
    path: str | os.PathLike, *, which: str = manager.LATEST,
    log: Log | None = print, **overrides: Any,
) -> Model:
  """Loads a model with its weights, from whatever format they are in.

  Damage is noticed where the format has a checksum of the values: an .npz and
  a zipped state dict of PyTorch have; safetensors, PyTorch's older files and
  our own checkpoints, which Orbax writes, have none. There, what is missing or
  of another shape or type is noticed, and what is not finite, but not a value
  that became another. Keep the checksum of what must not change.

  Args:
    path: a run's workdir or checkpoint; an .npz, .safetensors or state dict of
      PyTorch; a folder of one with its config.json; locally, or at gs://,
      https:// or hf://user/model.
    which: 'latest' or 'best' checkpoint of a workdir.
    log: takes lines on what was found and inferred; None for silence.
    **overrides: keys of the section `model` (num_heads=4), or of `Preprocess`
      (resolution=384, mean=..., labels=...), or positions='cubic'. They win
      over what is inferred.

  Raises:
    FileNotFoundError: if there is nothing at `path`.
    ValueError: if the weights are damaged, unknown, or not exactly those of
      the model.
  """
  log = log or (lambda line: None)
  records.check_name(which, manager.WHICH, what='which checkpoint')
  positions = overrides.pop('positions', None)
  if positions is not None:
    records.convert(positions, pretrained.Positions, where='positions')
  found = sources.fetch(path, log=log)
  loaded = (own.read(found, overrides, which=which) if is_run(found)
            else formats.read(sources.local(found, log=log), overrides))
  for line in loaded.statement:
    log(line)
  return Model(
      config=loaded.config, params=loaded.params, preprocess=loaded.preprocess,
      resolution=loaded.resolution, positions=positions or loaded.positions,
      origin=f'{loaded.family}: {os.fspath(path)}', report=loaded.report)


@dataclasses.dataclass(frozen=True)
class Weights:
  """Weights of another codebase, as `manager.Source` has those of ours.

  Attributes:
    path: where they are.
    item: what they are.
    config: the sections `model` and `data` of a config, as far as known.
    params: the parameters.
  """
  path: str
  item: str
  config: dict[str, Any]
  params: types.Params

  def load(self) -> types.Params:
    """Returns the parameters."""
    return self.params


def find(
    path: str | os.PathLike, *, which: str = manager.LATEST, **overrides: Any,
) -> manager.Source | Weights:
  """Finds parameters to start a run from; takes and raises what `load` does.

  A run of ours is only looked at; its parameters are read when asked for.
  """
  found = sources.fetch(path)
  if is_run(found):
    return manager.find(found, which=which)
  model = load(path, which=which, **overrides)
  return Weights(
      path=os.fspath(path), item=model.origin.split(':')[0] or 'weights',
      params=model.params, config={
          'model': records.to_plain(model.config),
          'data': {'resolution': list(model.resolution)}})


def resize(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> types.Params:
  """Returns parameters with the positions of images of another size.

  Args:
    params: nested dict of arrays.
    config: of the model.
    old: height and width of the images that they are for.
    new: those wanted.
    method: 'linear' or 'cubic'.

  Raises:
    ValueError: if the images do not divide into patches.
  """
  return _with(params, resized(params, config, old=old, new=new, method=method))


def resized(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> dict[str, np.ndarray]:
  """As `resize`, but returns those that change alone, by name."""
  grids = {'old_grid': models.grid(config, old),
           'new_grid': models.grid(config, new)}
  result = {}
  if grids['old_grid'] != grids['new_grid']:
    for name, array in tree.flatten(params).items():
      if name.split('/')[-1] in models.POSITIONS:
        result[name] = models.resize(
            name, np.asarray(array), **grids,
            method=method)  # type: ignore[arg-type]
  return result


def _with(params: types.Params, changed: Mapping[str, Any]) -> types.Params:
  if not changed:
    return params
  return tree.unflatten({**tree.flatten(params), **changed})


def _first(values: Any, count: int, *, axis: int) -> Any:
  """Returns the first of each array along an axis; that of the images."""
  index = (slice(None),) * axis + (slice(count),)
  return jax.tree.map(lambda x: x[index], values)


def _check_images(images: Any, preprocess: Preprocess) -> None:
  if not isinstance(images, (jax.Array, np.ndarray)):
    raise ValueError(
        'Images are an array of floats, but came as '
        f'{type(images).__name__}. Give np.asarray(images, np.float32).')
  shape, dtype = images.shape, images.dtype
  channels = preprocess.channels
  if len(shape) != 4 or shape[-1] != channels:
    raise ValueError(
        f'Images are [batch, height, width, {channels}], but came as '
        f'{list(shape)}' + ('. Transpose them to (0, 2, 3, 1).' if len(
            shape) == 4 and shape[1] == channels else '.'))
  if not jnp.issubdtype(dtype, jnp.floating):
    raise ValueError(
        f'Images are floats in the value range of the model, but came as '
        f'{dtype}. Give (images / 255 - mean) / std, with model.preprocess: '
        f'mean {preprocess.mean}, std {preprocess.std}.')


@functools.lru_cache(maxsize=32)
def _apply(
    config: models.ModelConfig, capture: bool = False,
    names: tuple[str, ...] = (),
) -> Callable[..., types.Outputs]:
  model = models.build(
      models.for_devices(config, jax.devices()[:1]),
      num_classes=config.num_classes)
  more = {'capture': True} if capture else {}

  def apply(params, images):
    outputs = model.apply({'params': params}, images, **more)
    # What nobody asks for is not computed, or not copied at least.
    return {name: outputs[name] for name in names} if names else outputs

  return jax.jit(apply)
