"""Arrays of a file by its names become parameters by ours."""

from collections.abc import Mapping, Sequence
import dataclasses
import re

import numpy as np

from vit_jax.weights import files
from vit_jax.weights import layout
from vit_jax.weights import load_report
from vit_jax.weights import names as names_lib

_ANCHORS = ('patches/kernel', 'backbone/root/kernel')  # Every model has one.
# A moving average in it has the names of the parameters; but what Flax calls
# the target of an optimizer are the parameters.
_OPTIMIZER = re.compile(
    r'(.*[/.])?(opt|optim|optimizer|opt_state|optimizer_state)[/.]'
    r'(?!target/).*')
_FIRST = re.compile(r'[^/.]+[/.]')
_DISTILLED = re.compile(
    r'(.*\.)?(dist_token|distillation_token|head_dist\..*'
    r'|(cls|distillation)_classifier\..*)')
# These patterns keep the heads in one axis with what each has.
_JOINED = ('(heads e)', '(parts heads e)')


@dataclasses.dataclass(frozen=True)
class Found:
  """A file of a family that is known.

  Attributes:
    opened: the file.
    family: its family.
    prefix: what stands before every name of a parameter.
    matches: its parameters, and the arrays that they are made of.
    left_out: arrays that are no parameters of the model.
  """
  opened: files.ArrayFile
  family: names_lib.Family
  prefix: str
  matches: tuple[layout.Match, ...]
  left_out: tuple[str, ...]

  @property
  def heads_apart(self) -> bool:
    """Whether the shapes tell the number of heads."""
    return not any(_joins_heads(match) for match in self.matches)


def find(opened: files.ArrayFile, *, prefix: str | None = None) -> Found:
  """Recognises a file by the names in it.

  Args:
    opened: the file.
    prefix: what stands before the names of the parameters, if it is said.

  Raises:
    ValueError: if the names are those of no family, of a model that we have
      no place for, or of two copies of one.
  """
  names = list(opened.headers)
  family, prefix = _choose(opened, names, prefix)
  inside = [n.removeprefix(prefix) for n in names if n.startswith(prefix)]
  other = {part + name for part, rest in _copies(family, inside).items()
           if part for name in rest}
  other |= {name for name in inside if _OPTIMIZER.fullmatch(name)}
  outside = [n for n in names if n.removeprefix(prefix) in other
             or not n.startswith(prefix)]
  inside = [n for n in inside if n not in other]
  distilled = [name for name in inside if _DISTILLED.fullmatch(name)]
  if distilled:
    raise ValueError(
        f'{opened.path} is a distilled DeiT: {", ".join(distilled)} are a '
        'distillation token and its head, which our models lack. Take the '
        'model of that size that was trained without distillation '
        '(deit_base_patch16_224, not deit_base_distilled_patch16_224).')
  matches, ignored, problems = layout.matches(family.table, inside)
  if problems:
    raise ValueError(
        f'{opened.path} was taken for {family.label}, but:\n'
        + load_report.indented(problems))
  matches, unused = _without_pooler(family, matches)
  for match in matches:
    for name in match.theirs:
      header = opened.headers[prefix + name]
      if not files.is_parameter(header):
        raise ValueError(
            f'{opened.path}: {prefix + name} has dtype {header.dtype}, but a '
            'parameter must be float32, float16, bfloat16 or float64.')
  return Found(opened, family, prefix, tuple(matches), tuple(
      [prefix + n for n in (*ignored, *unused)] + outside))


def _choose(
    opened: files.ArrayFile, names: Sequence[str], prefix: str | None,
) -> tuple[names_lib.Family, str]:
  if prefix is not None:
    found = names_lib.recognise(_under(prefix, names))
    if found is None:
      raise _unknown(opened, f' under {prefix!r}')
    return found[0], prefix + found[1]
  found = names_lib.recognise(names)
  if found is None:
    starts = dict.fromkeys(m[0] for m in map(_FIRST.match, names) if m)
    among = {start: f for start in starts
             if (f := names_lib.recognise(_under(start, names)))
             and not _OPTIMIZER.fullmatch(start)}
    if not among:
      raise _unknown(opened, '')
    start = next(iter(among))
    found = among[start][0], start + among[start][1]
  family, inner = found
  copies = _copies(family, names)
  shared = {part: both for part, rest in copies.items()
            if part != inner and (both := rest & copies.get(inner, set()))}
  if shared:
    parts = [repr(part) for part in (inner, *shared)]
    raise ValueError(
        f'{opened.path} holds the same parameters more than once: '
        f'{min(next(iter(shared.values())))} stands under '
        f'{" and under ".join(parts)}. Say which to read: '
        + ' or '.join(f'prefix={part}' for part in parts) + '.')
  return family, inner


