"""Our models in the formats of other codebases, whole or not at all."""

from collections.abc import Mapping
import functools
import json
import os
from typing import Any, Literal

import numpy as np

from vit_jax import atomic_files
from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax.weights import convert
from vit_jax.weights import hints
from vit_jax.weights import layout
from vit_jax.weights import names as names_lib
from vit_jax.weights import npz
from vit_jax.weights import safetensors
from vit_jax.weights import sizes
from vit_jax.weights import unsaid
from vit_jax.weights.configs import preprocessing as preprocessing_lib
from vit_jax.weights.configs import sidecars

Format = Literal['npz', 'timm', 'huggingface']
FORMATS: tuple[Format, ...] = ('npz', 'timm', 'huggingface')

# What each format's own library computes, whatever parameters there are. A
# model that computes otherwise would give other logits there.
_PLAIN = {'axial': False, 'position_at': 'stem', 'parallel': False,
          'qk_norm': False, 'norm': 'layer'}
_FIXED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    'npz': {**{k: (v,) for k, v in _PLAIN.items()},
            'position': ('learned', 'none'), 'registers': (0,)},
    'timm': {**{k: (v,) for k, v in _PLAIN.items()},
             'position': ('learned', 'none')},
    'huggingface': {**{k: (v,) for k, v in _PLAIN.items()},
                    'position': ('learned',), 'position_cls': (True,),
                    'pooling': ('cls',), 'final_norm': (True,)}}


def write(
    target: str | os.PathLike,
    form: Format,
    config: models.ModelConfig,
    params: Any,
    *,
    resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
    positions: str,
) -> list[str]:
  """Writes a model for another library.

  What is there beside the arrays is kept in the header of a safetensors file,
  for `load`. An .npz has no such place.

  Args:
    target: of npz, a file; of timm, a .safetensors file or a folder with a
      config.json; of huggingface, a folder. It must not exist.
    form: what to write.
    config: of the model.
    params: nested dict of arrays.
    resolution: height and width that the positions are for.
    preprocess: what images go through.
    positions: how positions are resized: 'linear' or 'cubic'.

  Returns:
    Lines on what an .npz does not say, with what to give to `load` instead;
    or on what another format's own library does otherwise.

  Raises:
    FileExistsError: if there is something at `target`.
    ValueError: if the format has no place for a part of the model.
  """
  family = _family(form, config)
  plain = schema.to_plain(config)
  _check_sayable(form, plain)
  flat = {name: array for name, array in tree.flatten(params).items()
          if array.size}
  if form == 'timm' and sidecars.has_prefix_positions(plain):
    flat = _with_register_positions(flat)
  arrays = to_arrays(family, flat)
  if form == 'npz':
    with atomic_files.create(target) as path:
      npz.write(path, arrays)
      settings = unsaid.settings(
          functools.partial(convert.read, path), config=config,
          resolution=resolution, preprocess=preprocess, positions=positions)
    return _npz_notes(settings, resolution, preprocess)
  if form == 'huggingface' and config.num_classes == 0:
    arrays = {name.removeprefix('vit.'): a for name, a in arrays.items()}
  # It may be called what it started from: a B/16 of other layers.
  named = not plain['variant'] or sizes.is_of(plain)
  metadata = {hints.KEY: json.dumps({
      'model': plain if named else {**plain, 'variant': ''},
      'preprocess': schema.to_plain(preprocess),
      'resolution': list(resolution), 'positions': positions})}
  alone = form == 'timm' and os.fspath(target).endswith('.safetensors')
  beside = {} if alone else _beside(form, plain, resolution, preprocess)
  with atomic_files.create(target) as path:
    if alone:
      safetensors.write(path, arrays, metadata=metadata)
    else:
      path.mkdir()
      safetensors.write(
          path / 'model.safetensors', arrays, metadata=metadata)
      for name, content in beside.items():
        (path / name).write_text(json.dumps(content, indent=2) + '\n')
  return (_computed_notes(form, family, plain, alone=alone)
          + _preprocess_notes(form, beside, preprocess))


def _check_sayable(form: Format, plain: Mapping[str, Any]) -> None:
  for name, allowed in _FIXED[form].items():
    if name in plain and plain[name] not in allowed:
      raise ValueError(
          f'The format {form} has no way to say {name}={plain[name]!r}: its '
          f'models have {" or ".join(map(repr, allowed))}.')
  if (form == 'huggingface' and plain['num_classes']
      and plain['representation_layer']):
    raise ValueError(
        'The classifier of Hugging Face has no layer before its head, so '
        'representation_layer=True cannot be written with one. Write npz.')


