"""What names and shapes of parameters tell of the model they belong to."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from vit_jax import models
from vit_jax import records
from vit_jax.interop import files
from vit_jax.interop import layout
from vit_jax.interop import names as names_lib
from vit_jax.models import variants


def infer(
    params: Mapping[str, Any], family: names_lib.Family, *,
    hints: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[dict[str, Any], tuple[int, int] | None]:
  """Returns the section `model` that parameters of ours belong to.

  Args:
    params: arrays or shapes, by our names.
    family: where they come from: says what shapes do not.
    hints: keys of the section that are known.
    resolution: height and width of images, if known.

  Returns:
    The section, and the rows and columns of its positions, if it has any.

  Raises:
    ValueError: if something cannot be told.
  """
  section: dict[str, Any] = {'name': 'vit', **family.settings}
  backbone = _backbone(params, family)
  if backbone:
    section['backbone'] = backbone
  head = params.get('head/dense/kernel')
  section['num_classes'] = 0 if head is None else int(head.shape[-1])
  if section['name'] == 'resnet':
    section['variant'] = _resnet_variant(backbone)
    return {**section, **hints}, None
  layers = 'encoder/layers'
  needed = ('patches/kernel', f'{layers}/attention_norm/scale',
            f'{layers}/attention/qkv_kernel', f'{layers}/mlp/hidden/kernel')
  missing = [name for name in needed if name not in params]
  if missing:
    raise ValueError(
        f'The weights hold no {", ".join(missing)}: expected '
        + ', '.join(layout.name_there(family.table, name) for name in missing))
  patch = params['patches/kernel'].shape
  has_cls, average = 'cls' in params, 'pool_norm/scale' in params
  pooling = hints.get('pooling') or (
      'attention' if 'pooling/probe' in params
      else 'average' if average or not has_cls else 'cls')
  section |= {
      'width': int(patch[-1]),
      'depth': int(params[needed[1]].shape[0]),
      'num_heads': int(params[needed[2]].shape[-2]),
      'mlp_dim': int(params[needed[3]].shape[-1]),
      'patch': int(patch[0]) if patch[0] == patch[1] else (
          int(patch[0]), int(patch[1])),
      'qkv_bias': f'{layers}/attention/qkv_bias' in params,
      'final_norm': 'final_norm/scale' in params,
      'pool_norm': average,
      'pooling': pooling,
      'representation_layer': 'representation/dense/kernel' in params}
  if has_cls != (pooling == 'cls'):
    section['cls'] = has_cls
  if 'registers' in params:
    section['registers'] = int(params['registers'].shape[0])
  if f'{layers}/attention_scale' in params:
    section['layer_scale'] = 1e-5  # Where it starts; it has long moved on.
  grid = _grid(params, section, hints, resolution)
  section['variant'] = _vit_variant(section, hints)
  return {**section, **hints}, grid


def _backbone(
    params: Mapping[str, Any], family: names_lib.Family,
) -> dict[str, Any] | None:
  root = params.get('backbone/root/kernel')
  if root is None:
    return None
  depths: list[int] = []
  while f'backbone/block{len(depths) + 1}/unit1/conv1/kernel' in params:
    units = params.get(f'backbone/block{len(depths) + 1}/units/conv1/kernel')
    depths.append(1 + (0 if units is None else int(units.shape[0])))
  return {'depths': tuple(depths), 'width': int(root.shape[-1]),
          **family.backbone}


def _grid(
    params: Mapping[str, Any], section: dict[str, Any],
    hints: Mapping[str, Any], resolution: tuple[int, int] | None,
) -> tuple[int, int] | None:
  """Returns rows and columns of the positions; notes whose they are."""
  if 'positions' not in params:
    section['position'] = 'none'
    return None
  count = int(params['positions'].shape[0])
  has_cls = 'cls' in params
  if resolution is not None:
    stride = _stride(section)
    grid = tuple(-(-side // s) for side, s in zip(resolution, stride))
    area = grid[0] * grid[1]
    if count - area in ((0, 1) if has_cls else (0,)):
      section['position_cls'] = not has_cls or count > area
      return grid  # type: ignore[return-value]
  prefixes = [p for p in ((1, 0) if has_cls else (0,))
              if 'position_cls' not in hints or p == hints['position_cls']]
  for prefix in prefixes:
    if is_square(count - prefix):
      section['position_cls'] = bool(prefix) or not has_cls
      side = math.isqrt(count - prefix)
      return side, side
  raise ValueError(
      f'{count} position embeddings'
      + (' with a class token' if has_cls else '')
      + ' make no square grid'
      + (f', nor that of an image of {resolution[0]}x{resolution[1]}'
         if resolution else '')
      + '. Say for which images they are: resolution=(height, width).')


def is_square(number: int) -> bool:
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
  stride = _stride(records.to_plain(config))
  return grid[0] * stride[0], grid[1] * stride[1]


def _vit_variant(section: Mapping[str, Any], hints: Mapping[str, Any]) -> str:
  """Returns the row of the size table that a model is; '' if none.

  Raises:
    ValueError: if it is a row that lacks its last layers, and nobody says that
      it is to be so.
  """
  backbone = section.get('backbone')
  names = [n for n in variants.PUBLISHED if n not in variants.RESNETS]
  if not backbone and isinstance(section['patch'], int):
    names += [f'{size}/{section["patch"]}' for size in variants.SIZES]
  for name in names:
    size, patch = variants.parse_variant(name)
    row = dataclasses.asdict(size) | {'patch': patch}
    depths = variants.backbone(name).get('depths')
    if any(section[key] != row[key] for key in (
        'width', 'mlp_dim', 'num_heads', 'patch')):
      continue
    if tuple((backbone or {}).get('depths', ('none',))) != tuple(
        ('none',) if depths is None else depths):
      continue
    if section['depth'] == size.depth:
      return name
    if section['depth'] < size.depth and 'depth' not in hints:
      raise ValueError(
          f'The weights have the dimensions of {name}, but {section["depth"]} '
          f'layers where it has {size.depth}: expected '
          f'{size.depth - section["depth"]} more, found nothing. If the model '
          f'is to be so, load it with depth={section["depth"]}.')
  return ''


def _resnet_variant(backbone: Mapping[str, Any] | None) -> str:
  for name in variants.RESNETS:
    row = variants.backbone(name)
    if backbone and (tuple(row['depths']), row['width']) == (
        tuple(backbone['depths']), backbone['width']):
      return name
  return ''


def heads(
    opened: files.ArrayFile, matches: Sequence[layout.Match], prefix: str,
    known: Mapping[str, Any],
) -> int:
  """Returns the number of heads, where arrays do not keep them apart; else 0.

  Raises:
    ValueError: if neither a config nor the table of sizes tells it.
  """
  by_ours = {match.ours: match for match in matches}
  qkv = by_ours.get('encoder/layers/attention/qkv_kernel')
  if qkv is None or not any(
      group in qkv.layout for group in ('(heads e)', '(parts heads e)')):
    return 0
  width = opened.headers[prefix + qkv.theirs[0]].shape[-1]
  if known.get('num_heads'):
    heads = int(known['num_heads'])
    if width % heads:
      raise ValueError(
          f'{opened.path}: a width of {width} does not divide into {heads} '
          'heads.')
    return heads
  hidden = by_ours.get('encoder/layers/mlp/hidden/bias')
  mlp_dim = hidden and opened.headers[prefix + hidden.theirs[0]].shape[-1]
  for size in variants.SIZES.values():
    if (size.width, size.mlp_dim) == (width, mlp_dim):
      return size.num_heads
  raise ValueError(
      f'{opened.path}: the arrays do not tell how many heads a width of '
      f'{width} is divided into, there is no config.json that does, and the '
      'size is in no table. Say it: num_heads=N.')


def complete(
    params: Mapping[str, np.ndarray], section: Mapping[str, Any],
) -> dict[str, np.ndarray]:
  """Adds the head of no classes, where weights have none."""
  params = dict(params)
  if section['num_classes'] == 0 and 'head/dense/kernel' not in params:
    norm = 'final_norm/scale'
    width = section.get('width') or params[norm].shape[0]
    params |= {'head/dense/kernel': np.zeros((width, 0), np.float32),
               'head/dense/bias': np.zeros((0,), np.float32)}
  return params
