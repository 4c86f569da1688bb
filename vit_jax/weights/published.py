"""Reads and writes the published .npz files: ViTs, hybrids and ResNets.

    file ─▶ names ─▶ model config ─▶ compared with the model's parameters

Our metadata beside the file declare the model, if `convert` wrote it; if not,
names and shapes of the arrays determine it. Files that hold anything else are
those of the zoo.
"""

from collections.abc import Callable, Mapping
import dataclasses
import json
import math
import os
import pathlib
import re
from typing import Any

import numpy as np

from vit_jax import atomic_files
from vit_jax import exceptions
from vit_jax import tree
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
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
# The first kernel of a model, after its prefix.
_STEM = re.compile(r'((?:.*/)?)(embedding|conv_root|root_block/[^/]+)/kernel')


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

  def convert(
      self, convert: Callable[..., np.ndarray], get: Callable[[str], Any],
  ) -> dict[str, np.ndarray]:
    """Returns the parameters by our names, from `get(name)` of arrays."""
    return {match.ours: convert([get(self.prefix + name)
                                 for name in match.theirs], match)
            for match in self.matches}


def read(
    opened: array_file.ArrayFile, overrides: Mapping[str, Any],
) -> weights_lib.Weights:
  """Opens a published file, or one that `write` wrote.

  Args:
    opened: the file.
    overrides: as in `open.open`.

  Raises:
    UserError: if it does not contain exactly the parameters of a plain ViT, a
      hybrid or a ResNet.
  """
  given = overrides_lib.parse(overrides)
  found = _find(opened, given.prefix)
  params = found.convert(layout.our_zeros, opened.shapes.__getitem__)
  declared = declared_lib.read_metadata(opened)
  if declared is None:
    return _build(found, params, _inferred(found, params, given), given)
  with exceptions.within(f'{declared.source} does not describe the weights'):
    return _build(found, params, dataclasses.replace(
        declared, config=given.change(declared.config)), given)


def _find(opened: array_file.ArrayFile, prefix: str | None) -> _Found:
  names = list(opened.shapes)
  prefixes = {match[1]: None for match in map(_STEM.fullmatch, names) if match}
  if len(prefixes) != 1 or prefix not in (None, *prefixes):
    raise UserError(
        f'Expected one published ViT or ResNet in {opened.path}, found '
        f'{len(prefixes)}, under the prefixes {[*prefixes]}. The first arrays: '
        f'{", ".join(names[:8])}.')
  prefix, = prefixes
  inside = [name.removeprefix(prefix) for name in names
            if name.startswith(prefix)]
  family, matches, problems = min(
      ((family, *layout.matches(family.table, inside))
       for family in published_names.FAMILIES), key=lambda found: len(found[2]))
  if problems:
    raise UserError(f'{opened.path} looks like a {family.label}, but:\n'
                    + array_file.indented(problems))
  return _Found(opened, family, prefix, tuple(matches))


def _build(
    found: _Found, params: Mapping[str, np.ndarray],
    declared: declared_lib.Declared, given: overrides_lib.Overrides,
) -> weights_lib.Weights:
  """Compares the model with the headers."""
  opened, config = found.opened, declared.config
  if type(config) not in _RECORDS:
    raise UserError(
        f'The settings are those of model.name={config.name!r}, which the '
        'published files do not hold.')
  shapes = check.add_empty_head(config, params)
  preprocess = preprocessing.override(declared.preprocess, given.preprocess)
  check.check_params(
      config, shapes, declared.resolution, path=opened.path,
      channels=preprocess.channels,
      theirs={match.ours: match.theirs[0] for match in found.matches})
  check.check_preprocess(config, preprocess)
  origin = f'declared by {declared.source}' if declared.source else 'assumed'
  heads = {} if declared.source else {'num_heads': 'inferred from the arrays'}
  used = {found.prefix + name for match in found.matches
          for name in match.theirs}
  left_out = [name for name in opened.shapes if name not in used]
  return weights_lib.Weights(
      config=config,
      read=lambda: tree.unflatten(check.add_empty_head(
          config, found.convert(layout.to_ours, opened.read))),
      shapes=tree.unflatten(shapes), resolution=declared.resolution,
      preprocess=preprocess, positions=declared.positions,
      address=opened.path, kind=found.family.name,
      description=f'{paths.display(opened.path)}: {found.family.label} (npz'
      + f', under {found.prefix}' * bool(found.prefix) + ')',
      settings={**dict.fromkeys(weights_lib.REPORTED, origin), **heads,
                **given.settings},
      notes=(*declared.notes, *given.notes, *inferred.ignored(left_out)))


