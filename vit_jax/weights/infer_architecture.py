"""What names and shapes of parameters tell of the model they belong to."""

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from vit_jax import models
from vit_jax import schema
from vit_jax.models import variants
from vit_jax.weights import layout
from vit_jax.weights import names as names_lib
from vit_jax.weights import sizes

_LAYERS = 'encoder/layers'
_QKV = f'{_LAYERS}/attention/qkv_kernel'
_NEEDED = ('patches/kernel', f'{_LAYERS}/attention_norm/scale', _QKV,
           f'{_LAYERS}/mlp/hidden/kernel')
# Of what `tell` looks at, the axes.
_AXES = {'patches/kernel': 4, f'{_LAYERS}/attention_norm/scale': 2,
         f'{_LAYERS}/mlp/hidden/kernel': 3, 'head/dense/kernel': 2,
         'positions': 2, 'registers': 2, 'backbone/root/kernel': 4}
# Of what `tell` returns, no keys of the section.
_FACTS = ('features', 'positions', 'probe', 'embedded')


def tell(
    params: Mapping[str, Any], family: names_lib.Family, *, heads_apart: bool,
) -> dict[str, Any]:
  """Returns what the parameters tell, whatever anybody says of them.

  Args:
    params: arrays or shapes, by our names.
    family: where they come from.
    heads_apart: whether shapes have an axis for heads.

  Returns:
    Keys of the section `model`; `cls` is whether there is one, `layer_scale`
    is True or None. With them, `features` that the head sees, `positions`, the
    number of position embeddings, those of class token and registers included,
    and `probe`, whether there is one.

  Raises:
    ValueError: if there is no encoder, or an array has another number of axes.
  """
  for name, axes in _AXES.items():
    if name in params and len(params[name].shape) != axes:
      raise ValueError(
          f'{layout.name_there(family.table, name) or name}: expected {axes} '
          f'axes, found the shape {tuple(params[name].shape)}.')
  head = params.get('head/dense/kernel')
  told: dict[str, Any] = {
      'name': family.settings.get('name', 'vit'),
      'backbone': _backbone(params),
      'num_classes': 0 if head is None else int(head.shape[-1])}
  if told['name'] == 'resnet':
    norm = params.get('final_norm/scale')
    return {**told, 'features': 0 if norm is None else int(norm.shape[0])}
  missing = [name for name in _NEEDED if name not in params]
  if missing:
    raise ValueError(
        f'The weights hold no {", ".join(missing)}: expected '
        + ', '.join(layout.name_there(family.table, name) for name in missing))
  shapes = [params[name].shape for name in _NEEDED]
  patch = tuple(map(int, shapes[0][:2]))
  if heads_apart:
    told['num_heads'] = int(shapes[2][-2])
  positions, registers = params.get('positions'), params.get('registers')
  return {
      **told,
      'width': int(shapes[0][-1]), 'depth': int(shapes[1][0]),
      'mlp_dim': int(shapes[3][-1]), 'features': int(shapes[0][-1]),
      'patch': patch[0] if patch[0] == patch[1] else patch,
      'cls': 'cls' in params,
      'registers': 0 if registers is None else int(registers.shape[0]),
      'qkv_bias': f'{_LAYERS}/attention/qkv_bias' in params,
      'layer_scale': f'{_LAYERS}/attention_scale' in params or None,
      'final_norm': 'final_norm/scale' in params,
      'pool_norm': 'pool_norm/scale' in params,
      'probe': 'pooling/probe' in params,
      'representation_layer': 'representation/dense/kernel' in params,
      'position': 'none' if positions is None else 'learned',
      'positions': 0 if positions is None else int(positions.shape[0])}


