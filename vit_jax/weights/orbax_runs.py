"""Our own format, Orbax, as a format among others: a model out and in.

A run writes its checkpoints with `manager`. Here one is read as a model, by
the rules that hold for the weights of other codebases; and a model is written
as a workdir of one checkpoint that has no optimizer.
"""

from collections.abc import Generator, Mapping
import contextlib
import dataclasses
import json
import os
from typing import Any

from etils import epath
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from vit_jax import atomic_files
from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.models import vit_config
from vit_jax.weights import convert
from vit_jax.weights import files
from vit_jax.weights import hints
from vit_jax.weights import initialize
from vit_jax.weights import load_report
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

# Of the section `model`, what arrays tell as well: no word changes it.
_TOLD = (*vit_config.DIMENSIONS, 'name', 'num_classes', 'registers', 'position',
         'parallel', 'qkv_bias', 'qk_norm', 'norm', 'layer_scale',
         'final_norm', 'pool_norm', 'representation_layer')


@dataclasses.dataclass(frozen=True)
class _Said:
  """What a model needs of the config of a checkpoint.

  Attributes:
    model: the section `model`.
    data: that of the run's data; what images go through, unless `preprocess`.
    objective: that of the run's loss; what logits mean, unless `preprocess`.
    preprocess: what they go through, as `write` says it.
    resolution: of the images of the positions, if not that of `preprocess`.
    positions: how they are resized.
  """
  model: dict[str, Any]
  data: dict[str, Any] = dataclasses.field(default_factory=dict)
  objective: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] | None = None
  resolution: int | tuple[int, int] | None = None
  positions: initialize.Positions = 'linear'


def is_run(path: epath.Path) -> bool:
  """Whether a path is a workdir, or a checkpoint, of ours."""
  if not path.is_dir():
    return False
  names = (paths.FOLDER, paths.LATEST, paths.BEST)
  return (any((path / name).is_dir() for name in names)
          or paths.is_checkpoint(path) or paths.newest(path) is not None)


def read(
    path: epath.Path, overrides: Mapping[str, Any], *, which: str,
) -> convert.Loaded:
  """Reads a model from a run; takes and raises what `formats.read` does.

  Args:
    path: a workdir, a folder of checkpoints, or one checkpoint.
    overrides: keys of the section `model` and of `Preprocess`.
    which: 'latest' or 'best', where `path` is a workdir.
  """
  given = overrides_lib.parse(overrides)
  if given.prefix is not None:
    raise ValueError(
        f'prefix={given.prefix!r} says which copy of a model to take from a '
        f'file that has several, but {path} is of ours, which has one. Leave '
        'it out.')
  source = checkpoint_source.find(path, which=which)
  where = str(source.path)
  if 'model' not in source.config:
    raise ValueError(
        f'The checkpoint {where} does not say what model it is of: its config '
        'has no section model. Name another checkpoint.')
  shapes = tree.flatten(models.without_prediction(source.shapes))
  with _understood(where):
    said = schema.parse(
        _Said, {f.name: source.config[f.name] for f in dataclasses.fields(_Said)
                if f.name in source.config}, where='config')
    stated = _with_classes(models.parse(said.model), shapes)
    preprocess = _preprocess(said)
    if len(source.labels) == stated.num_classes:  # Of this head, or none.
      preprocess = dataclasses.replace(preprocess, labels=source.labels)
    side = (preprocess.resolution if said.resolution is None
            else said.resolution)
    resolution = overrides_lib.parse(
        {'resolution': side}).preprocess['resolution']
    empty = _empty(stated, resolution)
    convert.check_preprocess(stated, preprocess)
  config = _overridden(stated, given, source=where)
  preprocess = preprocessing_lib.parse(
      {**schema.to_plain(preprocess), **given.preprocess})
  convert.check_preprocess(config, preprocess)
  convert.check(config, {**shapes, **empty}, resolution, source=where,
                channels=preprocess.channels)
  params = {
      name: files.to_float32(array, name=name, path=where) for name, array in
      {**tree.flatten(models.without_prediction(source.load())),
       **empty}.items()}
  if said.data.get('target_std'):
    params = _in_units(params, said.data)
  return convert.Loaded(
      config=config, params=tree.unflatten(params), resolution=resolution,
      preprocess=preprocess, positions=said.positions, family='ours',
      statement=(
          f'{paths.shown(where)}: a checkpoint of ours, '
          f'{load_report.count(params)}, images '
          f'{resolution[0]}x{resolution[1]}',),
      report=tuple(f'  loaded  {name} {array.shape}'
                   for name, array in params.items()))


