"""Which published model dimensions are, and whether it is all there."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.models import variants
from vit_jax.weights import layout
from vit_jax.weights import names as names_lib

_COMPARED = ('width', 'mlp_dim', 'patch')


def variant(section: Mapping[str, Any]) -> str:
  """Returns the row of the tables that a section `model` is; '' if none."""
  depths = tuple((section.get('backbone') or {}).get('depths', ()))
  if section['name'] == 'resnet':
    width = section['backbone']['width']
    return next((name for name in variants.RESNETS
                 if _stages(name) == depths
                 and variants.backbone(name)['width'] == width), '')
  return next(
      (name for name in _vits(section) if _stages(name) == depths
       and variants.parse_variant(name)[0].depth == section['depth']), '')


def is_of(section: Mapping[str, Any]) -> bool:
  """Whether the dimensions of a section are those of the variant it names."""
  name, backbone = section['variant'], section.get('backbone') or {}
  if variants.family(name) != section['name']:
    return False
  expected = variants.backbone(name)
  if bool(expected) != bool(backbone) or (
      expected and (tuple(backbone['depths']) != tuple(expected['depths'])
                    or backbone['width'] != expected.get('width', 64))):
    return False
  return section['name'] == 'resnet' or (
      _is_row(section, name)
      and variants.parse_variant(name)[0].depth == section['depth'])


def demand(
    told: Mapping[str, Any], family: names_lib.Family, *,
    known: Mapping[str, Any], source: str,
) -> None:
  """Raises if a part is missing that every model of a family has.

  Raises:
    ValueError: with what is missing, and how to say that it is to be so.
  """
  _check_depths(told, known, source=source)
  if told['name'] != 'vit' or family.name == 'scratch':
    return
  missing = []
  if not (told['final_norm'] or told['pool_norm']) and (
      known.get('final_norm', True)):
    missing.append(('final_norm/scale', 'final_norm=False'))
  if not told['positions'] and known.get('position', 'learned') == 'learned':
    missing.append(('positions', "position='none'"))
  for name, said in missing:
    there = layout.name_there(family.table, name)
    raise ValueError(
        f'{source}: expected {there}, which a {family.label} has, found '
        f'nothing ({name} here). Is the file whole? If the model is to be so, '
        f'load it with {said}.')


def _check_depths(
    told: Mapping[str, Any], known: Mapping[str, Any], *, source: str,
) -> None:
  """Raises if a model is a published one that lacks its last layers."""
  if told['backbone'] and not (known.get('backbone') or {}).get('depths'):
    _check_stages(told, known, source)
  if told['name'] == 'resnet' or 'depth' in known:
    return
  depth, depths = told['depth'], (told['backbone'] or {}).get('depths', ())
  for name in _vits({**told, **known}):
    full = variants.parse_variant(name)[0].depth
    if _stages(name) != depths or depth == full:
      continue
    if depth < full:
      raise ValueError(
          f'{source}: the weights have the dimensions of {name}, but {depth} '
          f'layers where it has {full}: expected {full - depth} more, found '
          'nothing. If the model is to be so, load it with '
          f'depth={depth}.')


def _check_stages(
    told: Mapping[str, Any], known: Mapping[str, Any], source: str,
) -> None:
  depths, width = told['backbone']['depths'], told['backbone']['width']
  if told['name'] == 'resnet':
    rows = [name for name in variants.RESNETS
            if variants.backbone(name)['width'] == width]
  else:
    rows = [name for name in _vits({**told, **known}) if width == 64]
  if any(_stages(name) == depths for name in rows):
    return
  lacking = {name: missing for name in rows
             if (missing := _missing(_stages(name), depths))}
  if lacking:
    name = min(lacking, key=lacking.__getitem__)
    raise ValueError(
        f'{source}: the weights have the dimensions of {name}, but residual '
        f'units {depths} where it has {_stages(name)}: expected '
        f'{lacking[name]} more, found nothing. If the model is to be so, load '
        f"it with backbone={{'depths': {depths}}}.")


def _missing(full: tuple[int, ...], depths: tuple[int, ...]) -> int:
  """Returns how many units stages lack; 0 if they are not those less some."""
  padded = (*depths, *(0,) * (len(full) - len(depths)))
  if len(padded) > len(full) or any(d > f for d, f in zip(padded, full)):
    return 0
  return sum(full) - sum(padded)


def _vits(section: Mapping[str, Any]) -> list[str]:
  """Returns the names whose encoder has these widths, patch and heads."""
  backbone = bool(section.get('backbone'))
  names = [n for n in variants.PUBLISHED if variants.family(n) == 'vit'
           and bool(variants.HYBRIDS.get(n)) == backbone]
  if not backbone and isinstance(section['patch'], int):
    names += [f'{size}/{section["patch"]}' for size in variants.SIZES]
  return [name for name in dict.fromkeys(names) if _is_row(section, name)]


def _is_row(section: Mapping[str, Any], name: str) -> bool:
  size, patch = variants.parse_variant(name)
  row = {**dataclasses.asdict(size), 'patch': patch}
  return (all(section[key] == row[key] for key in _COMPARED)
          and all(section.get(key) == value
                  for key, value in variants.settings(name).items())
          and section.get('num_heads') in (None, row['num_heads']))


def _stages(name: str) -> tuple[int, ...]:
  return tuple(variants.backbone(name).get('depths', ()))