def infer(
    told: Mapping[str, Any], family: names_lib.Family, *,
    known: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[dict[str, Any], tuple[int, int] | None]:
  """Returns the section `model` that parameters belong to.

  Args:
    told: what `tell` returns; with `embedded`, whether class token and
      registers have positions, if anybody says so.
    family: says what shapes do not.
    known: keys of the section that somebody says; they win.
    resolution: height and width of images, if known.

  Returns:
    The section, and the rows and columns of its positions, if it has any.

  Raises:
    ValueError: if something cannot be told, or a part that each such model has
      is missing.
  """
  section: dict[str, Any] = {
      **family.settings,
      **{k: v for k, v in told.items() if k not in _FACTS}}
  if told['backbone']:
    section['backbone'] = {
        **told['backbone'], **family.backbone, **(known.get('backbone') or {})}
  known = {k: v for k, v in known.items() if k != 'backbone'}
  grid = None
  if told['name'] == 'vit':
    section['pooling'] = known.get('pooling') or (
        'attention' if told['probe']
        else 'average' if told['pool_norm'] or not told['cls'] else 'cls')
    if told['cls'] == (section['pooling'] == 'cls'):
      section['cls'] = None  # As it is where nobody says anything.
    if told['layer_scale']:
      section['layer_scale'] = 1e-5  # Where it starts; it has long moved on.
    if told['positions']:
      section['position_cls'], grid = _grid(told, resolution)
  section['variant'] = sizes.variant({**section, **known})
  return {**section, **known}, grid


def _backbone(params: Mapping[str, Any]) -> dict[str, Any] | None:
  root = params.get('backbone/root/kernel')
  if root is None:
    return None
  depths: list[int] = []
  while f'backbone/block{len(depths) + 1}/unit1/conv1/kernel' in params:
    units = params.get(f'backbone/block{len(depths) + 1}/units/conv1/kernel')
    depths.append(1 + (0 if units is None else int(units.shape[0])))
  return {'depths': tuple(depths), 'width': int(root.shape[-1])}


def _grid(
    told: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[bool, tuple[int, int]]:
  """Returns whether the class token has a position, and the grid."""
  count, has_cls = told['positions'], told['cls']
  if resolution is not None and fits(told, resolution):
    rows, columns = _grid_of(told, resolution)
    return not has_cls or count > rows * columns, (rows, columns)
  sides = {prefix: math.isqrt(count - prefix) for prefix in _prefixes(told)
           if is_square(count - prefix)}
  if len(sides) == 1:
    (prefix, side), = sides.items()
    return bool(prefix) or not has_cls, (side, side)
  others = [part for part, there in (
      ('a class token', has_cls),
      (f'{told["registers"]} registers', told['registers'])) if there]
  of = f'{count} position embeddings' + (
      f' with {" and ".join(others)}' if others else '')
  if sides:
    raise ValueError(
        f'{of} may be those of '
        + ' patches, or of '.join(f'{n}x{n}' for n in sides.values())
        + ' patches. Say for which images they are: '
        'resolution=(height, width).')
  raise ValueError(
      f'{of} make no square grid'
      + (f', nor that of an image of {resolution[0]}x{resolution[1]}'
         if resolution else '')
      + '. Say for which images they are: resolution=(height, width).')


def _prefixes(told: Mapping[str, Any]) -> tuple[int, ...]:
  """Returns how many positions may be those of class token and registers.

  It is all of them or none, in every library that we read.
  """
  every = int(told['cls']) + told['registers']
  embedded = told.get('embedded')
  if embedded is None and every:
    return every, 0
  return (every if embedded or embedded is None else 0,)


def fits(told: Mapping[str, Any], resolution: tuple[int, int]) -> bool:
  """Whether the positions are those of images of a height and width."""
  rows, columns = _grid_of(told, resolution)
  return told['positions'] - rows * columns in _prefixes(told)


def _grid_of(
    told: Mapping[str, Any], resolution: tuple[int, int],
) -> tuple[int, int]:
  rows, columns = (-(-side // s) for side, s in zip(resolution, _stride(told)))
  return rows, columns


def is_square(number: int) -> bool:
  """Whether so many patches can be those of a square image."""
  return number > 0 and math.isqrt(number) ** 2 == number


def _stride(section: Mapping[str, Any]) -> tuple[int, int]:
  """Returns the height and width of a token, in pixels."""
  patch = section['patch']
  sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
  depths = (section.get('backbone') or {}).get('depths')
  stride = 1 if depths is None else 4 * 2 ** max(len(depths) - 1, 0)
  return sides[0] * stride, sides[1] * stride


def resolution_of(
    config: models.ModelConfig, grid: tuple[int, int],
) -> tuple[int, int]:
  """Returns height and width of the images that a grid is of."""
  stride = _stride(schema.to_plain(config))
  return grid[0] * stride[0], grid[1] * stride[1]


def heads(
    told: Mapping[str, Any], known: Mapping[str, Any], *, source: str,
) -> int:
  """Returns the number of attention heads.

  Raises:
    ValueError: if neither the arrays, nor what is known, nor the table of sizes
      tells it.
  """
  width = told['width']
  count = known.get('num_heads') or told.get('num_heads')
  if count:
    if width % count:
      raise ValueError(
          f'{source}: a width of {width} does not divide into {count} heads '
          f'(num_heads={count}).')
    return count
  for size in variants.SIZES.values():
    if (size.width, size.mlp_dim) == (width, told['mlp_dim']):
      return size.num_heads
  raise ValueError(
      f'{source}: the arrays do not tell how many heads width {width} has, '
      'no config.json does, and the size is in no table. Say it: num_heads=N.')


def complete(
    params: Mapping[str, np.ndarray], told: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Adds the head of no classes, where weights have none."""
  if 'head/dense/kernel' in params:
    return dict(params)
  return {**params,
          'head/dense/kernel': np.zeros((told['features'], 0), np.float32),
          'head/dense/bias': np.zeros((0,), np.float32)}
