"""Labels that the nearest pictures disagree with.

Each example is left out in turn; those nearest to it by the cosine of their
features, and no duplicates of it, vote for its class. That is no proof: it
finds what a person should look at, and how well it does so is the features'.
"""

from collections.abc import Iterator
import dataclasses

from jaxtyping import Float, Float32, Int
import numpy as np

from vit_jax.check import scan as scan_lib

_QUERIES, _BANK = 1024, 8192  # Rows of a product of matrices: 32 MiB at once.
_SHOWN = 3  # Neighbours that a page shows beside an example.
_FEWEST = 3  # Neighbours that say anything; fewer have no verdict.


@dataclasses.dataclass(frozen=True)
class Settings:
  """Who votes, and when a label is suspicious.

  Attributes:
    neighbours: how many vote.
    min_margin: the least share of votes that another class has more than the
      label's.
    max_bank: examples, evenly chosen, among which neighbours are sought.
  """
  neighbours: int = 20
  min_margin: float = 0.5
  max_bank: int = 50_000

  def __post_init__(self):
    if self.neighbours < 1 or self.max_bank < 1:
      raise ValueError(
          'There must be at least one neighbour; got '
          f'{self.neighbours} of {self.max_bank}.')
    if not 0 <= self.min_margin <= 1:
      raise ValueError(
          f'The least margin is a share of votes in [0, 1]; got '
          f'{self.min_margin}.')


@dataclasses.dataclass(frozen=True)
class Suspect:
  """An example whose neighbours agree on another class.

  Attributes:
    number: of the example.
    suggested: the class that most votes are for.
    margin: the share of votes that it has more than the label.
    closeness: mean cosine of the neighbours.
    nearest: the nearest examples of that class.
  """
  number: int
  suggested: int
  margin: float
  closeness: float
  nearest: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Result:
  """What the neighbours say.

  Attributes:
    suspects: the most certain first; of equal margins, those whose neighbours
      are closest.
    agreement: share of all examples whose neighbours name their label: how far
      the features can be trusted. None where there is nothing to compare.
    reason: why there is nothing to compare.
  """
  suspects: tuple[Suspect, ...] = ()
  agreement: float | None = None
  reason: str = ''


def find(
    scan: scan_lib.Scan, groups: Int[np.ndarray, 'examples'],
    settings: Settings,
) -> Result:
  """Returns the examples whose neighbours disagree with their labels.

  Args:
    scan: what was read.
    groups: of duplicates, which have no vote on each other.
    settings: who votes.
  """
  if scan.asked.kind != 'classes':
    return Result(reason=f'labels are {scan.asked.kind}, and not one class')
  numbers = np.flatnonzero(scan.readable & (scan.labels >= 0))
  if len(numbers) < 3:
    return Result(reason='too few examples have a label')
  classes = np.array([int(v[0]) for v in scan.label_values])
  labels = classes[scan.labels[numbers]]
  rows = scan.features[numbers].astype(np.float32)
  if not np.isfinite(rows).all():
    return Result(reason='the features of some are not finite')
  chosen = np.unique(np.linspace(
      0, len(numbers) - 1, min(len(numbers), settings.max_bank)).astype(int))
  rows = _unit(rows - rows[chosen].mean(axis=0))
  suspects, right, compared = [], 0, 0
  for first, cosines, found in _nearest(
      rows, chosen, groups[numbers], settings.neighbours):
    own = labels[first:first + len(found)]
    votes = _votes(cosines, labels[found], len(scan.asked.class_names))
    best = votes.argmax(axis=1)
    heard = (cosines > 0).sum(axis=1) >= _FEWEST
    margin = votes.max(axis=1) - votes[np.arange(len(own)), own]
    right += int((heard & (best == own)).sum())
    compared += int(heard.sum())
    for row in np.flatnonzero(
        heard & (best != own) & (margin >= settings.min_margin)):
      agree = labels[found[row]] == best[row]
      suspects.append(Suspect(
          int(numbers[first + row]), int(best[row]), float(margin[row]),
          float(cosines[row].mean()),
          tuple(numbers[found[row][agree][:_SHOWN]].tolist())))
  return Result(
      tuple(sorted(suspects, key=lambda s: (
          -round(s.margin, 2), -s.closeness, s.number))),
      right / max(compared, 1))


def _nearest(
    rows: Float32[np.ndarray, 'examples width'], bank: Int[np.ndarray, '_'],
    groups: Int[np.ndarray, 'examples'], count: int,
) -> Iterator[tuple[int, Float[np.ndarray, 'queries k'],
                    Int[np.ndarray, 'queries k']]]:
  """Yields the first row, cosines and rows of the nearest, nearest first.

  Those of the same group have a cosine of 0: no vote.
  """
  for first in range(0, len(rows), _QUERIES):
    queries = rows[first:first + _QUERIES]
    own = groups[first:first + len(queries), None]
    best = np.zeros((len(queries), 0), np.float32)
    found = np.zeros((len(queries), 0), np.int64)
    for start in range(0, len(bank), _BANK):
      part = bank[start:start + _BANK]
      cosines = np.where(own == groups[part], 0, queries @ rows[part].T)
      names = np.broadcast_to(part, (len(queries), len(part)))
      best, found = _top(np.concatenate([best, cosines], axis=1),
                         np.concatenate([found, names], axis=1), count)
    yield first, best, found


def _top(
    values: np.ndarray, names: np.ndarray, count: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the largest of each row and their names, the largest first."""
  if values.shape[1] > count:
    kept = np.argpartition(-values, count - 1, axis=1)[:, :count]
    values, names = (np.take_along_axis(x, kept, 1) for x in (values, names))
  order = np.argsort(-values, axis=1, kind='stable')
  return (np.take_along_axis(values, order, 1),
          np.take_along_axis(names, order, 1))


def _votes(
    cosines: Float[np.ndarray, 'queries k'], labels: Int[np.ndarray, '...'],
    num_classes: int,
) -> Float[np.ndarray, 'queries classes']:
  """Returns the share of each class; who points away has no vote."""
  weights = np.maximum(cosines, 0).astype(np.float64)
  votes = np.zeros((len(labels), num_classes))
  np.add.at(votes, (np.arange(len(labels))[:, None], labels), weights)
  return votes / np.maximum(votes.sum(axis=1, keepdims=True), 1e-12)


def _unit(
    rows: Float32[np.ndarray, 'rows width'],
) -> Float32[np.ndarray, 'rows width']:
  return rows / np.maximum(
      np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
