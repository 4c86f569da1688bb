"""Maps the arrays of a file to our parameter names."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import re

import numpy as np

from vit_jax.weights import families
from vit_jax.weights import files
from vit_jax.weights import layout

# Optimizer state repeats the names of the parameters. Flax's optimizer target
# is the parameters themselves.
_OPTIMIZER = re.compile(
    r'(.*[/.])?(opt|optim|optimizer|opt_state|optimizer_state)[/.]'
    r'(?!target/).*')
_TOP_LEVEL = re.compile(r'[^/.]+[/.]')


@dataclasses.dataclass(frozen=True)
class Found:
  """A file of a known family.

  Attributes:
    prefix: prefix of every parameter name in the file.
    matches: parameters, and the arrays of each.
    left_out: names of arrays that are not parameters of the model.
  """
  opened: files.ArrayFile
  family: families.Family
  prefix: str
  matches: tuple[layout.Match, ...]
  left_out: tuple[str, ...]

  @property
  def has_head_axis(self) -> bool:
    """Whether the arrays have an axis for the heads."""
    # Patterns that split the heads from another axis name them.
    return not any('heads' in match.layout for match in self.matches)


def find(opened: files.ArrayFile, *, prefix: str | None = None) -> Found:
  """Recognises the family of a file by its names.

  Raises:
    ValueError: if the family is unknown, the model has arrays that ours lack,
      or the file contains several copies of the model.
  """
  names = list(opened.headers)
  family, prefix = _choose(opened, names, prefix)
  inside = families.without_prefix(prefix, names)
  other = {part + name for part, rest in _copies(family, inside).items()
           if part for name in rest}
  inside = [name for name in inside if name not in other
            and not _OPTIMIZER.fullmatch(name)
            and not family.table.ignores(name)]
  matches, problems = layout.matches(family.table, inside)
  if problems:
    raise ValueError(f'{opened.path} looks like a {family.label}, but:\n'
                     + files.indented(problems))
  if family.not_classified and any(
      'classifier.weight' in match.theirs for match in matches):
    matches = [match for match in matches
               if not match.ours.startswith(family.not_classified)]
  used = {prefix + name for match in matches for name in match.theirs}
  return Found(opened, family, prefix, tuple(matches),
               tuple(name for name in names if name not in used))


def _choose(
    opened: files.ArrayFile, names: Sequence[str], prefix: str | None,
) -> tuple[families.Family, str]:
  """Returns the family and the prefix of its parameter names."""
  starts = ['' if prefix is None else prefix]
  if prefix is None:  # Any top-level name but the optimizer's.
    tops = dict.fromkeys(m[0] for m in map(_TOP_LEVEL.match, names) if m)
    starts += [start for start in tops if not _OPTIMIZER.fullmatch(start)]
  for start in starts:
    if found := families.recognise(families.without_prefix(start, names)):
      family, inner = found[0], start + found[1]
      break
  else:
    known = ', '.join(f.label for f in families.FAMILIES.values())
    raise ValueError(
        f'The {len(names)} arrays of {opened.path} are not those of a known '
        f'family{f" under {prefix!r}" if prefix else ""}. Families: {known}. '
        f'The first arrays: {", ".join(names[:8])}.')
  copies = _copies(family, names)
  shared = {part: both for part, rest in copies.items()
            if part != inner and (both := rest & copies.get(inner, set()))}
  if prefix is None and shared:
    parts = [repr(part) for part in (inner, *shared)]
    raise ValueError(
        f'{opened.path} holds the same parameters more than once: '
        f'{min(next(iter(shared.values())))} is under '
        f'{" and under ".join(parts)}. Choose one: '
        + ' or '.join(f'prefix={part}' for part in parts) + '.')
  return family, inner


def _copies(
    family: families.Family, names: Sequence[str],
) -> dict[str, set[str]]:
  """Returns the prefixes of all copies of the model, and the names after them.
  """
  found: dict[str, set[str]] = {}
  for name in names:
    starts = [0, *(m.end() for m in re.finditer('[/.]', name))]
    start = next(
        (i for i in starts if layout.has_row(family.table, name[i:])), None)
    if start is not None and not _OPTIMIZER.fullmatch(name[:start]):
      found.setdefault(name[:start], set()).add(name[start:])
  return {prefix: rest for prefix, rest in found.items()
          if families.has_stem(family, sorted(rest))}


# --------------------------------------------------------------------- values


def shapes(
    found: Found, *, heads: int, pool_heads: int = 0,
) -> dict[str, np.ndarray]:
  """Returns the parameters as zeros that take no memory.

  Args:
    found: the arrays.
    heads: number of attention heads.
    pool_heads: heads of attention pooling; 0 for `heads`.

  Raises:
    ValueError: if shapes do not fit the name table or the number of heads.
  """
  headers = found.opened.headers
  return _convert(found, lambda match, lengths: np.broadcast_to(
      np.float32(0), layout.our_shape(
          [headers[found.prefix + name].shape for name in match.theirs], match,
          **lengths)), heads, pool_heads or heads)


def read(
    found: Found, *, heads: int, pool_heads: int = 0,
) -> dict[str, np.ndarray]:
  """Returns the parameters by our names; see `shapes`."""
  return _convert(found, lambda match, lengths: layout.to_ours(
      [found.opened.read(found.prefix + name) for name in match.theirs], match,
      **lengths), heads, pool_heads or heads)


def _convert(
    found: Found,
    convert: Callable[[layout.Match, dict[str, int]], np.ndarray],
    heads: int, pool_heads: int,
) -> dict[str, np.ndarray]:
  params, problems = {}, []
  for match in found.matches:
    lengths = {'parts': 2 if 'pooling/key_value/' in match.ours else 3,
               'heads': heads, 'pool_heads': pool_heads}
    try:
      params[match.ours] = convert(match, lengths)
    except ValueError as error:
      flat = len(found.opened.headers[
          found.prefix + match.theirs[0]].shape) == 2
      problems.append(f'{error}' + (
          ': flattened patches of images of any aspect ratio (NaFlex), which '
          'our models lack' if match.ours == 'patches/kernel' and flat else ''))
  if problems:
    raise ValueError(f'{found.opened.path} has arrays of unexpected shapes:\n'
                     + files.indented(problems))
  if any('visual_projection.weight' in match.theirs
         for match in found.matches):  # The projection of CLIP has no bias.
    params['head/dense/bias'] = np.zeros(
        params['head/dense/kernel'].shape[-1], np.float32)
  return families.split_pairs(params)


def fold_register_positions(
    params: Mapping[str, np.ndarray], prefix: int,
) -> dict[str, np.ndarray]:
  """Adds the position embeddings of timm's registers to the registers.

  Both are learned and independent of the image, so one array is enough.

  Args:
    params: parameters of a model.
    prefix: number of position embeddings before those of the patches.
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