def to_arrays(
    family: names_lib.Family, params: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Returns parameters by our names as a family's arrays, by theirs.

  Raises:
    ValueError: if the family has no place for one.
  """
  flat = {name: np.asarray(array, np.float32)
          for name, array in params.items() if array.size}
  if family.name == 'timm':
    flat = names_lib.join_pairs(flat, np.stack)
  arrays: dict[str, np.ndarray] = {}
  problems = []
  for name, array in flat.items():
    try:
      arrays |= layout.to_theirs(family.table, name, array)
    except ValueError as error:
      problems.append(str(error))
  if problems:
    raise ValueError('\n'.join(problems))
  if family.name == 'timm' and 'backbone/block1/unit1/conv1/kernel' not in flat:
    # The root alone is called otherwise than the root of a network.
    arrays = {n.replace('backbone.stem.', 'backbone.'): a
              for n, a in arrays.items()}
  return {family.prefixes[0] + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}


def _family(form: str, config: models.ModelConfig) -> names_lib.Family:
  name = {('npz', 'resnet'): 'bit', ('timm', 'resnet'): 'timm_bit'}.get(
      (form, config.name), form)
  if (form, config.name) == ('huggingface', 'resnet') or (
      form == 'huggingface' and config.backbone is not None):
    raise ValueError(
        'The Hugging Face ViT has no convolutional network, so this model '
        'cannot be one. Use --format=timm or --format=npz.')
  return names_lib.FAMILIES[name]


def _beside(
    form: str, plain: Mapping[str, Any], resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
) -> dict[str, dict[str, Any]]:
  """Returns the files beside the weights."""
  if form == 'timm':
    return {'config.json': sidecars.timm(plain, resolution, preprocess)}
  return {'config.json': sidecars.huggingface(plain, resolution, preprocess),
          'preprocessor_config.json': preprocessing_lib.to_huggingface(preprocess)}


def _npz_notes(
    settings: Mapping[str, tuple[Any, Any]], resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
) -> list[str]:
  notes = [
      f'npz does not say {unsaid.as_text(name, value)}'
      + (' and cannot be read without it' if found is None else
         f' and reads back as {unsaid.as_text(name, found)}')
      + f': load it with {unsaid.as_text(name, value)}'
      for name, (value, found) in settings.items()]
  if preprocess.resolution != resolution:
    notes.append(
        f'npz does not say that images are made {preprocess.resolution}, and '
        f'positions are for {resolution}; `load` takes one resolution')
  return notes


def _computed_notes(
    form: str, family: names_lib.Family, plain: Mapping[str, Any], *,
    alone: bool,
) -> list[str]:
  """Returns what the format's own library would compute otherwise."""
  settings = {name: value for name, value in family.settings.items()
              if name != 'name'}
  if form == 'huggingface':
    settings = {}  # All of them are in config.json.
  if form == 'timm' and not alone:
    settings.pop('gelu', None)  # This one is.
  differing = [(name, value, plain[name]) for name, value in settings.items()
               if plain.get(name) != value]
  backbone = plain.get('backbone')
  if backbone:
    differing += [
        (f'backbone.{name}', value, backbone[name])
        for name, value in family.backbone.items() if backbone[name] != value]
  return [f'{form} computes with {name}={theirs!r}, this model with {ours!r}, '
          'as the file says to vit_jax alone'
          for name, theirs, ours in differing]


def _preprocess_notes(
    form: str, beside: Mapping[str, dict[str, Any]],
    preprocess: preprocessing_lib.Preprocess,
) -> list[str]:
  """Returns what the format's own library would do to images otherwise."""
  if not beside:
    return []
  if form == 'timm':
    read = preprocessing_lib.from_timm(beside['config.json'])
  else:
    read = preprocessing_lib.from_huggingface(
        beside['preprocessor_config.json'])
    # These are in config.json.
    read |= {'labels': preprocess.labels, 'activation': preprocess.activation}
  found = preprocessing_lib.parse({'resolution': preprocess.resolution, **read})
  return [
      f'{form} has no place for {unsaid.as_text(name, ours)} of the '
      f'preprocessing, and has {unsaid.as_text(name, theirs)}; the file says '
      'it to vit_jax alone'
      for name in preprocessing_lib.NAMES
      for ours, theirs in [(getattr(preprocess, name), getattr(found, name))]
      if not _alike(ours, theirs)]


def _alike(one: Any, two: Any) -> bool:
  """Whether values are the same; a crop is written as whole pixels."""
  if isinstance(one, float) and isinstance(two, float):
    return abs(one - two) < 0.005
  return one == two


def _with_register_positions(params: Mapping[str, Any]) -> dict[str, Any]:
  """Gives registers positions of zero, where timm wants some."""
  if 'registers' not in params:
    return dict(params)
  cls, patches = np.split(np.asarray(params['positions']), [1])
  return {**params, 'positions': np.concatenate(
      [cls, np.zeros_like(params['registers']), patches])}
