"""The rule by which the classes of a head and of data are matched: by name.

    the same names in the same order  they fit
    no names on one side              matched by index, and a line says so
    anything else                     an error with both lists and what to do

Classes in another order, or as many others, would give plausible wrong results
without a message, so every place where a head meets data or another head uses
this rule. Names of regression targets follow it too.
"""

import collections
from collections.abc import Sequence
import dataclasses

# The command that gives weights the names of the data, for `rename`.
CONVERT = 'main.py convert --labels=FILE --format=orbax'
_SHOWN = 6  # Names of a list in a message.


@dataclasses.dataclass(frozen=True)
class Classes:
  """Classes or regression targets of a head or of data.

  Attributes:
    owner: 'the model' or 'the data', as sentences call it.
    count: number of classes.
    names: in the order of their indices; empty if unknown.
    source: the checkpoint or dataset, which the lists of messages name too.
  """
  owner: str
  count: int
  names: Sequence[str] = ()
  source: str = ''

  @property
  def title(self) -> str:
    """Owner with its source."""
    return f'{self.owner} ({self.source})' if self.source else self.owner

  def __str__(self) -> str:
    return f'{self.title}: {shorten(self.names) or "no class names"}'


def match(
    found: Classes, expected: Classes, *, remedy: str, rename: str = '',
    restrict: str = '',
) -> str:
  """Compares classes; returns a line to print, or ''.

  Args:
    found: one side, the subject of messages.
    expected: the other side.
    remedy: sentences on what to do.
    rename: command that names the classes of weights by a file, which is a
      remedy if both sides have as many.
    restrict: how to measure only on the classes of `found`, if `expected` has
      them too, without a full stop.

  Raises:
    ValueError: unless the names are equal, or a side with as many classes has
      no names.
  """
  remedy += _same_classes(found, expected, rename)
  ours, theirs = tuple(found.names), tuple(expected.names)
  if ours == theirs and ours:
    return ''
  if not (ours and theirs):
    if found.count != expected.count:
      raise _error(f'{found.owner} has {found.count:,} classes, but '
                   f'{expected.owner} has {expected.count:,}',
                   found, expected, remedy)
    return (f'note: {expected.title if ours else found.title} has no class '
            f'names, so the {found.count:,} classes are matched by index: '
            f'{[*ours, *theirs, "class 0"][0]} is class 0 of both')
  _check_unique(found, expected, remedy)
  only, missing = _missing(found, expected), _missing(expected, found)
  if only or missing:
    if restrict and len(only) < len(ours):
      remedy = restrict + (f', on data without {shorten(only)}' if only
                           else '') + f'. {remedy}'
    raise _error(
        f'{found.owner} has other classes than {expected.owner}: ' + '; '.join(
            f'only in {side.owner}: {shorten(names)}' for names, side in (
                (only, found), (missing, expected)) if names),
        found, expected, remedy)
  first = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b)
  raise _error(
      f'Compared with {expected.owner}, {found.owner} numbers the same classes '
      f'differently: class {first} is {ours[first]!r} instead of '
      f'{theirs[first]!r}', found, expected, remedy)


def indices(
    found: Classes, expected: Classes, *, remedy: str, rename: str = '',
) -> dict[str, int]:
  """Returns the index in `expected` of each class of `found`.

  Raises:
    ValueError: unless `expected` has them all, once.
  """
  remedy += _same_classes(found, expected, rename)
  _check_unique(found, expected, remedy)
  unknown = _missing(found, expected)
  if unknown:
    raise _error(
        f'{found.owner} has {len(unknown):,} class{"es" * (len(unknown) > 1)} '
        f'that {expected.owner} lacks: {shorten(unknown)}',
        found, expected, remedy)
  return {name: i for i, name in enumerate(expected.names)}


def shorten(names: Sequence[str]) -> str:
  """Returns the first names, and how many there are if there are more."""
  more = f', ... ({len(names):,} names)' if len(names) > _SHOWN else ''
  return ', '.join(names[:_SHOWN]) + more


def _same_classes(found: Classes, expected: Classes, rename: str) -> str:
  if not rename or found.count != expected.count:
    return ''
  return (' If the classes are the same, give the weights the names of the '
          f'data: {rename} (one name a line).')


def _missing(one: Classes, other: Classes) -> list[str]:
  present = frozenset(other.names)
  return [name for name in one.names if name not in present]


def _check_unique(found: Classes, expected: Classes, remedy: str) -> None:
  twice = [name for side in (found, expected) for name, count in
           collections.Counter(side.names).items() if count > 1]
  if twice:
    raise _error(
        f'{found.owner} cannot be matched with {expected.owner} by name, '
        f'because classes have the same name: {shorten(twice)}',
        found, expected, remedy)


def _error(
    problem: str, found: Classes, expected: Classes, remedy: str) -> ValueError:
  problem = problem[0].upper() + problem[1:]
  return ValueError(f'{problem}.\n  {found}\n  {expected}\n{remedy}')
