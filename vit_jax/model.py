"""A model with its weights, ready to be called: what `vit_jax.load` returns.

    model = vit_jax.load('ViT-B_16.npz')
    logits = model(images)['logits']
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import json
import os
from typing import Any

from etils import epath
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np
import orbax.checkpoint as ocp

from vit_jax import models
from vit_jax import records
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import export
from vit_jax.checkpoints import formats
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import sources
from vit_jax.interop import preprocess as preprocess_lib

Preprocess = preprocess_lib.Preprocess
Log = Callable[[str], None]

ORBAX = 'orbax'
FORMATS = (*export.FORMATS, ORBAX)


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
    report: a line for each parameter that was read.
  """
  config: models.ModelConfig
  params: types.Params
  preprocess: Preprocess
  resolution: tuple[int, int]
  positions: str = 'linear'
  origin: str = ''
  report: tuple[str, ...] = ()
  _resized: dict[tuple[int, int], Any] = dataclasses.field(
      default_factory=dict, repr=False)

  def __call__(
      self, images: Float[Array, 'batch height width channels'] |
      Float[np.ndarray, 'batch height width channels'],
  ) -> types.Outputs:
    """Applies the model to images in its value range.

    Args:
      images: float, of any number and any resolution: (x / 255 - mean) / std,
        with those of `preprocess`.

    Returns:
      `logits` [batch, classes], `representation` [batch, width], `tokens`
      [batch, tokens, width], and what else the model names.

    Raises:
      ValueError: if these are no such images, or do not divide into patches.
    """
    return _apply(self.config)(self._params_for(images), images)

  def _params_for(self, images: Any) -> types.Params:
    shape, dtype = jnp.shape(images), jnp.result_type(images)
    if len(shape) != 4 or shape[-1] != 3:
      raise ValueError(
          'Images are [batch, height, width, 3], but came as '
          f'{list(shape)}' + ('. Transpose them to (0, 2, 3, 1).'
                              if len(shape) == 4 and shape[1] == 3 else '.'))
    if not jnp.issubdtype(dtype, jnp.floating):
      raise ValueError(
          f'Images are floats in the value range of the model, but came as '
          f'{dtype}. Give (images / 255 - mean) / std, with model.preprocess: '
          f'mean {self.preprocess.mean}, std {self.preprocess.std}.')
    size = (shape[1], shape[2])
    if size not in self._resized:
      self._resized[size] = jax.device_put(resize(
          self.params, self.config, old=self.resolution, new=size,
          method=self.positions))
    return self._resized[size]

  def save(
      self, target: str | os.PathLike, *, form: str = ORBAX,
  ) -> list[str]:
    """Writes the model; returns lines on what the format cannot say.

    Args:
      target: a file or folder that does not exist.
      form: one of `FORMATS`.

    Raises:
      FileExistsError: if there is something at `target`.
      ValueError: if the format has no place for a part of the model.
    """
    records.check_name(form, FORMATS, what='format')
    if form == ORBAX:
      _save_orbax(self, epath.Path(target))
      return []
    return export.write(
        target, form, self.config, self.params,  # type: ignore[arg-type]
        resolution=self.resolution, preprocess=self.preprocess)


