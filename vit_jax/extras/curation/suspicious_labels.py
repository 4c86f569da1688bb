"""Labels that disagree with the labels of the nearest neighbours.

The neighbours of an example, its duplicates excluded, vote for a class by
their cosine. The result depends on the features and is a list of labels to
review, not of errors.
"""

from collections.abc import Sequence
import dataclasses

from jaxtyping import Bool, Float, Int
import numpy as np

from vit_jax import nearest_neighbours
from vit_jax.extras.curation import duplicates as duplicates_lib
from vit_jax.extras.curation import scan as scan_lib

_QUERIES = 1024  # Examples at a time, to bound memory.
_MAX_BANK = 50_000  # Neighbours are searched among this many examples.
_NEIGHBOURS, _MIN_VOTERS = 20, 3
_MIN_MARGIN = 0.5  # Share of votes by which another class must lead.
_SHOWN_NEIGHBOURS = 3


@dataclasses.dataclass(frozen=True)
class SuspiciousLabel:
  """An example whose nearest neighbours agree on another class.

  Attributes:
    example: the example.
    suggested: class with the most votes.
    margin: its share of votes minus the label's share.
    neighbours: the nearest examples of the suggested class.
  """
  example: scan_lib.Example
  suggested: str
  margin: float
  neighbours: tuple[scan_lib.Example, ...]


@dataclasses.dataclass(frozen=True)
class Result:
  """Suspicious labels, the most certain first; see `check.Report`."""
  suspicious: tuple[SuspiciousLabel, ...] = ()
  agreement: float | None = None
  not_compared: str = ''


def find(
    scan: scan_lib.Scan, duplicates: Sequence[duplicates_lib.DuplicateGroup],
) -> Result:
  """Returns examples whose neighbours agree on another class.

  Duplicates do not vote on each other.
  """
  if scan.request.embed is None:
    kind = scan.request.label_kind
    return Result(not_compared={
        'none': 'there are no labels', 'classes': 'there is no model',
    }.get(kind, f'labels are {kind}, not single classes'))
  labelled = scan.labelled()
  if len(labelled) < _MIN_VOTERS:
    return Result(not_compared='too few labelled examples')
  numbers = np.array(list(labelled))
  labels = np.array([int(label) for label, in labelled.values()])
  features = np.stack([
      np.asarray(scan.records[i].features, np.float32) for i in labelled])
  if not np.isfinite(features).all():
    return Result(not_compared='some features are not finite')
  groups = np.arange(len(scan.labels))  # Shared by duplicates.
  for group in duplicates:
    groups[[e.number for e in group.examples]] = group.examples[0].number
  groups = groups[numbers]
  bank = np.array(scan_lib.spread(len(numbers), _MAX_BANK))
  features = nearest_neighbours.unit(features - features[bank].mean(axis=0))
  suspicious: list[SuspiciousLabel] = []
  correct = compared = 0
  for start in range(0, len(numbers), _QUERIES):
    part = slice(start, start + _QUERIES)
    cosines, rows = _nearest(
        features[part] @ features[bank].T,
        groups[part][:, None] == groups[bank], k=min(_NEIGHBOURS, len(bank)))
    found, weights = bank[rows], np.maximum(cosines, 0)
    votes = nearest_neighbours.vote(
        labels[found], weights, num_classes=len(scan.request.class_names))
    votes /= np.maximum(votes.sum(axis=1, keepdims=True), 1e-12)
    own, best = labels[part], votes.argmax(axis=1)
    valid = (weights > 0).sum(axis=1) >= _MIN_VOTERS
    correct += int((valid & (best == own)).sum())
    compared += int(valid.sum())
    margin = votes.max(axis=1) - votes[np.arange(len(own)), own]
    chosen = valid & (best != own) & (margin >= _MIN_MARGIN)
    for row in np.flatnonzero(chosen).tolist():
      agreeing = found[row][labels[found[row]] == best[row]]
      suspicious.append(SuspiciousLabel(
          scan.example(int(numbers[start + row])),
          scan.request.class_names[best[row]], float(margin[row]),
          tuple(map(scan.example,
                    numbers[agreeing[:_SHOWN_NEIGHBOURS]].tolist()))))
  suspicious.sort(key=lambda s: (-s.margin, s.example.number))
  return Result(tuple(suspicious), correct / max(compared, 1))


def _nearest(
    cosines: Float[np.ndarray, 'queries bank'],
    excluded: Bool[np.ndarray, 'queries bank'], *, k: int,
) -> tuple[Float[np.ndarray, 'queries k'], Int[np.ndarray, 'queries k']]:
  """Returns the k largest cosines and their rows; excluded ones are -1."""
  cosines = np.where(excluded, -1, cosines)
  rows = np.sort(np.argpartition(-cosines, k - 1)[:, :k])
  found = np.take_along_axis(cosines, rows, axis=1)
  order = np.argsort(-found, axis=1, kind='stable')
  return (np.take_along_axis(found, order, axis=1),
          np.take_along_axis(rows, order, axis=1))