# --------------------------------------------------- files without our metadata


def _inferred(
    found: _Found, params: Mapping[str, np.ndarray],
    given: overrides_lib.Overrides) -> declared_lib.Declared:
  """Returns the settings of a file without our metadata."""
  config = _config(found.family, params, given.model)
  resolution = _resolution(config, params, given.preprocess.get('resolution'))
  file = pathlib.Path(declared_lib.json_path(found.opened.path))
  return declared_lib.Declared(
      config, preprocessing.parse({'resolution': resolution}), resolution,
      notes=((f'{file.name} beside it is not that of vit_jax' if file.exists()
              else f'no {file.name} beside it, which vit_jax writes')
             + ': settings that are assumed may be wrong',))


def _config(
    family: published_names.Family, params: Mapping[str, np.ndarray],
    given: Mapping[str, Any]) -> model_config.ModelConfig:
  """Returns the model config of the arrays, with the settings of the caller."""
  section = {**family.settings, 'num_classes': inferred.num_classes(params)}
  if family.settings.get('name') != 'resnet':
    has_cls = 'cls' in params
    pooling = given.get('pooling') or (
        'attention' if 'pooling/probe' in params
        else 'cls' if has_cls else 'average')
    section |= {
        **inferred.encoder(params, family.table),
        'num_heads': inferred.heads(params), 'pooling': pooling,
        'cls': None if has_cls == pooling.startswith('cls') else has_cls}
  stem = inferred.stem(params, family.backbone, given)
  if stem:
    section = {'name': 'hybrid', **section}
  section |= {**given, **stem}
  config = factory.parse({**section, 'variant': ''})
  variant = inferred.variant(config)
  if given.get('variant', variant) != variant:
    raise UserError(f'variant is {given["variant"]!r}, but the dimensions of '
                    f'the arrays are those of {variant or "no variant"}.')
  return dataclasses.replace(config, variant=variant)


def _resolution(
    config: Any, params: Mapping[str, np.ndarray],
    requested: tuple[int, int] | None) -> tuple[int, int]:
  """Returns the image size of the position embeddings.

  Raises:
    UserError: if their grid is neither square nor that of `requested`.
  """
  if not config.has_tokens or 'positions' not in params:
    return requested or inferred.DEFAULT_SIZE
  count = len(params['positions']) - config.num_prefix
  side = math.isqrt(max(count, 0))
  if side**2 == count:
    return config.image_size((side, side))
  if requested and math.prod(config.grid(requested)) == count:
    return requested
  raise UserError(
      f'The grid of {count} position embeddings is not square. Set the image '
      'size that they are for: resolution=(height, width).')


# -------------------------------------------------------------------- writing


def write(
    target: str | os.PathLike, model: weights_lib.Weights, *, dtype: str,
) -> list[str]:
  """Writes a model and its metadata; see `save.save`."""
  config: Any = model.config
  if type(config) not in _RECORDS:
    raise UserError(
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
    UserError: if the files hold no such parameter.
  """
  arrays: dict[str, np.ndarray] = {}
  for name, array in params.items():
    if array.size:
      arrays |= layout.to_theirs(
          family.table, name, np.asarray(array, np.float32))
  return {family.prefix + name: np.ascontiguousarray(array)
          for name, array in sorted(arrays.items())}
