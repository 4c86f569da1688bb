"""Initialises a model from another's parameters, and reports each of them.

    load -> resize position embeddings -> keep the new head -> report
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import re
import typing
from typing import Any, Literal, TypeVar

import numpy as np

from vit_jax import classes as classes_lib
from vit_jax import registry
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import paths
from vit_jax.exceptions import UserError
from vit_jax.models import positions as positions_lib
from vit_jax.models import vit
from vit_jax.weights import weights as weights_lib

FILTERS = 'patches/kernel'  # [patch_height, patch_width, channels, width].
_HEAD = 'head/dense/kernel'  # [width, classes].
Status = Literal['loaded', 'resized', 'new', 'ignored']
W = TypeVar('W', bound=weights_lib.Weights)


@dataclasses.dataclass(frozen=True)
class InitConfig:
  """Section `init`: initial parameters of a run.

  Attributes:
    checkpoint: a workdir, or one checkpoint; '' starts from random values.
    stage: an earlier stage of the same config, instead of `checkpoint`.
    which: 'latest' or 'best' checkpoint of a workdir.
    positions: interpolation of position embeddings to another grid: 'linear'
      with aligned corners, as in the paper's code; 'bilinear' as in FlexiViT
      and TIPS; 'bilinear_sharp' as timm's FlexiViT; 'cubic' as in timm;
      'bicubic' as in Hugging Face Transformers, MAE and I-JEPA;
      'bicubic_offset' as in Meta's DINO and DINOv2. '_square' after a method
      resizes to a square and crops it, as RADIO. None uses the method of the
      codebase that the weights come from.
    channels: adaptation of patch filters to another number of channels:
      'same' is an error; 'mean' gives each channel the mean filter, times the
      old number of channels over the new, so that an image with identical
      channels keeps its embedding.
    new: regular expressions of parameters that keep their initial values; by
      default the head, which starts at zero. With [], it is that of the
      checkpoint, whose classes must be the classes of the data.
    ignored: parameters of the checkpoint that the model may lack; by default
      the head, and the representation layer, masked-patch predictor and
      projector of pre-training.
  """
  checkpoint: str = ''
  stage: str = ''
  which: types.Which = 'latest'
  positions: positions_lib.Interpolation | None = None
  channels: Literal['same', 'mean'] = 'same'
  new: tuple[str, ...] = ('head/.*',)
  ignored: tuple[str, ...] = (
      'head/.*', 'representation/.*', 'masked_patch/.*', 'projector/.*')

  def __post_init__(self):
    if self.checkpoint and self.stage:
      raise UserError(
          'Parameters start from a checkpoint or from a stage, not from both: '
          f'got checkpoint={self.checkpoint!r} and stage={self.stage!r}.')


@dataclasses.dataclass(frozen=True)
class Row:
  """Status of a parameter, with its shapes in the weights and in the model."""
  name: str
  status: Status
  old_shape: tuple[int, ...] | None
  new_shape: tuple[int, ...] | None


def fit(
    weights: weights_lib.Weights, initial: Any, *, config: InitConfig,
    grid: tuple[int, int], data: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Row]]:
  """Reads weights, and fits them to a model; see `adapt`.

  Args:
    weights: the weights.
    initial: the initial parameters of the model.
    config: section `init` of the run.
    grid: rows and columns of patches of the model.
    data: `target_mean` and `target_std` of the run's section `data`.
  """
  params = _with_positions(weights.read(), weights, initial)
  if num_classes(params) == num_classes(initial):
    params = rescale_head(params, of=weights.run.get('data', {}), to=data)
  return adapt(params, initial, config=config, resize=functools.partial(
      weights.config.resize_positions, new_grid=grid,
      old_grid=weights.config.grid(weights.resolution),
      method=config.positions or weights.positions))


def adapt(
    params: Any,
    initial: Any,
    *,
    config: InitConfig,
    resize: Callable[[str, np.ndarray], np.ndarray],
) -> tuple[dict[str, Any], list[Row]]:
  """Fits a checkpoint's parameters to a model.

  Args:
    params: parameters of the checkpoint.
    initial: the model's initial parameters; shapes suffice for those that are
      not new.
    config: parameters that may be new or ignored.
    resize: maps the name and values of a position embedding to the
      model's grid, and returns all other parameters unchanged. Shapes do not
      determine a grid: 4x9 and 6x6 have the same number of patches.

  Returns:
    Parameters shaped as `initial`, and a row for each name on either side.

  Raises:
    UserError: if a parameter is missing, unexpected, or of another shape.
  """
  have, want = tree.flatten(params), tree.flatten(initial)
  is_new = tree.flatten(tree.map_rules(
      initial, [(pattern, True) for pattern in config.new], default=False,
      where='init.new'))
  adapted: dict[str, Any] = {}
  rows: list[Row] = []
  problems: list[str] = []
  for name, start in want.items():
    array = np.asarray(have[name]) if name in have else None
    shape, target = getattr(array, 'shape', None), tuple(start.shape)
    values = start if is_new[name] else _resized(
        name, array, target, channels=config.channels, resize=resize)
    if values is None or values.shape != target:
      problems.append(f'{name}: expected {target}, found {shape or "nothing"}')
      if name == FILTERS and shape and shape[2:3] != target[2:3]:
        problems[-1] += (': to adapt it to another number of channels, set '
                         '--config.init.channels=mean')
      continue
    adapted[name] = values if is_new[name] else values.astype(start.dtype)
    rows.append(Row(name, 'new' if is_new[name] else
                    'loaded' if values is array else 'resized', shape, target))
  for name in [name for name in have if name not in want]:
    shape = tuple(have[name].shape)
    if _matches(config.ignored, name):
      rows.append(Row(name, 'ignored', shape, None))
    else:
      problems.append(f'{name}: expected nothing, found {shape}' + (
          ': to start from these embeddings and train them, set '
          '--config.model.position=learned' * (name == 'positions')))
  if problems:
    raise UserError(
        'The checkpoint does not fit the model:\n  ' + '\n  '.join(problems)
        + '\nCorrect the section model, or list parameters that keep their '
        'initial values in init.new and those to leave out in init.ignored.')
  return tree.unflatten(adapted), rows


def num_classes(params: Any) -> int:
  """Returns the outputs of the head in parameters or shapes; 0 without one."""
  kernel = tree.flatten(params).get(_HEAD)
  return 0 if kernel is None else kernel.shape[-1]


def rescale_head(
    params: Mapping[str, Any], *, of: Mapping[str, Any], to: Mapping[str, Any],
) -> Mapping[str, Any]:
  """Returns the parameters of a regression with outputs of another scale.

  A run learns y = (label - mean) / std of its targets. The head is linear, and
  so is its output on another scale, (std y + mean - new_mean) / new_std.

  Args:
    params: parameters with the head.
    of: `target_mean` and `target_std` of its outputs; without them, outputs are
      labels.
    to: those of the result.
  """
  (mean, std), (new_mean, new_std) = scales = [
      [np.asarray(section.get(name) or default, np.float64)
       for name, default in (('target_mean', 0.0), ('target_std', 1.0))]
      for section in (of, to)]
  if all(np.array_equal(*pair) for pair in zip(*scales)):
    return params
  return tree.map_with_name(lambda name, array: (
      (array * std + (mean - new_mean) * name.endswith('bias')) / new_std
  ).astype(np.float32) if name.startswith('head/') else array, params)


def keeps_head(config: InitConfig, shapes: Any) -> bool:
  """Whether a model starts with the head of weights of these shapes."""
  return bool(num_classes(shapes)) and not _matches(config.new, _HEAD)


def match_classes(
    weights: W, classes: classes_lib.Classes, *, owner: str) -> tuple[W, str]:
  """Returns weights with their outputs in this order, and a line to print.

  `owner` is for messages.

  Raises:
    UserError: if they have other classes; see `classes.match`.
  """
  numbers, line = classes_lib.match(
      classes_lib.Classes(owner, weights.config.num_classes,
                          weights.preprocess.labels,
                          paths.display(weights.address)), classes)
  if numbers:
    weights = weights.with_outputs(np.argsort(numbers).tolist())
  return weights, line


def _resized(
    name: str, values: np.ndarray | None, target: tuple[int, ...], *,
    channels: str, resize: Callable[[str, np.ndarray], np.ndarray],
) -> np.ndarray | None:
  """Resizes filters and position embeddings, if the other axes fit."""
  if values is None:
    return None
  if name == FILTERS and values.ndim == len(target) == 4:
    if channels == 'mean' and values.shape[2] != target[2]:
      mean = values.sum(axis=2, keepdims=True) / target[2]
      values = np.repeat(mean, target[2], axis=2).astype(values.dtype)
    if values.shape[:2] != target[:2]:
      values = registry.load(registry.FILTERS)(values, target[:2])
  if values.ndim == len(target) and values.shape[-1:] == target[-1:]:
    return resize(name, values)
  return values


def _with_positions(
    params: Mapping[str, Any], weights: weights_lib.Weights,
    initial: Mapping[str, Any],
) -> Mapping[str, Any]:
  """Returns parameters with the fixed position embeddings of their model.

  A model that learns position embeddings starts from the fixed sine-cosine
  embeddings that the weights were trained with.
  """
  config = weights.config
  if 'positions' not in initial or 'positions' in params or (
      not isinstance(config, vit.ViTConfig)
      or config.position != 'sincos'):
    return params
  return {**params, 'positions': np.asarray(positions_lib.embeddings(
      lambda *_: None, 'sincos', config.grid(weights.resolution), config.width,
      num_prefix=config.num_prefix))}


def report(rows: Sequence[Row]) -> list[str]:
  """Returns the counts, and a line for each parameter that is not loaded."""
  # The colon marks lines that terminals may wrap; see `console.wrap`.
  lines = [f'  {row.status + ":":9} {row.name} '
           + ' -> '.join(str(shape) for shape in (row.old_shape, row.new_shape)
                         if shape is not None)
           for row in rows if row.status != 'loaded']
  counts = collections.Counter(row.status for row in rows)
  return [', '.join(f'{counts[status]} {status}'
                    for status in typing.get_args(Status)), *lines]


def _matches(patterns: Sequence[str], name: str) -> bool:
  return any(re.fullmatch(pattern, name) for pattern in patterns)
