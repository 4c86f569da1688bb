"""Arrays of a file by its names become parameters by ours."""

from collections.abc import Sequence

import numpy as np

from vit_jax.checkpoints import inference
from vit_jax.checkpoints import statement
from vit_jax.interop import files
from vit_jax.interop import layout
from vit_jax.interop import names as names_lib


def recognise(
    opened: files.ArrayFile,
) -> tuple[names_lib.Family, str, list[layout.Match], list[str]]:
  """Returns family, prefix, parameters, and the names that are left out."""
  found = names_lib.recognise(list(opened.headers))
  if found is None:
    known = ', '.join(f.label for f in names_lib.FAMILIES.values())
    raise ValueError(
        f'{opened.path} holds {len(opened.headers)} arrays, but not those of a '
        f'family that is known ({known}). The first: '
        f'{", ".join(list(opened.headers)[:8])}.')
  family, prefix = found
  inside = [n.removeprefix(prefix) for n in opened.headers
            if n.startswith(prefix)]
  outside = [n for n in opened.headers if not n.startswith(prefix)]
  matches, ignored, problems = layout.matches(family.table, inside)
  if problems:
    raise ValueError(
        f'{opened.path} was taken for {family.label}, but:\n'
        + statement.indented(problems))
  for match in matches:
    for name in match.theirs:
      header = opened.headers[prefix + name]
      if not files.is_parameter(header):
        raise ValueError(
            f'{opened.path}: {prefix + name} has dtype {header.dtype}, but a '
            'parameter must be float32, float16, bfloat16 or float64.')
  return family, prefix, matches, [prefix + n for n in ignored] + outside


def without_pooler(
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


def read(
    opened: files.ArrayFile, matches: Sequence[layout.Match], prefix: str,
    heads: int,
) -> dict[str, np.ndarray]:
  params, problems = {}, []
  for match in matches:
    arrays = [opened.read(prefix + name) for name in match.theirs]
    parts = 2 if '/key_value/' in match.ours else 3
    try:
      params[match.ours] = layout.to_ours(
          arrays, match, parts=parts, heads=heads)
    except ValueError as error:
      problems.append(str(error))
  if problems:
    raise ValueError(
        f'{opened.path} does not hold what its names promise:\n'
        + statement.indented(problems))
  params = names_lib.split_pairs(params)
  _fold_register_positions(params)
  return params


def _fold_register_positions(params: dict[str, np.ndarray]) -> None:
  """Adds the positions of registers, where timm has them, to the registers.

  Both are learned and the same for each image: one array is enough.
  """
  if not {'registers', 'positions'} <= set(params):
    return
  registers, positions = params['registers'], params['positions']
  start, count = int('cls' in params), len(registers)
  if (inference.is_square(len(positions) - start - count)
      and not inference.is_square(len(positions) - start)):
    theirs = positions[start:start + count]
    if theirs.any():
      params['registers'] = registers + theirs
    params['positions'] = np.concatenate(
        [positions[:start], positions[start + count:]])
