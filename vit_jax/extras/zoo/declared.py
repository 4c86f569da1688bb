"""Settings that a file of another codebase declares, or our metadata."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.models import model_config
from vit_jax.models import positions as positions_lib
from vit_jax.models import resnet
from vit_jax.models import variants
from vit_jax.models import vit
from vit_jax.weights import check
from vit_jax.weights import declared as trunk
from vit_jax.weights import inferred
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file


@dataclasses.dataclass
class Declared:
  """Declared settings; `foreign` compares them with the arrays.

  Attributes:
    source: file that declares them.
    families: names of the weight families it can describe; () for any.
    ours: whether vit_jax wrote it, so that it is complete.
    model: keys of the section `model`.
    preprocess: arguments of `resize_and_crop.parse`.
    resolution: image height and width of the position embeddings.
    positions: interpolation of position embeddings.
    embeds_prefix: whether class token and registers have position embeddings.
    origins: origins of the keys of `model` and `preprocess` that `source`
      itself does not declare.
    notes: lines for the load summary.
  """
  source: str = ''
  families: tuple[str, ...] = ()
  ours: bool = False
  model: dict[str, Any] = dataclasses.field(default_factory=dict)
  preprocess: dict[str, Any] = dataclasses.field(default_factory=dict)
  resolution: tuple[int, int] | None = None
  positions: positions_lib.Interpolation | None = None
  embeds_prefix: bool | None = None
  origins: dict[str, str] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()

  def add_defaults(self, preprocess: Mapping[str, Any], origin: str) -> None:
    """Adds keys of `Preprocess` that are not declared."""
    for name in preprocess.keys() - self.preprocess.keys():
      self.preprocess[name] = preprocess[name]
      self.origins[name] = origin

  def replace(self, preprocess: Mapping[str, Any], origin: str) -> None:
    """Sets keys of `Preprocess`; operations replace a resize and a crop."""
    if 'ops' in preprocess:
      for term in ('keep_aspect', 'crop'):
        self.preprocess.pop(term, None)
    self.preprocess |= preprocess
    self.origins |= dict.fromkeys(preprocess, origin)

  def settings(self) -> dict[str, str]:
    """Returns the origins of the settings that every load reports."""
    # The terms of timm describe the operations, too.
    of_ops = [name for name in ('ops', *resize_and_crop.NAMES)
              if name in self.preprocess] or ['ops']
    return {name: ' and '.join(dict.fromkeys(map(
        self._origin, of_ops if name == 'ops' else [name])))
            for name in weights_lib.REPORTED}

  def _origin(self, key: str) -> str:
    declared = key in self.preprocess or key in self.model
    return self.origins.get(key) or (
        f'declared by {self.source}' if declared else 'assumed')


def of_metadata(found: trunk.Declared) -> Declared:
  """Returns settings in the metadata that vit_jax wrote."""
  config: Any = found.config
  return Declared(
      source=found.source, ours=True, model=schema.to_plain(config),
      preprocess=dict(vars(found.preprocess)), resolution=found.resolution,
      positions=found.positions, notes=found.notes,
      embeds_prefix=(config.has_cls and getattr(config, 'position_cls', True)
                     if config.has_tokens else None))


def known_settings(
    declared: Declared, given: overrides_lib.Overrides,
) -> dict[str, Any]:
  """Returns the declared settings of the model, and those of the caller.

  Adds the origin of the heads to `declared`.

  Raises:
    UserError: if the caller's variant has other heads than declared.
  """
  known = dict(declared.model)
  if 'pooling' in given.model:
    known.pop('cls', None)
  if 'variant' in given.model:
    if 'num_heads' not in given.model:
      check.check_num_heads(given.model['variant'], known.get('num_heads', 0))
    known |= dimensions(given.model['variant'])
    known['name'] = variants.section(given.model['variant'])['name']
    declared.origins['num_heads'] = weights_lib.GIVEN
  return known | dict(given.model)


def dimensions(name: str) -> dict[str, Any]:
  """Returns the keys of the section `model` that a variant determines."""
  section = variants.section(name)
  stem = section.get('backbone')
  keys = vit.ViTConfig.dimensions if 'width' in section else ('name',)
  return {**{key: section[key] for key in keys}, 'backbone': stem and {
      'depths': tuple(stem['depths']),
      'width': stem.get('width', resnet.StemConfig.width)}}


def has_dimensions(config: model_config.ModelConfig, name: str) -> bool:
  """Whether a model has the dimensions of a variant."""
  return _dimensions(config) == dimensions(name)


def _dimensions(config: model_config.ModelConfig) -> dict[str, Any]:
  stem = getattr(config, 'backbone', None)
  keys = vit.ViTConfig.dimensions if config.has_tokens else ('name',)
  return {**{key: getattr(config, key) for key in keys}, 'backbone': stem and {
      'depths': stem.depths, 'width': stem.width}}


def with_variant(
    config: model_config.ModelConfig, variant: str | None,
) -> model_config.ModelConfig:
  """Returns the config with the variant of its dimensions; None to find it."""
  if variant is None:
    variant = inferred.variant(vit_config.simplest(config))
  elif variant and not has_dimensions(config, variant):
    variant = ''
  return dataclasses.replace(config, variant=variant)


def preprocess(
    config: model_config.ModelConfig, resolution: tuple[int, int],
    declared: Declared, given: overrides_lib.Overrides,
) -> preprocessing.Preprocess:
  """Returns the declared preprocessing with the caller's changes.

  Adds notes about class names and an activation that are not as declared.
  """
  result = resize_and_crop.parse(
      {'resolution': resolution, **declared.preprocess})
  if not declared.ours:
    result = result.resized(resolution)
    if len(result.labels) != config.num_classes:
      if result.labels and config.num_classes:
        declared.notes += (
            f'{len(result.labels)} class names of {declared.source} are '
            f'ignored: the head has {config.num_classes} classes',)
      result = dataclasses.replace(result, labels=())
    if config.num_classes == 1 and 'activation' not in declared.preprocess:
      result = dataclasses.replace(result, activation='sigmoid')
      declared.notes += (
          'activation sigmoid is assumed, as for any model with one class',)
  result = preprocessing.override(result, given.preprocess)
  check.check_preprocess(config, result)
  return result


def notes(
    opened: array_file.ArrayFile, *, declared: Declared,
    given: overrides_lib.Overrides, size: tuple[int, int],
    left_out: Sequence[str], more: Iterable[str] = (),
) -> Iterator[str]:
  """Yields lines about sizes, overrides and arrays that are not read.

  Args:
    opened: the file.
    declared: what it declares.
    given: what the caller sets.
    size: size of images.
    left_out: names of arrays that are not read.
    more: further lines.
  """
  yield from declared.notes
  stored = declared.preprocess.get('resolution')
  if stored not in (None, size) and 'resolution' not in given.preprocess:
    yield (f'the declared image size is {stored}, but images are resized to '
           f'{size}, the size of the position embeddings; for the declared '
           f'size, set resolution={stored}')
  if opened.format == 'npz' and not declared.source:
    # Our own .npz files cannot be distinguished from published ones.
    file = pathlib.Path(trunk.json_path(opened.path))
    yield (f'{file.name} beside it is not that of vit_jax' if file.exists() else
           f'no {file.name} beside it, which vit_jax writes'
           ) + ': settings that are assumed may be wrong'
  yield from more
  yield from given.notes
  yield from inferred.ignored(left_out)


def sides(value: Any) -> tuple[int, int]:
  """Returns an image size, one number or [height, width], as a pair."""
  height, width = (value, value) if isinstance(value, int) else value
  return int(height), int(width)


def class_names(value: Any) -> tuple[str, ...]:
  """Returns class names from a list, or from a dict of their indices.

  Raises:
    UserError: if the indices are not 0, 1 and so on.
  """
  if isinstance(value, Mapping):
    keys = sorted(value, key=int)
    if [*map(int, keys)] != [*range(len(keys))]:
      raise UserError(
          f'{len(keys)} class names must have the indices 0 to '
          f'{len(keys) - 1}, but the first are {", ".join(keys[:8])}. Correct '
          'id2label or label_names in config.json.')
    value = [value[key] for key in keys]
  return tuple(map(str, value))
