"""Writes a model in another codebase's format, atomically."""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
import re
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax import fields
from vit_jax import registry
from vit_jax import tree
from vit_jax import types
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo.arrays import joint
from vit_jax.extras.zoo.configs import huggingface_export
from vit_jax.extras.zoo.configs import huggingface_types
from vit_jax.extras.zoo.configs import timm_architectures
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records
from vit_jax.models import ablations
from vit_jax.models import model_config
from vit_jax.weights import declared
from vit_jax.weights import inferred
from vit_jax.weights import published
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import layout
from vit_jax.weights.formats import safetensors

# Settings that config.json declares.
_DECLARED = {'timm': ('gelu',), 'huggingface': (
    'gelu', 'layer_norm_epsilon', 'rotary')}


def write(
    target: str | os.PathLike, form: str, model: weights_lib.Weights, *,
    dtype: str,
) -> list[str]:
  """Writes a model; see `weights.save.save`."""
  preprocess = model.preprocess
  if form in ('timm', 'huggingface') and (
      preprocess.pixel_dtype != 'uint8'
      or preprocess.value_range not in (None, value_scale_lib.DEFAULT_RANGE)):
    raise ValueError(
        f'The model expects pixels of {preprocess.pixel_dtype} with the '
        f'value_range {preprocess.value_range}, which the format {form} cannot '
        'express. Save it as orbax.')
  params = model.read()
  if isinstance(model.config, ablations.AblationConfig):
    _check_exportable(model.config, form)
  model = dataclasses.replace(
      model, config=vit_config.general(model.config))
  config: Any = model.config
  family = _family(form, model)
  arrays = {name: array.astype(dtype) for name, array in to_arrays(
      family, _for_format(form, config, params),
      rows=config.grid(model.resolution)[0]).items()}
  config = inferred.with_variant(config, config.variant)
  model = dataclasses.replace(model, config=config)
  if family.name == 'vit5':
    arrays |= timm_arguments.vit5_frequencies(config)
  metadata = declared.metadata(dataclasses.replace(
      model, config=vit_config.simplest(config)))
  path = os.fspath(target)
  declared_settings: tuple[str, ...] = ()
  if form == 'npz':
    published.write_file(path, arrays, metadata)
  elif form == 'timm' and path.endswith('.safetensors'):
    with atomic_files.create(path) as file:
      _write_safetensors(file, arrays, metadata)
  else:
    _write_folder(path, form, model, arrays, metadata)
    declared_settings = _DECLARED[form]
    if getattr(config, 'layer_norm_epsilon', None) in (
        timm_architectures.EPSILONS):
      declared_settings += 'layer_norm_epsilon',
  return list(published.differences(
      form, family, config, declared=declared_settings))


def _write_safetensors(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any],
) -> None:
  safetensors.write(path, arrays, metadata={
      declared.KEY: json.dumps(metadata)})


def _write_folder(
    path: str, form: str, model: weights_lib.Weights,
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any],
) -> None:
  """Writes a folder with the JSON files of the library."""
  config_files = registry.load(
      registry.WEIGHT_FORMATS[form]).config_files(model)
  if form == 'huggingface':
    arrays = {**arrays, **huggingface_export.buffers(
        config_files['config.json'])}
  with atomic_files.create(path) as folder:
    folder.mkdir()
    files = {}
    for name, content in config_files.items():
      (folder / name).write_text(json.dumps(content, indent=2) + '\n')
      files[name] = declared.checksum(folder / name)
    _write_safetensors(
        folder / 'model.safetensors', arrays, {**metadata, 'files': files})


def _family(form: str, model: weights_lib.Weights) -> records.Family:
  """Returns the family to write."""
  config: Any = model.config
  if not isinstance(config, vit_config.BackboneConfig):
    _check_exportable(config, form)
    return families.FAMILIES['timm_bit']
  if form == 'huggingface':
    found = huggingface_types.TYPES[huggingface_export.model_type(model)]
    return huggingface_types.in_family(found).written(config)
  # Names of arrays show whether biases are shared.
  _check_exportable(dataclasses.replace(
      config, position_at='stem') if config.has_offset_bias else config, form)
  if form == 'npz':
    return families.FAMILIES['npz']
  if config.position == 'factorized':
    return families.FAMILIES['naflex']
  family = families.FAMILIES[
      'vit5' if timm_arguments.is_vit5(config) else
      'sapiens2' if timm_arguments.is_sapiens2(config) else
      'timm_parallel' if config.parallel else
      'timm_paired' if config.paired else 'timm']
  return dataclasses.replace(
      family, table=timm_arguments.written(family.table, config))


def _for_format(
    form: str, config: model_config.ModelConfig, params: types.Params,
) -> dict[str, Any]:
  """Returns the parameters that the format has, by our names."""
  flat = tree.flatten(params)
  if not isinstance(config, vit_config.BackboneConfig):
    return flat
  pixio = form == 'huggingface' and config.pooling == 'cls_registers'
  if 'registers' not in flat or not (pixio or (
      form == 'timm' and timm_arguments.embeds_prefix(config))):
    return flat
  # The registers of timm and Pixio have position embeddings, too.
  cls, patches = np.split(
      np.asarray(flat['positions']), [config.num_class_tokens])
  return {**flat, 'positions': np.concatenate(
      [cls, np.zeros_like(flat['registers']), patches])}


def to_arrays(
    family: records.Family, params: Mapping[str, Any], **lengths: int,
) -> dict[str, np.ndarray]:
  """Converts parameters, by our names, to a family's arrays, by its names.

  `lengths` are those of axes in the layouts that shapes do not determine:
  `rows` of the grid of positions.

  Raises:
    ValueError: if the family has no such parameter.
  """
  flat = {name: np.asarray(array, np.float32)
          for name, array in params.items() if array.size}
  flat = joint.join_pairs(family, flat)
  arrays: dict[str, np.ndarray] = {}
  problems = []
  for name, array in flat.items():
    try:
      arrays |= layout.to_theirs(family.table, name, array, **lengths)
    except ValueError as error:
      # The projection of CLIP and the patches of C-RADIO have no bias.
      if np.any(array) or name not in ('head/dense/bias', 'patches/bias'):
        problems.append(str(error))
  if problems:
    raise ValueError('\n'.join(problems))
  if family.name == 'timm' and 'backbone/block1/unit1/conv1/kernel' not in flat:
    # timm names a root without stages differently.
    arrays = {n.replace('backbone.stem.', 'backbone.'): a
              for n, a in arrays.items()}
  arrays |= {
      name: np.zeros([length or flat['cls'].shape[-1] for length in shape],
                     np.float32)
      for name, shape in family.table.unused.items()}
  if 'head/dense/kernel' not in flat:
    arrays = {n.removeprefix(family.base): a for n, a in arrays.items()}
  for pattern, replacement in family.written_as.items():
    arrays = {re.sub(pattern, replacement, n): array
              for n, array in arrays.items()}
  return {family.prefix + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}


def _check_exportable(config: Any, form: str) -> None:
  """Raises if the format of another library cannot store a switch's value.

  Raises:
    ValueError: naming the switch and the values that the format can store.
  """
  known = {f.name: f for f in dataclasses.fields(config)}
  for name, value in fields.non_default(config).items():
    exported = known[name].metadata['exported']
    if isinstance(exported, Mapping):
      exported = exported.get(form, ())
    if exported != fields.ANY and value not in exported:
      allowed = (known[name].default, *exported)
      raise ValueError(
          f'The format {form} cannot store {name}={value!r}, only '
          f'{" or ".join(map(repr, allowed))}. Save the model as orbax.')
