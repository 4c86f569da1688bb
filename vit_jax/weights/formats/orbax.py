"""Opens checkpoints as weights, and saves models as checkpoints.

A model is saved as a workdir with one checkpoint that has no optimizer state.
"""

from collections.abc import Mapping
import dataclasses
import functools
import json
import os
from typing import Any

from etils import epath
import jax
import jax.numpy as jnp

from vit_jax import atomic_files
from vit_jax import exceptions
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.models import factory
from vit_jax.weights import adapt
from vit_jax.weights import check
from vit_jax.weights import declared
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file


def open_run(path: epath.PathLike, *, which: str) -> weights_lib.Weights:
  """Opens a checkpoint with all parameters of the run, as stored.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    UserError: if its config is malformed, or the checkpoint is damaged.
  """
  step = paths.find(path, which=which)
  item = items.params_item(step)
  with items.explain_errors(step):
    sums = items.read_checksums(step)
    run = items.read_config(step / 'config')
    checksums.check(sums, {'config': run})
    # Of a run; `save` writes none.
    progress = items.read_config(step / 'progress') if 'data' in run else {}
    if progress and (earlier := registry.optional(registry.EARLIER_DATA)):
      run['data'] = earlier.declare(run['data'], progress.get('label_kind', ''))
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
        items.read_shapes(step / item))
    labels = items.read_labels(step, sums)

  with exceptions.within(f'The config of the checkpoint {step}'):
    section = {f.name: run[f.name] for f in dataclasses.fields(
        declared.Metadata) if f.name in run}
    # The method of a run, by default that of its initial weights.
    if method := schema.check_section(
        run.get('init', {}), where='config.init').get(
            'positions') or progress.get('positions'):
      section['positions'] = method
    found = schema.parse(
        declared.Metadata, section, where='config').parse('its config')
    preprocess = found.preprocess
    # The config of a run has 0 if the dataset determines the classes.
    config = dataclasses.replace(found.config, num_classes=(
        found.config.num_classes or adapt.num_classes(shapes)))
    if len(labels) == config.num_classes:
      preprocess = dataclasses.replace(preprocess, labels=labels)
    config.grid(found.resolution)
    check.check_preprocess(config, preprocess)
  return weights_lib.Weights(
      config=config, read=functools.partial(items.read_params, step),
      shapes=shapes, preprocess=preprocess, resolution=found.resolution,
      positions=found.positions, address=str(step), kind=item,
      description=f'{paths.display(step)}: vit_jax checkpoint',
      notes=(*found.notes, *(
          'the best checkpoint; for the last, --which=latest (in Python, '
          "which='latest')",) * (
              which == paths.AUTO and step.parent.name == paths.BEST)),
      # `save` writes a part of a config, with the preprocessing.
      run={} if 'preprocess' in run else run,
      settings=dict.fromkeys(weights_lib.REPORTED, 'declared by its config'))


def override(
    weights: weights_lib.Weights, overrides: Mapping[str, Any],
) -> weights_lib.Weights:
  """Returns the weights of a run with other settings; see `open.open`."""
  given = overrides_lib.parse(overrides)
  if given.prefix is not None:
    raise UserError(
        f'prefix={given.prefix!r} selects one of several copies in a file, but '
        f'{weights.address} is a checkpoint of vit_jax. Leave it out.')
  return dataclasses.replace(
      weights, config=given.change(weights.config),
      preprocess=preprocessing.override(weights.preprocess, given.preprocess),
      settings={**weights.settings, **given.settings})


def for_inference(weights: weights_lib.Weights) -> weights_lib.Weights:
  """Returns the weights of the model alone, from weights of a run.

  Parameters that only its objective uses are left out, and the head of a
  regression is in the units of the labels.

  Raises:
    UserError: if the checkpoint does not hold exactly the model's parameters.
  """
  config, data = weights.config, weights.run.get('data', {})
  shapes = check.add_empty_head(config, tree.flatten(_of_model(weights.shapes)))
  check.check_params(
      config, shapes, weights.resolution, path=weights.address,
      channels=weights.preprocess.channels)
  check.check_preprocess(config, weights.preprocess)

  def read() -> types.Params:
    arrays = check.add_empty_head(
        config, tree.flatten(_of_model(weights.read())))
    params = {
        name: array_file.to_float32(array, name=name, path=weights.address)
        for name, array in arrays.items()}
    return adapt.rescale_head(tree.unflatten(params), of=data, to={})

  run = weights.run and {**weights.run, 'data': {
      name: value for name, value in data.items()
      if not name.startswith('target_')}}
  return dataclasses.replace(
      weights, read=read, run=run, shapes=tree.unflatten(shapes))


def _of_model(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters, or their shapes, without parts of pre-training."""
  return {name: value for name, value in params.items()
          if name not in factory.PRETRAINING_ONLY}


def save(
    target: str | os.PathLike, model: weights_lib.Weights, *, dtype: str,
) -> list[str]:
  """Saves a workdir with one checkpoint, of step 0; see `weights.save.save`.

  Raises:
    UserError: if `target` exists or checkpoints cannot be written to it, or for
      another dtype than float32.
  """
  if dtype != 'float32':
    raise UserError(f'orbax stores float32, but dtype is {dtype!r}.')
  paths.check_writable(target)
  config = {**declared.metadata(model), 'origin': model.origin}
  arrays = tree.unflatten({
      name: jnp.asarray(array)
      for name, array in tree.flatten(model.read()).items() if array.size})
  with atomic_files.create(target) as path:
    items.write(
        path.absolute() / paths.FOLDER / paths.LATEST / '0',
        {'params': arrays},
        {'config': json.loads(json.dumps(config)), 'progress': {}})
  return []
