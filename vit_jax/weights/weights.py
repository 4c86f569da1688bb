"""The record of weights, wherever they come from, and its summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import os
from typing import Any, TypeVar

import numpy as np

from vit_jax import console
from vit_jax import fields
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.models import positions as positions_lib

W = TypeVar('W', bound='Weights')
_MAX_NAMES = 4  # Names of classes or arrays in a line.
# Settings whose origin every load reports.
REPORTED = ('mean', 'std', 'num_heads', 'ops', 'labels')
GIVEN = 'given'  # Origin of settings that the caller sets.


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
    settings: origin of each setting in `REPORTED`: 'declared by' a file,
      'inferred from' arrays or names, 'assumed', or `GIVEN`.
    notes: further lines of the summary.
  """
  config: model_config.ModelConfig
  read: Callable[[], types.Params]
  shapes: Any
  preprocess: preprocessing.Preprocess
  resolution: tuple[int, int]
  positions: positions_lib.Interpolation = 'linear'
  address: str = ''
  kind: str = ''
  description: str = ''
  run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()

  @classmethod
  def of(cls: type[W], params: types.Params, **fields: Any) -> W:
    """Returns weights with these parameters, which are in memory."""
    return cls(read=lambda: params, shapes=params, **fields)

  def with_params(self: W, params: types.Params, **changes: Any) -> W:
    """Returns the weights with other parameters, which are in memory."""
    return dataclasses.replace(
        self, read=lambda: params, shapes=params, **changes)

  def with_outputs(self: W, order: Sequence[int]) -> W:
    """Returns the weights with their classes in the order of these indices."""
    def read() -> types.Params:
      return tree.map_with_name(
          lambda name, array: array[..., np.asarray(order)]
          if name.startswith(factory.CLASSIFIERS) else array, self.read())

    labels = self.preprocess.labels
    return dataclasses.replace(
        self, read=read, preprocess=dataclasses.replace(
            self.preprocess, labels=tuple(labels[i] for i in order)))

  @property
  def is_checkpoint(self) -> bool:
    """Whether they are a checkpoint of vit_jax."""
    return self.kind in paths.PARAMS

  @property
  def origin(self) -> str:
    """Kind and address, for messages."""
    return f'{self.kind}: {self.address}' if self.address else self.kind

  @property
  def head_size(self) -> str:
    """Number of outputs, for messages: '10 classes' or '1 target'."""
    return console.format_count(self.config.num_classes, (
        'class' if self.preprocess.activation != 'none' else
        'target' if self.preprocess.labels else 'output'))

  @property
  def image_size(self) -> str:
    """Size of images and, if it is another, of the positions, for messages."""
    size, positions = (f'{height}x{width}' for height, width in (
        self.preprocess.resolution, self.resolution))
    return f'images {size}' + f' (positions of {positions})' * (
        positions != size)

  @property
  def summary(self) -> tuple[str, ...]:
    """Lines about found, declared, inferred and assumed settings."""
    return tuple(_summary(self))


def _summary(weights: Weights) -> Iterator[str]:
  config = weights.config
  yield f'{weights.description}, {count(weights.shapes)}'
  values = {name: schema.to_plain(value) for name, value in
            fields.non_default(config).items()
            if name not in weights.settings}  # Listed below.
  if getattr(config, 'representation_layer', False):
    values['representation_layer'] = True
  size = f'{config.variant}, ' if config.variant else ''
  yield (f'  model: {size}{weights.head_size}, {weights.image_size}'
         + listed(values.items(), start=', '))
  values = _values(weights)
  groups: dict[str, list[str]] = {}
  for name, origin in weights.settings.items():
    if origin != GIVEN and name in values:
      groups.setdefault(origin, []).append(f'{name}={values[name]}')
  # The first line names the folder.
  folder = os.path.dirname(weights.description.partition(': ')[0])
  for origin, texts in groups.items():
    yield (f'  {origin.replace(f"{folder}/", "") if folder else origin}: '
           + ', '.join(texts))
  if not config.num_classes:
    yield '  no trained head: 0 classes, logits are empty'
  yield from (f'  {note}' for note in weights.notes)


def _values(weights: Weights) -> dict[str, Any]:
  """Returns the value of each setting that the model has."""
  preprocess, config = weights.preprocess, weights.config
  result: dict[str, Any] = {
      **{name: value[0] if len({*value}) == 1 else value
         for name, value in (('mean', preprocess.mean),
                             ('std', preprocess.std))},
      'ops': preprocess.description}
  if heads := getattr(config, 'num_heads', 0):
    result['num_heads'] = heads
  if config.num_classes:
    result['labels'] = shortened(preprocess.labels) or 'none'
  return result


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
