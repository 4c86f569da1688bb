"""Leaves out the examples whose keys are in a file, a line each.

`main.py deduplicate` writes such a file: what a model will be tested on.
"""

from collections.abc import Collection
import dataclasses

from etils import epath
from jaxtyping import Bool
import numpy as np

from vit_jax import schema
from vit_jax.data.sources import protocol
from vit_jax.data.splits import random_subsets
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True)
class Excluded:
  """What became of a file of keys.

  Attributes:
    path: the file.
    keys: how many it holds.
    examples: how many examples were left out.
  """
  path: str
  keys: int
  examples: int

  def __str__(self) -> str:
    elsewhere = self.keys - self.examples
    return f'{self.examples:,} examples are left out: {self.path}' + (
        f' ({elsewhere:,} more of its keys are of no example of this split)'
        if elsewhere > 0 else '')


def read_keys(path: str) -> frozenset[str]:
  """Returns the lines of a file.

  Raises:
    ValueError: if there is no such file.
  """
  try:
    text = epath.Path(path).expanduser().read_text()
  except OSError as error:
    raise ValueError(
        f'data.exclude names {path}, which cannot be read: {error}. Write it '
        'with `python main.py deduplicate`, or name another.') from error
  # Not `splitlines`: a name may hold what Unicode calls the end of a line.
  return frozenset(line for line in text.split('\n') if line)


def exclude(
    source: protocol.Source, path: str, *, name: str,
) -> tuple[protocol.Source, Excluded]:
  """Returns the examples that a file of keys does not name, in their order.

  Raises:
    ValueError: if there is no such file, if none of its keys is one of the
      examples', or if it names them all.
  """
  keys = read_keys(path)
  marks = np.concatenate(
      [np.zeros(0, bool), *(_marks(part, first, last, keys)
                            for part, first, last in split_strings.parts(source))])
  found = int(marks.sum())
  if keys and not found:
    key = min(keys)
    raise ValueError(
        f'None of the {len(keys):,} keys of {path} (data.exclude) is one of '
        f'{name}: {key!r} is none, {source.key(0)!r} is one.'
        f'{schema.nearest(key, [source.key(0)])} Was the file written for '
        'another data set, or for another split?')
  if found == len(marks):
    raise ValueError(f'{path} (data.exclude) names every example of {name}.')
  return (random_subsets.mark(source, ~marks) if found else source,
          Excluded(path, len(keys), found))


def _marks(
    source: protocol.Source, first: int, last: int, keys: Collection[str],
) -> Bool[np.ndarray, 'examples']:
  """Says of each example of a range whether its key is one of `keys`."""
  if not isinstance(source, protocol.Numbered):
    return np.fromiter(
        (source.key(i) in keys for i in range(first, last)), bool,
        last - first)
  # Hundreds of millions of keys are not made to look for a few thousand.
  marks = np.zeros(last - first, bool)
  name, offset = source.numbering
  for key in keys:
    before, _, number = key.rpartition(' ')
    if before == name and number.isdecimal():
      index = int(number) - offset
      if first <= index < last:
        marks[index - first] = True
  return marks
