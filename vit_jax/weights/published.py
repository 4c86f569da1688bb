"""Reads and writes the published .npz files: ViTs, hybrids and ResNets.

    file ─▶ names ─▶ model config ─▶ compared with the model's parameters

Names and shapes of the arrays determine the model; our metadata beside the file
declares the rest, if `convert` wrote it. Models with settings that these do not
have are those of the zoo.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax import tree
from vit_jax import untrusted
from vit_jax.checkpoints import paths
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.models import resnet
from vit_jax.models import vit
from vit_jax.weights import check
from vit_jax.weights import declared as declared_lib
from vit_jax.weights import inferred
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import layout
from vit_jax.weights.formats import npz
from vit_jax.weights.formats import published_names

_RECORDS = (vit.ViTConfig, resnet.HybridConfig, resnet.ResNetConfig)
FAMILIES = {family.name: family for family in published_names.FAMILIES}


# -------------------------------------------------------------------- reading


@dataclasses.dataclass(frozen=True)
class _Found:
  """The model in a file.

  Attributes:
    prefix: prefix of every parameter name.
    matches: parameters, and the arrays of each.
  """
  opened: array_file.ArrayFile
  family: published_names.Family
  prefix: str
  matches: tuple[layout.Match, ...]

  @property
  def left_out(self) -> tuple[str, ...]:
    """Names of arrays that are not parameters of the model."""
    used = {self.prefix + name for match in self.matches
            for name in match.theirs}
    return tuple(name for name in self.opened.shapes if name not in used)

  def convert(
      self, convert: Callable[..., np.ndarray], get: Callable[[str], Any],
  ) -> dict[str, np.ndarray]:
    """Returns the parameters by our names, from `get(name)` of arrays.

    Raises:
      ValueError: if shapes do not fit the name table.
    """
    params, problems = {}, []
    for match in self.matches:
      try:
        params[match.ours] = convert(
            [get(self.prefix + name) for name in match.theirs], match)
      except ValueError as error:
        problems.append(str(error))
    if problems:
      raise ValueError(f'{self.opened.path} has arrays of unexpected shapes:\n'
                       + array_file.indented(problems))
    return params


def read(
    opened: array_file.ArrayFile, overrides: Mapping[str, Any],
) -> weights_lib.Weights:
  """Opens a published file, or one that `write` wrote.

  Args:
    opened: the file.
    overrides: as in `open.open`.

  Raises:
    ValueError: if it does not contain exactly the parameters of a plain ViT, a
      hybrid or a ResNet.
  """
  given = overrides_lib.parse(overrides)
  found = _find(opened, given.prefix)
  declared = declared_lib.read_metadata(opened)
  if declared is None:
    declared = declared_lib.Declared()
    others = pathlib.Path(opened.path).with_name('config.json')
    if untrusted.exists(others):
      raise ValueError(f'{others} is not that of a published .npz file.')
  try:
    return _build(found, declared, given)
  except ValueError as error:
    if not declared.source:
      raise
    raise ValueError(f'{declared.source} does not describe the weights: '
                     f'{error}') from error


def _find(opened: array_file.ArrayFile, prefix: str | None) -> _Found:
  names = list(opened.shapes)
  prefixes = [found for found in dict.fromkeys(
      found for family in published_names.FAMILIES
      for found in inferred.prefixes(family.table, names))
              if found.startswith(prefix or '')]
  if not prefixes:
    raise ValueError(
        f'The {len(names)} arrays of {opened.path} are not those of a published'
        f' ViT or ResNet{f" under {prefix!r}" if prefix else ""}. The first '
        f'arrays: {", ".join(names[:8])}.')
  if len(prefixes) > 1 and prefix not in prefixes:
    raise inferred.several_models(
        opened.path, dict.fromkeys(prefixes, 'ViT or ResNet'))
  chosen = prefix if prefix in prefixes else prefixes[0]
  inside = inferred.names_under(chosen, names, prefixes)
  family = max(published_names.FAMILIES, key=functools.partial(
      _num_known, inside))
  matches, problems = layout.matches(family.table, inside)
  if problems:
    raise ValueError(f'{opened.path} looks like a {family.label}, but:\n'
                     + array_file.indented(problems))
  return _Found(opened, family, chosen, tuple(matches))


def _num_known(names: Iterable[str], family: published_names.Family) -> int:
  return sum(bool(layout.find_row(family.table, name)
                  or family.table.reason(name)) for name in names)


def _build(
    found: _Found, declared: declared_lib.Declared,
    given: overrides_lib.Overrides,
) -> weights_lib.Weights:
  """Compares the model with the headers."""
  opened = found.opened
  shapes = found.convert(layout.our_zeros, opened.shapes.__getitem__)
  config = _config(found.family, shapes, declared, given)
  resolution = _resolution(config, shapes, declared, given)
  abstract = check.add_empty_head(config, shapes)
  check.check_params(
      config, abstract, resolution, path=opened.path,
      theirs={match.ours: match.theirs[0] for match in found.matches})
  preprocess = inferred.preprocess(config, resolution, declared, given)
  under = f', under {found.prefix}' if found.prefix else ''
  return weights_lib.Weights(
      config=config,
      read=lambda: tree.unflatten(check.add_empty_head(
          config, found.convert(layout.to_ours, opened.read))),
      shapes=tree.unflatten(abstract), resolution=resolution,
      preprocess=preprocess, positions=declared.positions or 'linear',
      address=opened.path, kind=found.family.name,
      description=f'{paths.display(opened.path)}: {found.family.label} '
      f'({opened.format}{under})',
      settings=declared.settings({**given.model, **given.preprocess}),
      notes=tuple(inferred.notes(
          opened, declared=declared, given=given, size=preprocess.resolution,
          left_out=found.left_out)),
      report=tuple(inferred.report(
          opened, matches=found.matches, params=abstract,
          left_out=found.left_out)))


def _config(
    family: published_names.Family, params: Mapping[str, np.ndarray],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> model_config.ModelConfig:
  """Returns the model config; adds the origin of its heads to `declared`."""
  known = inferred.known_settings(declared, given)
  name = family.settings.get('name', 'vit')
  inferred.check_kind(known, name)
  section = {**family.settings, 'num_classes': inferred.num_classes(params)}
  if name == 'vit':
    has_cls = 'cls' in params
    pooling = known.get('pooling') or (
        'attention' if 'pooling/probe' in params
        else 'cls' if has_cls else 'average')
    section |= {
        **inferred.encoder(params, family.table),
        'num_heads': inferred.heads(params), 'pooling': pooling,
        'cls': None if has_cls == pooling.startswith('cls') else has_cls}
    if 'num_heads' not in known:
      declared.origins['num_heads'] = 'inferred from the arrays'
  section |= {**known, 'name': name}  # `factory.parse` finds another.
  section |= inferred.stem(params, family.backbone, known)
  variant = section.pop('variant', None)
  config = factory.parse(section)
  if type(config) not in _RECORDS:
    raise ValueError(
        f'The settings are those of model.name={config.name!r}, which the '
        'published files do not hold.')
  return inferred.with_variant(config, variant)


def _resolution(
    config: Any, params: Mapping[str, np.ndarray],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> tuple[int, int]:
  """Returns the image size of the position embeddings."""
  requested = given.preprocess.get('resolution')
  stored = declared.preprocess.get('resolution')
  if not config.has_tokens or config.position != 'learned' or (
      'positions' not in params):
    return requested or declared.resolution or stored or inferred.DEFAULT_SIZE
  grid, prefix = inferred.position_grid(
      config, len(params['positions']), num_prefix=config.num_prefix,
      embeds_prefix=declared.embeds_prefix, declared=declared.resolution,
      stored=stored, requested=requested)
  if prefix != config.num_prefix:
    raise ValueError('The class token has no position embedding.')
  return config.image_size(grid)


# -------------------------------------------------------------------- writing


def write(
    target: str | os.PathLike, model: weights_lib.Weights, *, dtype: str,
) -> list[str]:
  """Writes a model and its metadata; see `save.save`."""
  config: Any = model.config
  if type(config) not in _RECORDS:
    raise ValueError(
        'The format npz is for plain ViTs, hybrids and ResNets, but the model '
        f'is of {config.name!r}. Save it as orbax.')
  family = FAMILIES['npz' if config.has_tokens else
                     'bit' if config.backbone.preactivation else 'resnet']
  arrays = to_arrays(family, tree.flatten(model.read()))
  path = os.fspath(target)
  with (atomic_files.create(path) as file,
        atomic_files.create(declared_lib.json_path(path)) as json_file):
    npz.write(file, {
        name: array.astype(dtype) for name, array in arrays.items()})
    json_file.write_text(json.dumps({
        **declared_lib.metadata(model),
        npz.CHECKSUM: npz.open_file(file).metadata[npz.CHECKSUM],
    }, indent=2) + '\n')
  theirs = {**family.settings, **family.backbone}
  own = {**vars(config), **vars(getattr(config, 'backbone', config))}
  return [f'the published code computes with {name}={value!r}, this model with '
          f'{own[name]!r}, which only vit_jax reads, from the .json file'
          for name, value in theirs.items() if own[name] != value]


def to_arrays(
    family: published_names.Family, params: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Returns the arrays of a file, by its names, of parameters by our names.

  Raises:
    ValueError: if the files hold no such parameter.
  """
  arrays: dict[str, np.ndarray] = {}
  for name, array in params.items():
    if array.size:
      arrays |= layout.to_theirs(
          family.table, name, np.asarray(array, np.float32))
  return {family.prefix + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}
