"""Holds out a part of each class as `test`, for data without splits.

Within each class, the images with the lowest hashes of their names are held
out. So every class has its share, and an added image moves at most one other.
"""

import collections
from collections.abc import Sequence

from jaxtyping import Bool, Integer, UInt64
import numpy as np

from vit_jax.data.splits import split_strings

FEW = 5  # With fewer images, the accuracy of a class means little.


def hold_out(
    groups: UInt64[np.ndarray, 'rows'],
    classes: Integer[np.ndarray, 'rows'] | None, *,
    names: Sequence[str] = (), fraction: float,
) -> Bool[np.ndarray, 'rows']:
  """Returns which rows are held out.

  Rows of an equal group stay together, and each class keeps rows to train on.
  A small dataset holds out at least one group, if a class has two.

  Args:
    groups: 64-bit hash of the group of each row; equal ones are one group.
    classes: class of each row; None for several labels or regression, where
      every group is held out with the same probability.
    names: names of the classes.
    fraction: share of each class.
  """
  if classes is None:
    held = groups % 100 + groups // 100 % 100 / 100 < 100 * fraction
  else:
    held = _stratified(groups, classes, names, fraction)
  held = _keep_trainable(held, groups, classes)
  if not held.any():
    for group in np.unique(groups)[:100]:
      held = _keep_trainable(groups == group, groups, classes)
      if held.any():
        break
  return held


def _stratified(
    groups: UInt64[np.ndarray, 'rows'], classes: Integer[np.ndarray, 'rows'],
    names: Sequence[str], fraction: float,
) -> Bool[np.ndarray, 'rows']:
  """Holds out groups, in the order of hashes, until no class needs more."""
  counts = np.bincount(classes).tolist()
  wanted = _targets(np.bincount(classes), names, fraction).tolist()
  order = np.argsort(groups, kind='stable')
  labels = classes[order].data
  ends = np.append(np.flatnonzero(np.diff(groups[order])) + 1, len(order))
  held, found = np.zeros(len(groups), bool), [0] * len(counts)
  missing, start = sum(map(bool, wanted)), 0
  for end in ends.data:
    # A group is held out if that brings its classes closer to their targets.
    sizes = collections.Counter(labels[start:end])
    gain = sum(abs(found[c] - wanted[c]) - abs(found[c] + n - wanted[c])
               for c, n in sizes.items())
    if gain > 0 and all(found[c] + n < counts[c] for c, n in sizes.items()):
      held[order[start:end]] = True
      for c, n in sizes.items():
        missing -= found[c] < wanted[c] <= found[c] + n
        found[c] += n
      if not missing:
        break
    start = end
  return held


def _targets(
    counts: Integer[np.ndarray, 'classes'], names: Sequence[str],
    fraction: float,
) -> Integer[np.ndarray, 'classes']:
  """Returns the number of rows to hold out of each class.

  Shares below one image are rounded up for some classes, chosen by a hash of
  their names, so that data with few images per class still hold out that
  fraction overall.
  """
  share = fraction * counts
  chance = np.array([
      split_strings.stable_hash(str(names[c]) if names else str(c)) / 2**64
      for c in range(len(counts))])
  rounded = np.floor(share + np.where(share < 1, chance, 0.5)).astype(np.int64)
  return np.minimum(rounded, np.maximum(counts - 1, 0))


def _keep_trainable(
    held: Bool[np.ndarray, 'rows'], groups: UInt64[np.ndarray, 'rows'],
    classes: Integer[np.ndarray, 'rows'] | None,
) -> Bool[np.ndarray, 'rows']:
  """Releases held-out groups with a class that has no other rows."""
  if classes is not None:
    trained = np.bincount(classes[~held], minlength=classes.max() + 1) > 0
    held = held & ~np.isin(groups, groups[held & ~trained[classes]])
  return held & (not held.all())


def describe_few(
    classes: Integer[np.ndarray, 'rows'], held: Bool[np.ndarray, 'rows'],
    names: Sequence[str],
) -> list[str]:
  """Returns a note that names classes with few held-out rows."""
  counts = np.bincount(classes[held], minlength=len(names))
  few = [f'{name} {count}' for name, count in zip(names, counts.tolist())
         if count < FEW]
  return [f'fewer than {FEW} held-out images of {len(few)} of {len(names)} '
          f'classes ({", ".join(few[:8])}{", ..." * (len(few) > 8)}): raise '
          'data.holdout or add images'] if few else []
