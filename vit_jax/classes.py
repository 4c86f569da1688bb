"""The rule by which the classes of a head and of data are matched: by name.

    the same names in any order  they fit; the caller renumbers one side
    fewer names                  they fit if the data is only evaluated
    no names on one side         matched by index, and a line says so
    anything else                an error with both lists

Classes in another order, or as many others, would give plausible wrong results
without a message, so every place where a head meets data or another head uses
this rule. So do names of regression targets, whose order must be the same.
"""

import collections
from collections.abc import Sequence
import dataclasses

from vit_jax.exceptions import UserError

_REMEDY = (
    'Names must be the same; data to evaluate may lack some. Name the classes '
    'of weights with main.py convert --labels=FILE --format=orbax (one name a '
    'line), evaluate without a head (--evaluators=knn) or on the classes that '
    'both have (shift), or train a new head in another --workdir (init.new).')
_SHOWN = 6  # Names of a list in a message.


@dataclasses.dataclass(frozen=True)
class Classes:
  """Classes or regression targets of a head or of data.

  Attributes:
    owner: 'the model' or 'the data', as sentences call it.
    count: number of classes.
    names: in the order of their indices; empty if unknown.
    source: the checkpoint or dataset, which the lists of messages name too.
    ordered: whether they cannot be renumbered: targets, or values of masks.
  """
  owner: str
  count: int
  names: Sequence[str] = ()
  source: str = ''
  ordered: bool = False

  @property
  def title(self) -> str:
    """Owner with its source."""
    return f'{self.owner} ({self.source})' if self.source else self.owner


def match(
    found: Classes, expected: Classes, *, subset: bool = False,
) -> tuple[tuple[int, ...], str]:
  """Returns the index in `expected` of each class of `found`, and a line.

  There are no indices if they stay as they are. The line is to be printed, or
  ''. With `subset`, `found` may lack classes.

  Raises:
    UserError: if they do not fit.
  """
  ours, theirs = tuple(found.names), tuple(expected.names)
  if not (ours and theirs):
    if found.count == expected.count:
      return (), (
          f'note: {expected.title if ours else found.title} has no class '
          f'names, so the {found.count:,} classes are matched by index: '
          f'{[*ours, *theirs, "class 0"][0]} is class 0 of both')
  elif ours == theirs:
    return (), ''
  elif not (found.ordered or expected.ordered):
    index = {name: i for i, name in enumerate(theirs)}
    is_unique = len(index) == len(theirs) and len({*ours}) == len(ours)
    if is_unique and index.keys() >= {*ours} and (
        subset or len(ours) == len(theirs)):
      return tuple(index[name] for name in ours), ''
  order = ', or in another order' * (bool(ours) and {*ours} == {*theirs})
  raise UserError(
      f'{found.owner[:1].upper()}{found.owner[1:]} has other classes than '
      f'{expected.owner}{order}.\n  {_list(found, expected)}\n  '
      f'{_list(expected, found)}\n{_REMEDY}')


def shorten(names: Sequence[str]) -> str:
  """Returns the first names, and how many there are if there are more."""
  more = f', ... ({len(names):,} names)' if len(names) > _SHOWN else ''
  return ', '.join(names[:_SHOWN]) + more


def _list(side: Classes, other: Classes) -> str:
  """Returns the names of one side, with those that do not fit."""
  known = {*other.names}
  only = [name for name in side.names if name not in known]
  twice = [name for name, count in collections.Counter(side.names).items()
           if count > 1]
  return '; '.join(filter(None, [
      f'{side.title}: {shorten(side.names) or f"{side.count:,} without names"}',
      f'only here: {shorten(only)}' * bool(known and only),
      f'several times: {shorten(twice)}' * bool(twice)]))
