"""Loads weights of other codebases into our models, strictly.

    file ─▶ family ─▶ arrays ─▶ model config ─▶ compared with the model's tree

The content of a file determines its format and family, never its name. The
model config is inferred from names and shapes; settings that these do not
determine come from our own metadata, config.json or the table of published
sizes; the caller's overrides take precedence. That model is then built
abstractly: its parameters must be exactly the parameters of the file.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from vit_jax import tree
from vit_jax.checkpoints import paths
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo import declared as declared_lib
from vit_jax.extras.zoo import open_file
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo.arrays import infer_architecture
from vit_jax.extras.zoo.arrays import matching
from vit_jax.extras.zoo.arrays import position_grid
from vit_jax.extras.zoo.configs import config_json
from vit_jax.extras.zoo.families import records
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.weights import check
from vit_jax.weights import declared as trunk_declared
from vit_jax.weights import inferred
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib

check_complete = open_file.check_complete


def load(
    path: str | os.PathLike, overrides: Mapping[str, Any] | None = None, *,
    metadata: bool = True,
) -> weights_lib.Weights:
  """Opens the weights of another codebase; `read` reads their values.

  Args:
    path: a file, or a folder with a file and its config.json.
    overrides: keys of the section `model` and of `Preprocess`, which override
      declared and inferred values; and `prefix`, the prefix of parameter names,
      for a file with several copies of a model.
    metadata: whether metadata that vit_jax wrote replace config.json.

  Raises:
    UserError: if the file is damaged or of an unknown family, or does not
      contain exactly the parameters of the model.
  """
  path = open_file.local(path)
  given = overrides_lib.parse(overrides or {})
  opened = open_file.open_weights(path)
  removed.check_arrays(opened.shapes, path=opened.path)
  file = pathlib.Path(opened.path).with_name('config.json')
  try:
    found = matching.find(opened, prefix=given.prefix)
  except UserError:
    if file.exists():  # It may name the component that the model lacks.
      config_json.read(file)
    raise
  ours = trunk_declared.read_metadata(opened) if metadata else None
  declared, advice = declared_lib.Declared(), ''
  if ours:
    declared = declared_lib.of_metadata(ours)
  elif file.exists():
    declared = config_json.read(file)
    advice = f'\n{config_json.ADVICE}'
  try:
    return _build(found, declared, given)
  except UserError as error:
    if not declared.source:
      raise
    raise UserError(f'{declared.source} does not describe the weights: '
                    f'{error}{advice}') from error


def _build(
    found: matching.Found, declared: declared_lib.Declared,
    given: overrides_lib.Overrides,
) -> weights_lib.Weights:
  """Compares the model with the headers.

  Raises:
    UserError: if the file does not contain exactly the model's parameters.
  """
  if declared.families and found.family.name not in declared.families:
    raise UserError(
        f'it is for {" or ".join(declared.families)}, but the arrays are those '
        f'of a {found.family.label}.')
  config: Any = _config(found, matching.shapes(found, heads=1), declared, given)
  heads = {'heads': getattr(config, 'num_heads', 1),
           'pool_heads': getattr(config, 'pool_heads', 0)}
  shapes = matching.shapes(found, **heads)
  config, resolution, prefix = _positions(
      found, config, shapes, declared, given)

  embeds_registers = prefix > getattr(config, 'num_class_tokens', 0)

  def adapt(params: Mapping[str, Any]) -> dict[str, Any]:
    if embeds_registers:
      params = matching.fold_register_positions(params, prefix)
    return check.add_empty_head(config, params)

  opened = found.opened
  config = vit_config.simplest(config)
  abstract = adapt(shapes)
  check.check_params(
      config, abstract, resolution, path=opened.path,
      channels=given.preprocess.get('channels', 3),
      theirs={match.ours: match.theirs[0] for match in found.matches})
  if (records.SATELLITE_NAME in opened.path.lower()
      and getattr(config, 'rotary', None) is not None):
    declared.add_defaults(
        records.SATELLITE, f'assumed, as its name has {records.SATELLITE_NAME}')
  origin = f'assumed, as for a {found.family.label}'
  declared.add_defaults(found.family.preprocess, origin)
  preprocess = declared_lib.preprocess(config, resolution, declared, given)
  under = f', under {found.prefix}' if found.prefix else ''
  return weights_lib.Weights(
      config=config,
      read=lambda: tree.unflatten(adapt(matching.read(found, **heads))),
      shapes=tree.unflatten(abstract), resolution=resolution,
      preprocess=preprocess,
      positions=declared.positions or found.positions,
      address=opened.path, kind=found.family.name,
      description=f'{paths.display(opened.path)}: {found.family.label} '
      f'({opened.format}{under})',
      settings={**declared.settings(), **given.settings},
      notes=tuple(declared_lib.notes(
          opened, declared=declared, given=given, size=preprocess.resolution,
          left_out=found.left_out, more=_notes(found, declared))))


def _notes(
    found: matching.Found, declared: declared_lib.Declared) -> Iterator[str]:
  if found.family.undeclared and not declared.source:
    yield found.family.undeclared


def _positions(
    found: matching.Found, config: model_config.ModelConfig,
    shapes: Mapping[str, np.ndarray], declared: declared_lib.Declared,
    given: overrides_lib.Overrides,
) -> tuple[model_config.ModelConfig, tuple[int, int], int]:
  """Returns the config, the image size and the prefix of position embeddings.

  The prefix is the number of embeddings before the patches' embeddings.
  """
  requested = given.preprocess.get('resolution')
  stored = declared.preprocess.get('resolution')
  resolutions: dict[str, Any] = {
      'declared': declared.resolution, 'stored': stored, 'requested': requested}
  if isinstance(config, vit_config.BackboneConfig) and (
      config.position == 'relative_2d'):
    count = max((array.shape[-2] for name, array in shapes.items()
                 if name.endswith('relative/offsets')), default=0)
    grid, _ = position_grid.position_grid(
        config, count, offsets=True, num_prefix=config.num_prefix_offsets,
        embeds_prefix=bool(config.num_prefix), **resolutions)
    return config, config.image_size(grid), 0
  if not isinstance(config, vit_config.BackboneConfig) or (
      config.position not in ('learned', 'factorized')
      or not {'positions', 'positions_rows'} & set(shapes)):
    return config, (
        requested or (declared.resolution if declared.ours else stored)
        or declared.resolution or inferred.DEFAULT_SIZE), 0
  if config.position == 'factorized' or found.position_grid:
    grid = found.position_grid or (
        len(shapes['positions_rows']), len(shapes['positions_columns']))
    return (dataclasses.replace(config, position_cls=not config.has_cls),
            config.image_size(grid), 0)
  embeds_prefix = declared.embeds_prefix
  if config.has_cls and 'position_cls' in given.model:
    embeds_prefix = given.model['position_cls']
  grid, prefix = position_grid.position_grid(
      config, len(shapes['positions']), **resolutions,
      embeds_prefix=embeds_prefix,
      num_prefix=(config.num_prefix if found.family.embeds_registers else
                  config.num_class_tokens))
  resolution = config.image_size(grid)
  if config.has_cls:
    config = dataclasses.replace(config, position_cls=bool(prefix))
  return config, resolution, prefix


def _config(
    found: matching.Found, params: Mapping[str, np.ndarray],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> model_config.ModelConfig:
  """Returns the model config; adds the origin of its heads to `declared`."""
  known = declared_lib.known_settings(declared, given)
  section = infer_architecture.section(
      params, found.family, declared=known, heads_in_shapes=found.has_head_axis)
  if 'width' in section and not section.get('num_heads'):
    section['num_heads'], source = infer_architecture.num_heads(
        section, family=found.family, path=found.opened.path)
    declared.origins['num_heads'] = (
        f'assumed, {source} (if wrong, all outputs are wrong)')
  elif 'width' in section and 'num_heads' not in known:
    declared.origins['num_heads'] = 'inferred from the arrays'
  variant = section.pop('variant', None)
  return declared_lib.with_variant(
      vit_config.general(factory.parse(section)), variant)
