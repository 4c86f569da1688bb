"""The record of weights, wherever they come from, and its summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
from typing import Any, Literal, TypeVar

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.models import architecture
from vit_jax.weights.configs import preprocessing

# Interpolation of position embeddings to another grid.
Positions = Literal['linear', 'bilinear', 'cubic']
W = TypeVar('W', bound='Weights')
_MAX_NAMES = 4  # Names of classes or arrays in a line.
_STATUS = {'declared': ' by ', 'inferred': ' from ', 'assumed': ', '}


@dataclasses.dataclass(frozen=True)
class Origin:
  """Source of the value of a setting.

  Attributes:
    status: 'given' by the caller, 'declared' by a file, 'inferred' from arrays
      or names, or 'assumed'.
    source: the file, what it is inferred from, or whose default is assumed.
  """
  status: Literal['given', 'declared', 'inferred', 'assumed']
  source: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
  """Weights of a model, and everything that is known about them.

  Attributes:
    config: the typed section `model`.
    read: returns the parameters, a nested dict of arrays. Those of files are
      read anew by each call.
    shapes: tree with `shape` and `dtype` of the parameters.
    preprocess: preprocessing of images, with the names of the classes.
    resolution: height and width of the position embeddings.
    positions: interpolation of position embeddings.
    address: where they can be opened again: the folder of a checkpoint, or the
      address of other weights.
    kind: 'params' or 'average' of a checkpoint, or the family of other weights.
    description: path and format of the file, for the summary.
    run: config of the training run that wrote them; empty for other weights.
    settings: origins of the model, and of the settings in `declared.REPORTED`.
    notes: further lines of the summary.
    report: a line for each parameter that is read or ignored.
  """
  config: models.ModelConfig
  read: Callable[[], types.Params]
  shapes: Any
  preprocess: preprocessing.Preprocess
  resolution: tuple[int, int]
  positions: Positions = 'linear'
  address: str = ''
  kind: str = ''
  description: str = ''
  run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()
  report: tuple[str, ...] = ()

  @classmethod
  def of(cls: type[W], params: types.Params, **fields: Any) -> W:
    """Returns weights with these parameters, which are in memory."""
    return cls(read=lambda: params, shapes=params, **fields)

  def with_params(self: W, params: types.Params, **changes: Any) -> W:
    """Returns the weights with other parameters, which are in memory."""
    return dataclasses.replace(
        self, read=lambda: params, shapes=params, **changes)

  @property
  def is_checkpoint(self) -> bool:
    """Whether they are a checkpoint of vit_jax."""
    return self.kind in items.PARAMS

  @property
  def origin(self) -> str:
    """Kind and address, for messages."""
    return f'{self.kind}: {self.address}' if self.address else self.kind

  @property
  def summary(self) -> tuple[str, ...]:
    """Lines about found, declared, inferred and assumed settings."""
    return tuple(_summary(self))


def _summary(weights: Weights) -> Iterator[str]:
  config = weights.config
  yield f'{weights.description}, {count(weights.shapes)}'
  values = {name: schema.to_plain(value) for name, value in
            architecture.non_default(config).items()}
  if getattr(config, 'representation_layer', False):
    values['representation_layer'] = True
  size = f'{config.variant}, ' if config.variant else ''
  yield (f'  model: {size}{config.num_classes} classes, images '
         f'{_size(weights.resolution)}' + listed(values.items(), start=', '))
  if not config.num_classes:
    yield '  no head in the file: 0 classes, logits are empty'
  yield from _origins(weights)
  yield from (f'  {note}' for note in weights.notes)


def _origins(weights: Weights) -> Iterator[str]:
  """Yields a line for each origin of settings, except 'given' ones."""
  values = _values(weights)
  groups: dict[Origin, list[str]] = {}
  for name, origin in weights.settings.items():
    if name in values and origin.status != 'given' and (
        name, origin.status) != ('heads', 'assumed'):
      groups.setdefault(origin, []).append(
          f'{name}={values[name]}' if values[name] else name)
  for origin, texts in groups.items():
    of = _STATUS[origin.status] + paths.display(origin.source) if (
        origin.source) else ''
    yield f'  {origin.status}{of}: {", ".join(texts)}'
  heads = weights.settings.get('heads')
  if heads and 'heads' in values and heads.status == 'assumed':
    yield (f'  assumed: {values["heads"]} heads; if wrong, all outputs are '
           f'wrong: num_heads=N ({heads.source})')


def _values(weights: Weights) -> dict[str, str]:
  """Returns the text of each setting that the model has."""
  preprocess, config = weights.preprocess, weights.config

  def channels(values: tuple[float, ...]) -> str:
    return f'{values[0]:g}' if len(set(values)) == 1 else (
        f'({", ".join(f"{value:g}" for value in values)})')

  result = {'model': '', 'mean': channels(preprocess.mean),
            'std': channels(preprocess.std)}
  if preprocess.resize_and_crop is None:
    result['resize'] = '; '.join(
        ' '.join(f'{value}' if key == 'op' else f'{key} {value}'
                 for key, value in op.items()) for op in preprocess.sections)
  else:
    resize, _ = preprocess.resize_and_crop
    size = _size(resize.least)
    result |= {
        'resize': f'shorter side to {resize.shorter}' if resize.shorter else (
            f'both sides to {size}' if resize.size else f'to cover {size}'),
        'crop': (_size(preprocess.resolution)
                 if len(preprocess.sections) > 1 else 'none'),
        'interpolation': resize.method}
  if config.num_classes:
    result['labels'] = shortened(preprocess.labels) or 'none'
  if heads := getattr(config, 'num_heads', 0):
    result['heads'] = str(heads)
  return result


def _size(size: tuple[int, int]) -> str:
  return f'{size[0]}x{size[1]}'


def shortened(names: Iterable[str]) -> str:
  """Returns the first of some names as text."""
  names = list(names)
  return ', '.join(names[:_MAX_NAMES]) + ', ...' * (len(names) > _MAX_NAMES)


def listed(items: Iterable[tuple[str, Any]], *, start: str) -> str:
  """Returns 'a=1, b=2' after `start`; '' without items."""
  text = ', '.join(f'{name}={value}' for name, value in items)
  return text and start + text


def count(params: Any) -> str:
  """Returns '86,567,656 parameters' for arrays or their shapes."""
  return f'{tree.num_elements(dict(params)):,} parameters'