def _unknown(opened: files.ArrayFile, where: str) -> ValueError:
  known = ', '.join(f.label for f in names_lib.FAMILIES.values())
  return ValueError(
      f'{opened.path} holds {len(opened.headers)} arrays, but{where} not those '
      f'of a family that is known ({known}). The first: '
      f'{", ".join(list(opened.headers)[:8])}.')


def _copies(
    family: names_lib.Family, names: Sequence[str],
) -> dict[str, set[str]]:
  """Returns the prefixes under which models stand, with the names there."""
  found: dict[str, set[str]] = {}
  for name in names:
    starts = [0, *(m.end() for m in re.finditer('[/.]', name))]
    start = next((i for i in starts if layout.knows(family.table, name[i:])),
                 None)
    if start is not None and not _OPTIMIZER.fullmatch(name[:start]):
      found.setdefault(name[:start], set()).add(name[start:])
  return {prefix: rest for prefix, rest in found.items()
          if any(layout.theirs_matches(family.table, anchor, sorted(rest))
                 for anchor in _ANCHORS)}


def _under(prefix: str, names: Sequence[str]) -> list[str]:
  return [n.removeprefix(prefix) for n in names if n.startswith(prefix)]


def _without_pooler(
    family: names_lib.Family, matches: list[layout.Match],
) -> tuple[list[layout.Match], list[str]]:
  """Leaves out the pooler that a classifier of Hugging Face carries along.

  Its head reads the class token; the tanh layer beside it is never used.
  """
  unused = [m for m in matches if m.ours.startswith('representation/')]
  has_head = any(m.ours.startswith('head/') for m in matches)
  if family.name != 'huggingface' or not has_head:
    return matches, []
  return ([m for m in matches if m not in unused],
          [name for m in unused for name in m.theirs])


# --------------------------------------------------------------------- values


def read(found: Found) -> dict[str, np.ndarray]:
  """Returns the parameters; where heads share an axis, it is one head's yet.

  Raises:
    ValueError: if shapes are not what the names promise.
  """
  params, problems = {}, []
  for match in found.matches:
    arrays = [found.opened.read(found.prefix + name) for name in match.theirs]
    parts = 2 if '/key_value/' in match.ours else 3
    try:
      params[match.ours] = layout.to_ours(
          arrays, match, parts=parts, heads=int(_joins_heads(match)))
    except ValueError as error:
      problems.append(str(error))
  if problems:
    raise ValueError(
        f'{found.opened.path} does not hold what its names promise:\n'
        + load_report.indented(problems))
  return names_lib.split_pairs(params)


def split_heads(
    params: Mapping[str, np.ndarray], found: Found, heads: int,
) -> dict[str, np.ndarray]:
  """Returns parameters with each head for itself: undoes what `read` left."""
  result = dict(params)
  for match in found.matches:
    if not _joins_heads(match):
      continue
    axes = match.layout.split('->')[1].split()
    names = [match.ours]
    if '/key_value/' in match.ours:
      names = [match.ours.replace('key_value', part)
               for part in ('key', 'value')]
      axes.remove('parts')
    axis = axes.index('heads')
    for name in names:
      shape = result[name].shape
      result[name] = result[name].reshape(
          *shape[:axis], heads, shape[axis + 1] // heads, *shape[axis + 2:])
  return result


def _joins_heads(match: layout.Match) -> bool:
  return any(group in match.layout for group in _JOINED)


def fold_register_positions(
    params: Mapping[str, np.ndarray], prefix: int,
) -> dict[str, np.ndarray]:
  """Adds the positions of registers, where timm has them, to the registers.

  Both are learned and the same for each image: one array is enough.

  Args:
    params: of a model.
    prefix: how many of the positions are not those of patches.
  """
  registers, positions = params.get('registers'), params.get('positions')
  count = 0 if registers is None else len(registers)
  start = prefix - count
  if registers is None or positions is None or start < 0:
    return dict(params)
  theirs = positions[start:prefix]
  if theirs.any():  # Else they stay what they are, to the sign of a zero.
    registers = registers + theirs
  return {**params, 'registers': registers, 'positions': np.concatenate(
      [positions[:start], positions[prefix:]])}
