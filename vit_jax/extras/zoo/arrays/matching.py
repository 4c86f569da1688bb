"""Maps the arrays of a file to our parameter names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import math
import re
from typing import Any

import numpy as np

from vit_jax.exceptions import UserError
from vit_jax.extras.zoo.arrays import joint
from vit_jax.extras.zoo.families import families
from vit_jax.extras.zoo.families import records
from vit_jax.models import positions as positions_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import layout

# Optimizer state repeats the names of the parameters. Flax's optimizer target
# is the parameters themselves.
_OPTIMIZER = re.compile(
    r'(.*[/.])?(opt|optim|optimizer|opt_state|optimizer_state)[/.]'
    r'(?!target/).*')
# The first kernel of a ViT or ResNet.
_STEMS = ('patches/kernel', 'backbone/root/kernel')
# Patches of other models, by the axes of their kernel.
_OTHER_PATCHES = {
    2: 'flattened patches (NaFlex), read only in files of timm and '
       'transformers',
    5: 'patches of several video frames (tubelets), which our models lack'}


@dataclasses.dataclass(frozen=True)
class Found:
  """A file of a known family.

  Attributes:
    prefix: prefix of every parameter name in the file.
    matches: parameters, and the arrays of each.
    left_out: names of arrays that are not parameters of the model.
  """
  opened: array_file.ArrayFile
  family: records.Family
  prefix: str
  matches: tuple[layout.Match, ...]
  left_out: tuple[str, ...]

  @property
  def has_head_axis(self) -> bool:
    """Whether the arrays have an axis for the heads."""
    # Patterns that split the heads from another axis name them.
    return not any('heads' in match.layout for match in self.matches)

  @property
  def position_grid(self) -> tuple[int, int] | None:
    """Rows and columns of position embeddings, if their array has such axes."""
    for match in self.matches:
      if match.ours == 'positions' and 'rows' in match.layout:
        _, rows, columns, _ = self.opened.shapes[self.prefix + match.theirs[0]]
        return rows, columns
    return None

  @property
  def positions(self) -> positions_lib.Interpolation:
    """Interpolation of position embeddings in the original code."""
    return next((
        method for pattern, method in self.family.positions_by.items()
        if _matching_any(pattern, self.opened.shapes)), self.family.positions)


def _matching_any(pattern: str, names: Iterable[str]) -> bool:
  return any(re.fullmatch(pattern, name) for name in names)


def find(opened: array_file.ArrayFile, *, prefix: str | None = None) -> Found:
  """Recognises the family of a file by its names.

  If several models are in the file, it is the only one that is complete. Names
  of tied arrays that are not stored count only if the stored ones do not fit.

  Raises:
    UserError: if the family is unknown, the model has arrays that ours lack,
      or the file contains several copies of the model.
  """
  try:
    return _find(opened, prefix)
  except UserError:
    for renamed in with_tied_names(opened):
      with contextlib.suppress(UserError):
        return _find(renamed, prefix)
    raise


def with_tied_names(
    opened: array_file.ArrayFile) -> tuple[array_file.ArrayFile, ...]:
  """Returns the file with all names of tied arrays, and with one of each.

  The second has their further names instead of the stored ones, as for a
  module that the saved model held twice.
  """
  further = {name: opened.shapes[kept] for name, kept in opened.tied.items()}
  stored = set(opened.tied.values())
  others = {name: shape for name, shape in opened.shapes.items()
            if name not in stored}
  return tuple(
      dataclasses.replace(opened, shapes={**shapes, **further}, tied={})
      for shapes in (opened.shapes, others) if further)


def _find(opened: array_file.ArrayFile, prefix: str | None) -> Found:
  names = list(opened.shapes)
  models = _models(names, prefix or '')
  if not models:
    known = ', '.join(f.label for f in families.FAMILIES.values())
    raise UserError(
        f'The {len(names)} arrays of {opened.path} are not those of a known '
        f'family{f" under {prefix!r}" if prefix else ""}. Families: {known}. '
        f'The first arrays: {", ".join(names[:8])}.')
  results = {chosen: _matches(names, chosen, models) for chosen in (
      [prefix] if prefix in models else models)}
  complete = [p for p, (_, problems) in results.items() if not problems]
  if len(complete) > 1:
    raise several_models(opened.path, {p: models[p].label for p in complete})
  prefix = next(iter(complete or results))
  family, (matches, problems) = models[prefix], results[prefix]
  if problems:
    raise UserError(f'{opened.path} looks like a {family.label}, but:\n'
                    + array_file.indented(problems))
  if family.flat and any(
      match.ours == 'patches/kernel' and len(
          opened.shapes[prefix + match.theirs[0]]) == 2 for match in matches):
    family = families.FAMILIES[family.flat]
    matches, _ = _matches(names, prefix, {**models, prefix: family})
  if family.not_classified and any(
      'classifier.weight' in match.theirs for match in matches):
    matches = [match for match in matches
               if not match.ours.startswith(family.not_classified)]
  used = {prefix + name for match in matches for name in match.theirs}
  return Found(opened, family, prefix, tuple(matches),
               tuple(name for name in names if name not in used))


def _models(
    names: Sequence[str], start: str) -> dict[str, records.Family]:
  """Returns the best family of each prefix that begins with `start`."""
  models: dict[str, records.Family] = {}
  for family, prefix in candidates(names):
    # The backbone of a hybrid is a part of the hybrid.
    if prefix.startswith(start) and prefix not in models and not any(
        prefix.startswith(outer) and all(
            _knows(known.table, name.removeprefix(outer)) for name in names
            if name.startswith(prefix)) for outer, known in models.items()):
      models[prefix] = family
  return models


def _matches(
    names: Sequence[str], prefix: str, models: Mapping[str, records.Family],
) -> tuple[list[layout.Match], list[str]]:
  """Returns the parameters under a prefix, and problems; see `layout.matches`.

  Leaves out optimizer state, and arrays of other models.
  """
  table = models[prefix].table
  return layout.matches(table, [
      name for name in names_under(prefix, names, models)
      if not _ignores(table, name)])


def candidates(names: Sequence[str]) -> list[tuple[records.Family, str]]:
  """Returns the families of models in a file, with the prefix of their names.

  The family that knows most of the names is first.
  """
  def num_known(found: tuple[records.Family, str]) -> int:
    table, prefix = found[0].table, found[1]
    # Projection heads may be beside the backbone that has the prefix.
    parent = re.sub(r'[^/.]+[/.]$', '', prefix)
    return any(_matching_any(pattern, names)
               for pattern in found[0].positions_by) + sum(
        _knows(table, name[len(prefix):]) if name.startswith(prefix)
        else _ignores(table, name.removeprefix(parent))
        for name in names if name.startswith(parent))

  return sorted([
      (family, prefix) for family in families.FAMILIES.values()
      for prefix in prefixes(family.table, names)],
                key=num_known, reverse=True)


def _ignores(table: layout.Table, name: str) -> bool:
  """Whether an array is not read."""
  return any(re.fullmatch(pattern, name) for pattern in table.ignored)


def _knows(table: layout.Table, name: str) -> bool:
  return (layout.find_row(table, name) is not None or _ignores(table, name)
          or bool(table.reason(name)))


# ---------------------------------------------------------------------- names


def prefixes(table: layout.Table, names: Sequence[str]) -> list[str]:
  """Returns prefixes of a model's first kernel, except in optimizer state."""
  stem = dataclasses.replace(table, rows=tuple(
      row for row in table.rows if row.ours in _STEMS))
  found: dict[str, None] = {}
  for name in names:
    ends = (0, *(m.end() for m in re.finditer('[/.]', name)))
    prefix = next((name[:end] for end in ends
                   if layout.find_row(stem, name[end:])), None)
    if prefix is not None and not _OPTIMIZER.fullmatch(prefix):
      found[prefix] = None
  return list(found)


