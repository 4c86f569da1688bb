"""Loads models from the checkpoints of runs, and saves them as checkpoints.

A checkpoint is loaded with the checks of `weights.load`. A model is saved as a
workdir with one checkpoint that has no optimizer state.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
from typing import Any

from etils import epath
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from vit_jax import atomic_files
from vit_jax import exceptions
from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.models import vit_config
from vit_jax.weights import files
from vit_jax.weights import infer_architecture
from vit_jax.weights import load as load_lib
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import published_sizes
from vit_jax.weights import report
from vit_jax.weights.configs import declared
from vit_jax.weights.configs import preprocessing


def is_run(path: epath.Path) -> bool:
  """Whether a path is a workdir, with or without stages, or a checkpoint."""
  if not path.is_dir():
    return False
  names = (paths.FOLDER, paths.LATEST, paths.BEST)
  return (any((path / name).is_dir() for name in names)
          or paths.is_checkpoint(path) or paths.newest(path) is not None
          or bool(paths.stages(path)))


def load(
    source: checkpoint_source.Source, overrides: Mapping[str, Any],
    change: declared.Change,
) -> declared.Weights:
  """Loads a model from a checkpoint; like `weights.load.load`."""
  given = overrides_lib.parse(overrides)
  if given.prefix is not None:
    raise ValueError(
        f'prefix={given.prefix!r} selects one of several copies in a file, but '
        f'{source.path} is a checkpoint of vit_jax. Leave it out.')
  where = str(source.path)
  if 'model' not in source.config:
    raise ValueError(
        f'The config of the checkpoint {where} has no section model. Use '
        'another checkpoint.')
  shapes = tree.flatten(_of_model(source.shapes))
  with exceptions.replaced_by(lambda error: ValueError(
      f'The config of the checkpoint {where} is malformed: '
      f'{str(error).rstrip(".")}. Use another checkpoint, or correct it.')):
    run = schema.parse(
        declared.Metadata, {
            f.name: source.config[f.name]
            for f in dataclasses.fields(declared.Metadata)
            if f.name in source.config}, where='config')
    stored = models.parse(run.model)
    head = shapes.get('head/dense/kernel')
    if head is not None and not stored.num_classes:  # Set by the dataset.
      stored = dataclasses.replace(stored, num_classes=int(head.shape[-1]))
    preprocess = _preprocess(run)
    if len(source.labels) == stored.num_classes:
      preprocess = dataclasses.replace(preprocess, labels=source.labels)
    resolution = run.size(preprocess)
    stored.grid(resolution)
    load_lib.check_preprocess(stored, preprocess)
  config = _with_overrides(stored, given)
  preprocess = preprocessing.override(preprocess, given.preprocess)
  # Orbax cannot store arrays without elements.
  load_lib.check(
      config, infer_architecture.add_empty_head(stored, shapes), resolution,
      source=where, channels=preprocess.channels)
  load_lib.check_preprocess(config, preprocess)
  arrays = tree.flatten(_of_model(source.load()))
  params = {
      name: files.to_float32(array, name=name, path=where) for name, array in
      infer_architecture.add_empty_head(stored, arrays).items()}
  if run.data.get('target_std'):
    params = _in_label_units(params, run.data)
  known = declared.Declared(
      source='its config', ours=True, model=schema.to_plain(stored),
      preprocess={name: value for name, value in vars(preprocess).items()
                  if value or name != 'labels'})
  weights = change(declared.Weights(
      config=config, params=tree.unflatten(params), resolution=resolution,
      preprocess=preprocess, positions=run.positions, origin='ours',
      settings=known.settings(given.model, given.preprocess),
      report=tuple(f'  loaded  {name} {array.shape}'
                   for name, array in params.items())))
  return dataclasses.replace(weights, summary=(
      f'{paths.display(where)}: vit_jax checkpoint, '
      f'{report.count(weights.params)}, images '
      f'{weights.resolution[0]}x{weights.resolution[1]}',
      *report.settings(weights, source=known.source), *weights.summary))


def _of_model(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters, or their shapes, without those of pre-training."""
  return {name: value for name, value in params.items()
          if name not in models.PRETRAINING_ONLY}


def _preprocess(run: declared.Metadata) -> preprocessing.Preprocess:
  section = run.preprocess
  if section is None:
    section = preprocessing.from_data(run.data)
    if run.data.get('target_std'):
      section['activation'] = 'none'
    elif run.objective.get('loss') == 'sigmoid':
      section['activation'] = 'sigmoid'
  # Versions that wrote terms of timm rounded as TensorFlow does.
  return preprocessing.parse(section, rounding='tensorflow')


def _in_label_units(
    params: dict[str, np.ndarray], data: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Rescales the head of a regression to the units of the labels.

  A run learns (label - mean) / std, so that label = std (w x + b) + mean
  = (std w) x + (std b + mean). With this head, no format needs to store them.
  """
  mean, std = (np.asarray(data[name], np.float64)
               for name in ('target_mean', 'target_std'))
  return {**params, **{
      name: (array * std + mean * name.endswith('bias')).astype(np.float32)
      for name, array in params.items() if name.startswith('head/')}}


def _with_overrides(
    stored: models.ModelConfig, given: overrides_lib.Overrides,
) -> models.ModelConfig:
  if not given.model:
    return stored
  plain = schema.to_plain(stored)
  changed: dict[str, Any] = dict(given.model)
  if 'variant' in changed:
    changed = {**published_sizes.dimensions(changed['variant']), **changed}
  if changed.get('name', stored.name) != stored.name:
    raise ValueError(
        f'name: expected {changed["name"]!r}, found a {stored.name}.')
  if isinstance(stored, vit_config.ViTConfig) and 'pooling' in changed:
    changed.setdefault('cls', stored.has_cls)  # Pooling does not change it.
  if isinstance(changed.get('backbone'), Mapping):
    changed['backbone'] = {**(plain['backbone'] or {}), **changed['backbone']}
  return models.parse({**plain, **changed})


def save(target: str | os.PathLike, model: declared.Weights) -> None:
  """Saves a workdir with one checkpoint, of step 0; see `weights.save.save`.

  Raises:
    FileExistsError: if `target` exists.
    ValueError: if checkpoints cannot be written to `target`.
  """
  paths.check_writable(target)
  run_config = {
      **declared.metadata(model),
      'data': {'resolution': list(model.resolution),
               'mean': list(model.preprocess.mean),
               'std': list(model.preprocess.std)},
      'origin': model.origin}
  arrays = tree.unflatten({
      name: jnp.asarray(array)
      for name, array in tree.flatten(model.params).items() if array.size})
  with (atomic_files.create(target) as path,
        ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer):
    checkpointer.save(
        path.absolute() / paths.FOLDER / paths.LATEST / '0',
        args=items.composite({'params': arrays}, {
            'config': json.loads(json.dumps(run_config)), 'progress': {}}))
