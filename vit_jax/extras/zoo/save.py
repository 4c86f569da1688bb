"""Writes a model as a folder of timm, or refuses it.

timm opens the folder, and so does Transformers (`TimmWrapperModel`). A folder
is complete only if config.json and the arrays alone, without our metadata, are
read back as the same model.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax import fields
from vit_jax import tree
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import safetensors
from vit_jax.extras.zoo.arrays import joint
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.configs import timm_export
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records
from vit_jax.models import resnet
from vit_jax.models import vit
from vit_jax.weights import declared
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import layout

_RECORDS = (vit.ViTConfig, resnet.HybridConfig, resnet.ResNetConfig,
            vit_config.BackboneConfig)


def write(
    target: str | os.PathLike, model: weights_lib.Weights, *, dtype: str,
) -> list[str]:
  """Writes a model; see `weights.save.save`."""
  preprocess = model.preprocess
  if preprocess.pixel_dtype != 'uint8' or preprocess.value_range not in (
      None, value_scale_lib.DEFAULT_RANGE):
    raise UserError(
        f'The model expects pixels of {preprocess.pixel_dtype} with the '
        f'value_range {preprocess.value_range}, which timm cannot express. '
        'Save it as orbax.')
  if type(model.config) not in _RECORDS:
    raise UserError(
        f'timm has no model of {model.config.name!r}. Save it as orbax.')
  params = {name: array.astype(dtype) for name, array in tree.flatten(
      model.read()).items()}
  general = dataclasses.replace(model, config=vit_config.general(model.config))
  content = timm_export.config_json(general)
  arrays = timm_arrays(general.config, params, model.resolution)
  with atomic_files.create(os.fspath(target)) as folder:
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(content, indent=2) + '\n')
    safetensors.write(
        folder / 'model.safetensors',
        {name: array.astype(dtype) for name, array in arrays.items()},
        metadata={declared.KEY: json.dumps(declared.metadata(model))})
    return _check(folder, general.config, params)


def timm_arrays(
    config: Any, params: Mapping[str, np.ndarray], resolution: tuple[int, int],
) -> dict[str, np.ndarray]:
  """Returns parameters, by our names, as timm's arrays, by its names."""
  if 'registers' in params and timm_arguments.embeds_prefix(config):
    # timm's registers have position embeddings, too.
    cls, patches = np.split(
        np.asarray(params['positions']), [config.num_class_tokens])
    params = {**params, 'positions': np.concatenate(
        [cls, np.zeros_like(params['registers']), patches])}
  return to_arrays(_family(config), params, rows=config.grid(resolution)[0])


def _family(config: Any) -> records.Family:
  """Returns the names of the arrays in timm."""
  if not isinstance(config, vit_config.BackboneConfig):
    return families.FAMILIES['timm_bit']
  if config.position == 'factorized':
    return families.FAMILIES['naflex']
  family = families.FAMILIES[
      'sapiens2' if timm_arguments.is_sapiens2(config) else
      'timm_parallel' if config.parallel else
      'timm_paired' if config.paired else 'timm']
  return dataclasses.replace(
      family, table=timm_arguments.written(family.table, config))


def _check(
    folder: pathlib.Path, config: Any, params: Mapping[str, np.ndarray],
) -> list[str]:
  """Raises a UserError unless timm's files alone are the same model.

  Returns:
    Notes on the small numbers in the norms of a ResNet, which no file has.
  """
  try:
    found = foreign.load(folder, metadata=False)
  except UserError as error:
    raise UserError(
        f'timm cannot store the model: {error}\nSave it as orbax.') from error
  theirs = vit_config.general(found.config)
  lines = [
      f'{name}={getattr(config, name)!r} would be {getattr(theirs, name)!r}'
      for name in fields.switches(config)
      if _shown(config, name) != _shown(theirs, name)]
  arrays = tree.flatten(found.read())
  lines += [f'{name} would have other values' for name, array in params.items()
            if name not in arrays or not np.array_equal(
                arrays[name], array.astype(np.float32))]
  if lines:
    raise UserError(
        f'timm cannot store the model: {", ".join(lines)}. Save it as orbax, '
        'or first load it with the other values: load(path, NAME=VALUE).')
  stem = vars(config.backbone) if config.backbone else {}
  return [f'timm computes with backbone.{name}={value!r}, this model with '
          f'{stem[name]!r}, which only vit_jax reads, from the metadata'
          for name, value in vars(theirs.backbone).items()
          if stem[name] != value] if stem else []


def _shown(config: Any, name: str) -> Any:
  """Returns a setting as far as a model computes with it."""
  value = getattr(config, 'has_cls' if name == 'cls' else name, None)
  if name == 'gelu' and config.mlp == 'swiglu':
    return None
  if name == 'backbone':
    return value and (value.depths, value.width, value.preactivation)
  return value is not None if name == 'layer_scale' else value


def to_arrays(
    family: records.Family, params: Mapping[str, Any], **lengths: int,
) -> dict[str, np.ndarray]:
  """Converts parameters, by our names, to a family's arrays, by its names.

  `lengths` are those of axes in the layouts that shapes do not determine:
  `rows` of the grid of positions.

  Raises:
    UserError: if the family has no such parameter.
  """
  flat = {name: np.asarray(array, np.float32)
          for name, array in params.items() if array.size}
  flat = joint.join_pairs(family, flat)
  arrays: dict[str, np.ndarray] = {}
  problems = []
  for name, array in flat.items():
    try:
      arrays |= layout.to_theirs(family.table, name, array, **lengths)
    except UserError as error:
      # The projection of CLIP and the patches of C-RADIO have no bias.
      if np.any(array) or name not in ('head/dense/bias', 'patches/bias'):
        problems.append(str(error))
  if problems:
    raise UserError('\n'.join(problems))
  if family.name == 'timm' and 'backbone/block1/unit1/conv1/kernel' not in flat:
    # timm names a root without stages differently.
    arrays = {n.replace('backbone.stem.', 'backbone.'): a
              for n, a in arrays.items()}
  if 'head/dense/kernel' not in flat:
    arrays = {n.removeprefix(family.base): a for n, a in arrays.items()}
  return {family.prefix + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}