def names_under(
    prefix: str, names: Iterable[str], others: Iterable[str],
) -> list[str]:
  """Returns names below a prefix, without optimizer state and other models.

  `others` are prefixes of all models.
  """
  copies = tuple(p for p in others if p != prefix and p.startswith(prefix))
  inside = (name.removeprefix(prefix) for name in names
            if name.startswith(prefix) and not name.startswith(copies))
  return [name for name in inside if not _OPTIMIZER.fullmatch(name)]


def several_models(path: str, models: Mapping[str, str]) -> UserError:
  """Returns the error for a file with models of these labels, by prefix."""
  listed = ' and '.join(f'{p!r} ({label})' for p, label in models.items())
  return UserError(
      f'{path} holds more than one model, under the prefixes {listed}. Choose '
      'one: ' + ' or '.join(f'prefix={p!r}' for p in models) + ' in load(...), '
      '--set prefix=... in commands. For a run, write it to a file of its own '
      'by `convert` first.')


# --------------------------------------------------------------------- values


def shapes(found: Found, **heads: int) -> dict[str, np.ndarray]:
  """Returns the parameters as zeros that take no memory; see `read`."""
  return _convert(
      found, layout.our_zeros, found.opened.shapes.__getitem__, **heads)


def read(found: Found, **heads: int) -> dict[str, np.ndarray]:
  """Returns the parameters by our names.

  Args:
    found: the arrays.
    **heads: `heads`, the number of attention heads; `pool_heads`, that of
      attention pooling, 0 for the same.

  Raises:
    UserError: if shapes do not fit the name table or the number of heads.
  """
  return _convert(found, layout.to_ours, found.opened.read, **heads)


