"""Groups of images that stay together, such as a patient's (`data.group`).

A group is the cell of a column or, for images without a table, what a pattern
finds in the path. Sources keep a 64-bit hash per example. A hold-out, a slice
and a sample never put the images of a group on two sides; splits that do so
themselves are an error.
"""

from collections.abc import Mapping, Sequence
import re
from typing import Any, Literal

from jaxtyping import UInt64
import numpy as np

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

Divided = Literal['error', 'allow']


def find_in_paths(
    paths: Sequence[str], pattern: str, *, where: str,
) -> columns_lib.Column | None:
  """Returns what a pattern finds in each path; None without a pattern.

  Raises:
    ValueError: if the pattern is wrong, or does not match a path.
  """
  if not pattern:
    return None
  usage = ('For images without a table, data.group is a regular expression '
           r"with one group, such as '(P\d+)_', which is searched in the path "
           f'of each image relative to {where}.')
  try:
    compiled = re.compile(pattern)
    problem = f'has {compiled.groups} groups in parentheses'
  except re.error as error:
    compiled, problem = None, f'is not a regular expression: {error}'
  if compiled is None or compiled.groups != 1:
    raise ValueError(f'data.group is {pattern}, which {problem}. {usage}')
  found = [match[1] if match else '' for match in map(compiled.search, paths)]
  missing = [path for path, name in zip(paths, found) if not name]
  if missing:
    raise ValueError(
        f'data.group {pattern} finds no group in {len(missing):,} of '
        f'{len(paths):,} images: {files.shorten(missing)}. {usage} Each image '
        'needs a group.')
  return columns_lib.texts(found)


def hashes(
    column: columns_lib.Column, *, group: str, where: str,
) -> UInt64[np.ndarray, 'rows']:
  """Returns the hash of each row's group, cleaned as labels are.

  Raises:
    ValueError: if a row has no group.
  """
  def hash_cell(cell: Any) -> int:
    cell = columns_lib.clean(cell)
    return 0 if cell in (None, -1) else split_strings.stable_hash(str(cell))

  found = columns_lib.apply(column, hash_cell, np.uint64)
  empty = np.flatnonzero(found == 0)
  if len(empty):
    raise ValueError(
        f'{len(empty):,} of {len(found):,} rows of {where} have no group in '
        f'{group!r} (data.group; the first: row {empty[0] + 1}). Fill them in, '
        'for example with a name of its own for each image of unknown origin.')
  return found


def check_present(
    splits: Mapping[str, protocol.Source], group: str, *, name: str) -> None:
  """Raises a ValueError if groups are configured, but no split has any."""
  if group and not any(map(split_strings.has_groups, splits.values())):
    raise ValueError(
        f'data.group is {group!r}, but {name} has no groups: only your own '
        'files (class folders, tables, Parquet, WebDataset, the Hugging Face '
        'Hub) have, and what `data prepare` wrote of them. Remove it.')


def check_all_have(
    splits: Mapping[str, protocol.Source], *, where: str, divided: Divided,
) -> None:
  """Raises a ValueError if only some splits have groups, unless 'allow'."""
  has = {name: split_strings.has_groups(source)
         for name, source in splits.items() if len(source)}
  if divided != 'allow' and any(has.values()) and not all(has.values()):
    raise ValueError(
        f'{" and ".join(n for n in has if has[n])} of {where} have groups '
        f'(data.group), but {" and ".join(n for n in has if not has[n])} do '
        'not, so the same groups may be in both. Give all of them groups, or '
        'accept it with --config.data.divided_groups=allow.')


def check_undivided(
    splits: Mapping[str, protocol.Source], *, where: str, divided: Divided,
) -> list[str]:
  """Returns a note if groups are in several splits.

  Messages name a group by one of its images.

  Raises:
    ValueError: if groups are in several splits and this is an error, with some
      of them and counts.
  """
  found = {split: of for split, source in splits.items()
           if (of := split_strings.groups(source)) is not None}
  groups, counts = np.unique(np.concatenate(
      [np.zeros(0, np.uint64), *map(np.unique, found.values())]),
                             return_counts=True)
  several = groups[counts > 1]
  if not len(several):
    return []

  def describe(group: np.uint64) -> str:
    rows = {split: at for split, of in found.items()
            if len(at := np.flatnonzero(of == group))}
    split, at = next(iter(rows.items()))
    return f'that of {splits[split].key(int(at[0]))} (' + ', '.join(
        f'{split} {len(at):,}' for split, at in rows.items()) + ')'

  text = (f'{len(several):,} of {len(groups):,} groups of {where} have images '
          'in several splits: ' + files.shorten(
              map(describe, several[:4])))
  if divided == 'allow':
    return [text]
  raise ValueError(
      f'{text}. A model that was trained on images of a group may recognise '
      'the others. Move each group (data.group) to one split, or accept it '
      'with --config.data.divided_groups=allow.')


def describe(splits: Mapping[str, protocol.Source]) -> str:
  """Returns the numbers of groups: 'groups: train 27, test 3'; or ''."""
  counts = [f'{split} {len(np.unique(of)):,}' for split, source in
            splits.items() if (of := split_strings.groups(source)) is not None]
  return f'groups: {", ".join(counts)}' * bool(counts)