def load(
    path: str | os.PathLike, *, which: str = manager.LATEST,
    log: Log | None = print, **overrides: Any,
) -> Model:
  """Loads a model with its weights, from whatever format they are in.

  Args:
    path: a run's workdir or checkpoint; an .npz, .safetensors or state dict of
      PyTorch; a folder of one with its config.json; locally, or at gs://,
      https:// or hf://user/model.
    which: 'latest' or 'best' checkpoint of a workdir.
    log: takes lines on what was found and inferred; None for silence.
    **overrides: keys of the section `model` (num_heads=4), or of `Preprocess`
      (resolution=384, mean=..., labels=...). They win over what is inferred.

  Raises:
    FileNotFoundError: if there is nothing at `path`.
    ValueError: if the weights are damaged, unknown, or not exactly those of
      the model.
  """
  log = log or (lambda line: None)
  found = sources.fetch(path, log=log)
  if is_run(found):
    model = _load_orbax(found, which, overrides)
    log(f'{found}: a checkpoint of ours, {tree.num_elements(model.params):,} '
        f'parameters, images {model.resolution[0]}x{model.resolution[1]}')
    return model
  loaded = formats.read(sources.local(found, log=log), overrides)
  for line in loaded.statement:
    log(line)
  return Model(
      config=loaded.config, params=loaded.params, preprocess=loaded.preprocess,
      resolution=loaded.resolution, positions=loaded.positions,
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


def is_run(path: epath.Path) -> bool:
  """Whether a path is a workdir, or a checkpoint, of ours."""
  if not path.is_dir():
    return False
  names = {child.name for child in path.iterdir()}
  return bool(names & {manager.FOLDER, manager.LATEST, manager.BEST}
              or ('params' in names and 'config' in names)
              or any((path / name / 'params').is_dir()
                     for name in names if name.isdigit()))


def resize(
    params: types.Params, config: models.ModelConfig, *,
    old: tuple[int, int], new: tuple[int, int], method: str,
) -> types.Params:
  """Returns parameters with the positions of images of another size.

  Raises:
    ValueError: if a position embedding of this kind cannot be resized.
  """
  grids = [models.grid(config, size) for size in (old, new)]
  if grids[0] == grids[1]:
    return params
  expected = tree.flatten(formats.abstract_params(config, new))
  result = {}
  for name, array in tree.flatten(params).items():
    want = expected[name].shape
    if name.split('/')[-1] == 'positions':
      array = _resize_positions(
          np.asarray(array), old=grids[0], new=grids[1], method=method)
    if tuple(array.shape) != tuple(want):
      raise ValueError(
          f'{name} {tuple(array.shape)} is for images of {old[0]}x{old[1]} and '
          f'cannot be resized to {tuple(want)}, for {new[0]}x{new[1]}. Give '
          f'images of {old[0]}x{old[1]}.')
    result[name] = array
  return tree.unflatten(result)


def _resize_positions(
    positions: np.ndarray, **grids: Any,
) -> np.ndarray:
  old, new, method = grids['old'], grids['new'], grids['method']
  if positions.ndim == 3:  # Those of each layer.
    return np.stack([_resize_positions(p, **grids) for p in positions])
  return models.resize_positions(
      positions, old_grid=old, new_grid=new, method=method)


@functools.lru_cache(maxsize=32)
def _apply(config: models.ModelConfig) -> Callable[..., types.Outputs]:
  model = models.build(config, num_classes=config.num_classes)
  return jax.jit(lambda params, images: model.apply({'params': params}, images))


# ------------------------------------------------------------ our own format


def _load_orbax(
    path: epath.Path, which: str, overrides: Mapping[str, Any],
) -> Model:
  source = manager.find(path, which=which)
  given = dict(overrides)
  stated = source.config.get('preprocess') or preprocess_lib.from_data(
      source.config.get('data', {}))
  preprocess = preprocess_lib.parse({
      **stated, **{name: given.pop(name) for name in preprocess_lib.NAMES
                   if name in given}})
  config = models.parse({**source.config['model'], **given})
  shapes = models.without_prediction(source.shapes)
  if not config.num_classes:
    head = tree.flatten(shapes)['head/dense/kernel']
    config = dataclasses.replace(config, num_classes=int(head.shape[-1]))
  resolution = source.config.get('resolution') or stated['resolution']
  resolution = ((resolution, resolution) if isinstance(resolution, int)
                else tuple(resolution))
  formats.check(
      config, tree.flatten(shapes), resolution, source=str(source.path))
  params = models.without_prediction(source.load())
  for name, array in tree.flatten(params).items():
    if not np.isfinite(array).all():
      raise ValueError(
          f'{source.path}: {name} holds values that are NaN or infinite.')
  return Model(
      config=config, params=params, preprocess=preprocess,
      resolution=resolution, origin=str(source.path),
      positions=source.config.get('positions', 'linear'),
      report=tuple(f'  loaded  {name} {array.shape}'
                   for name, array in tree.flatten(params).items()))


def _save_orbax(model: Model, target: epath.Path) -> None:
  """Writes a workdir with one checkpoint, of step 0, that has no optimizer."""
  if target.exists():
    raise FileExistsError(f'{target} exists already. Name another --target.')
  config = {
      'model': records.to_plain(model.config),
      'preprocess': records.to_plain(model.preprocess),
      'resolution': list(model.resolution), 'positions': model.positions,
      'data': {'resolution': list(model.resolution),
               'mean': list(model.preprocess.mean),
               'std': list(model.preprocess.std)},
      'origin': model.origin}
  path = (target.absolute() if '://' not in os.fspath(target) else target)
  step = path / manager.FOLDER / manager.LATEST / '0'
  with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
    checkpointer.save(step, args=ocp.args.Composite(
        params=ocp.args.StandardSave(jax.tree.map(jnp.asarray, model.params)),
        config=ocp.args.JsonSave(json.loads(json.dumps(config))),
        progress=ocp.args.JsonSave({})))