@contextlib.contextmanager
def _understood(where: str) -> Generator[None, None, None]:
  try:
    yield
  # A text where a list was to be, and the like.
  except (ValueError, TypeError, KeyError, AttributeError,
          ZeroDivisionError) as error:
    reason = str(error).rstrip('.')
    raise ValueError(
        f'The config of the checkpoint {where} is not understood: {reason}. '
        'Name another checkpoint, or correct it.') from error


def _with_classes(
    config: models.ModelConfig, shapes: Mapping[str, Any],
) -> models.ModelConfig:
  """Returns a config with the classes of the head; a run may leave them open.
  """
  head = shapes.get('head/dense/kernel')
  if config.num_classes or head is None:
    return config
  return dataclasses.replace(config, num_classes=int(head.shape[-1]))


def _preprocess(said: _Said) -> preprocessing_lib.Preprocess:
  stated = said.preprocess
  if stated is None:
    stated = preprocessing_lib.from_data(said.data)
    if said.objective.get('loss') == 'sigmoid':
      stated['activation'] = 'sigmoid'
    if said.data.get('target_std'):
      stated['activation'] = 'none'
  # First as what the caller says is checked: three channels, positive sides.
  checked = overrides_lib.parse({
      name: stated[name] for name in preprocessing_lib.NAMES if name in stated})
  return preprocessing_lib.parse({**stated, **checked.preprocess})


def _in_units(
    params: dict[str, np.ndarray], data: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Returns parameters whose answers are in the units of the labels.

  A run learns (label - mean) / std. To bring that back is linear, as the head
  is: std (w x + b) + mean = (std w) x + (std b + mean). So every format can
  hold it, and none has to say it.
  """
  mean, std = (np.asarray(data[name], np.float64)
               for name in ('target_mean', 'target_std'))
  kernel, bias = 'head/dense/kernel', 'head/dense/bias'
  return {**params,
          kernel: (params[kernel] * std).astype(np.float32),
          bias: (params[bias] * std + mean).astype(np.float32)}


def _overridden(
    stated: models.ModelConfig, given: overrides_lib.Given, *, source: str,
) -> models.ModelConfig:
  """Returns the config with what is given, unless the arrays deny it."""
  if not given.model:
    return stated
  plain = schema.to_plain(stated)
  told = {name: plain[name] for name in _TOLD if name in plain}
  told['backbone'] = plain['backbone'] and {
      name: plain['backbone'][name] for name in ('depths', 'width')}
  changed: dict[str, Any] = dict(given.model)
  if isinstance(stated, vit_config.ViTConfig):
    told |= {'cls': stated.has_cls, 'probe': stated.pooling == 'attention'}
    if 'pooling' in changed:  # The class token does not come or go with it.
      changed.setdefault('cls', stated.has_cls)
  different = hints.contradictions(given.claims, told, {})
  if different:
    raise ValueError(
        f'{source} does not hold the model that was said:\n'
        + load_report.indented(different))
  if isinstance(changed.get('backbone'), Mapping):
    changed['backbone'] = {**plain['backbone'], **changed['backbone']}
  return models.parse({**plain, **changed})


def _empty(
    config: models.ModelConfig, resolution: tuple[int, int],
) -> dict[str, np.ndarray]:
  """Returns the parameters of no elements: Orbax has no place for them."""
  shapes = tree.flatten(convert.abstract_params(config, resolution))
  return {name: np.zeros(leaf.shape, leaf.dtype)
          for name, leaf in shapes.items() if not leaf.size}


def write(
    target: str | os.PathLike,
    config: models.ModelConfig,
    params: types.Params,
    *,
    resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
    positions: str,
    origin: str,
) -> None:
  """Writes a workdir with one checkpoint, of step 0, that has no optimizer.

  Args:
    target: a folder that does not exist.
    config: of the model.
    params: nested dict of arrays.
    resolution: height and width that the positions are for.
    preprocess: what images go through.
    positions: how positions are resized: 'linear' or 'cubic'.
    origin: where the weights are from.

  Raises:
    FileExistsError: if there is something at `target`.
  """
  said = {
      'model': schema.to_plain(config),
      'preprocess': schema.to_plain(preprocess),
      'resolution': list(resolution), 'positions': positions,
      'data': {'resolution': list(resolution),
               'mean': list(preprocess.mean), 'std': list(preprocess.std)},
      'origin': origin}
  arrays = tree.unflatten({
      name: jnp.asarray(array)
      for name, array in tree.flatten(params).items() if array.size})
  with (atomic_files.create(target) as path,
        ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer):
    checkpointer.save(
        path.absolute() / paths.FOLDER / paths.LATEST / '0',
        args=ocp.args.Composite(
            params=ocp.args.StandardSave(arrays),
            config=ocp.args.JsonSave(json.loads(json.dumps(said))),
            progress=ocp.args.JsonSave({})))