def _convert(
    found: Found, convert: Callable[..., np.ndarray],
    get: Callable[[str], Any], *, heads: int, pool_heads: int = 0,
) -> dict[str, np.ndarray]:
  params, problems = {}, []
  for match in found.matches:
    try:
      values = [get(found.prefix + name) for name in match.theirs]
      if found.family.grouped and 'attention/qkv_' in match.ours:
        values = _repeat_heads(values, heads)
      params[match.ours] = convert(
          values, match,
          parts=2 if 'pooling/key_value/' in match.ours else 3,
          heads=heads, pool_heads=pool_heads or heads,
          channels=3, side=math.isqrt((found.opened.shapes[
              found.prefix + match.theirs[0]] or (0,))[-1] // 3))
    except UserError as error:
      axes = len(found.opened.shapes[found.prefix + match.theirs[0]])
      problems.append(f'{error}' + (
          f': {_OTHER_PATCHES[axes]}'
          if match.ours == 'patches/kernel' and axes in _OTHER_PATCHES else ''))
  if problems:
    raise UserError(f'{found.opened.path} has arrays of unexpected shapes:\n'
                    + array_file.indented(problems))
  for ours, theirs in (('head/dense', 'visual_projection.weight'),
                       ('patches', 'patch_generator.embedder.weight')):
    if any(theirs in match.theirs for match in found.matches):
      # The projection of CLIP and the patches of C-RADIO have no bias.
      params[f'{ours}/bias'] = np.zeros(
          params[f'{ours}/kernel'].shape[-1], np.float32)
  if found.family.name == 'huggingface' and 'distill' in params and (
      'head/dense/kernel' in params and 'head/distill/kernel' not in params):
    # A DeiT without a teacher does not classify by its distillation token.
    params['registers'] = params.pop('distill')
  return joint.split_pairs(params, heads)


def _repeat_heads(values: list[Any], heads: int) -> list[Any]:
  """Repeats heads of keys and values; for shapes, returns those of queries."""
  if isinstance(values[0], tuple):
    return [max(values)] * len(values)
  rows = max(map(len, values))
  if rows % heads or any(len(array) % (rows // heads) for array in values):
    raise UserError(f'queries of {rows} rows do not divide into {heads} heads '
                    'as keys and values do')
  return [np.repeat(
      array.reshape(-1, rows // heads, *array.shape[1:]), rows // len(array),
      axis=0).reshape(rows, *array.shape[1:]) for array in values]


def fold_register_positions(
    params: Mapping[str, np.ndarray], prefix: int,
) -> dict[str, np.ndarray]:
  """Adds the position embeddings of timm's registers to the registers.

  Both are learned and independent of the image, so one array is enough.

  Args:
    params: parameters of a model.
    prefix: number of position embeddings of tokens before the patches.
  """
  registers, positions = params.get('registers'), params['positions']
  if registers is None or prefix < len(registers):
    return dict(params)
  before, offsets, patches = np.split(
      positions, [prefix - len(registers), prefix])
  if offsets.any():  # Adding 0 would change the sign of -0.
    registers = registers + offsets
  return {**params, 'registers': registers,
          'positions': np.concatenate([before, patches])}
