"""A complete check: read images, find duplicates and suspicious labels."""

import collections
from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax import console
from vit_jax.extras.curation import duplicates as duplicates_lib
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import similarity
from vit_jax.extras.curation import suspicious_labels

_COMMON_SIZES = 5


@dataclasses.dataclass(frozen=True)
class Finding:
  """A line of the summary; `unit` is what is counted, such as 'images'.

  A harmful finding would stop a run or falsify its result.
  """
  kind: str
  unit: str
  count: int
  text: str
  harmful: bool = False


@dataclasses.dataclass(frozen=True)
class Report:
  """Result of a check.

  Attributes:
    source, description, label_kind: see `scan.ScanRequest`.
    splits: counts of each split: examples, checked, unreadable, unlabelled.
    classes: examples of each class in each split, the largest class first.
    ranges: minimum, median and maximum of 'width', 'height' and 'bytes'.
    sizes: counts of the most common sizes.
    findings: the summary, most harmful first.
    unreadable, duplicates, suspicious_labels: most harmful first.
    features: model whose features find nearest neighbours.
    label_agreement: share of examples whose neighbours predict their label.
    labels_not_compared: why `label_agreement` is None.
  """
  source: str
  description: str
  label_kind: str
  splits: dict[str, dict[str, int]]
  classes: dict[str, dict[str, int]]
  ranges: dict[str, tuple[int, int, int]]
  sizes: dict[str, int]
  findings: tuple[Finding, ...]
  unreadable: tuple[scan_lib.Unreadable, ...]
  duplicates: tuple[duplicates_lib.DuplicateGroup, ...]
  suspicious_labels: tuple[suspicious_labels.SuspiciousLabel, ...]
  features: str
  label_agreement: float | None
  labels_not_compared: str

  @property
  def harmful(self) -> bool:
    """Whether any finding is harmful."""
    return any(finding.harmful for finding in self.findings)

  def tables(self) -> list[tuple[str, list[str], list[list[Any]]]]:
    """Returns title, columns and rows of each table."""
    total = max(1, sum(row['checked'] - row['unlabelled']
                       for row in self.splits.values()))
    tables: list[tuple[str, list[str], list[list[Any]]]] = [
        ('Splits', ['split', 'examples', 'checked', 'unreadable', 'unlabelled'],
         [[name, *row.values()] for name, row in self.splits.items()]),
        (f'Classes: {len(self.classes):,}, with their share of the images',
         ['class', *self.splits, 'share'],
         [[name, *row.values(), console.format_percent(
             sum(row.values()) / total, digits=1)]
          for name, row in self.classes.items()]),
        ('Images', ['property', 'minimum', 'median', 'maximum'],
         [[name, *values] for name, values in self.ranges.items()]),
        ('Most common sizes', ['pixels', 'images'],
         [list(item) for item in self.sizes.items()]),
        (f'Unreadable: {len(self.unreadable):,}',
         ['split', 'example', 'reason'],
         [[u.example.split, u.example.key, u.reason]
          for u in self.unreadable])]
    return [table for table in tables if table[2]]

  def to_json(self) -> dict[str, Any]:
    """Returns the report as JSON values."""
    return dataclasses.asdict(self)


def check(
    request: scan_lib.ScanRequest, *, thresholds: similarity.Thresholds,
    features: str, advance: Callable[[int], None],
) -> Report:
  """Reads the dataset and reports its problems.

  For `advance` see `scan.scan`; `features` is for the report.
  """
  scan = scan_lib.scan(request, advance=advance)
  duplicates = duplicates_lib.find(scan, thresholds)
  labels = suspicious_labels.find(scan, duplicates)
  counts = _class_counts(scan)
  names = [split.name for split in request.splits]
  return Report(
      source=request.name, description=request.description,
      label_kind=request.label_kind, splits=_count_splits(scan),
      classes={request.class_names[i]: dict(zip(names, counts[:, i].tolist()))
               for i in np.argsort(-counts.sum(axis=0), kind='stable')},
      ranges=_ranges(scan), sizes=_common_sizes(scan),
      findings=_summarise(scan, counts, duplicates, labels),
      unreadable=tuple(scan_lib.Unreadable(scan.example(number), reason)
                       for number, reason in sorted(scan.errors.items())),
      duplicates=duplicates, suspicious_labels=labels.suspicious,
      features=features, label_agreement=labels.agreement,
      labels_not_compared=labels.not_compared)


def _class_counts(scan: scan_lib.Scan) -> Int[np.ndarray, 'splits classes']:
  """Returns the number of examples of each class in each split."""
  request = scan.request
  result = np.zeros((len(request.splits), len(request.class_names)), np.int64)
  if request.label_kind != 'numbers':
    for split, classes in zip(request.split_numbers, scan.labels):
      for number in classes or ():
        result[split, int(number)] += 1
  return result


def _count_splits(scan: scan_lib.Scan) -> dict[str, dict[str, int]]:
  numbers = scan.request.split_numbers
  unreadable = collections.Counter(numbers[list(scan.errors)].tolist())
  unlabelled = collections.Counter(
      numbers[i] for i in scan.records if scan.labels[i] is None)
  return {
      split.name: {
          'examples': split.total, 'checked': len(split.source),
          'unreadable': unreadable[i], 'unlabelled': unlabelled[i]}
      for i, split in enumerate(scan.request.splits)}


def _ranges(scan: scan_lib.Scan) -> dict[str, tuple[int, int, int]]:
  rows = np.array([(*record.size, record.num_bytes)
                   for record in scan.records.values()], np.int64)
  return {name: (int(values.min()), int(np.median(values)), int(values.max()))
          for name, values in zip(('width', 'height', 'bytes'), rows.T)}


def _common_sizes(scan: scan_lib.Scan) -> dict[str, int]:
  sizes = collections.Counter(
      '{} x {}'.format(*record.size) for record in scan.records.values())
  return dict(sizes.most_common(_COMMON_SIZES))


def _summarise(
    scan: scan_lib.Scan, counts: Int[np.ndarray, 'splits classes'],
    groups: Sequence[duplicates_lib.DuplicateGroup],
    labels: suspicious_labels.Result,
) -> tuple[Finding, ...]:
  across = [group for group in groups if group.across_splits]
  identical = sum(group.identical_across_splits for group in across)
  differ = [group for group in groups if group.labels_differ]
  copies = sum(len(group.examples) - 1 for group in groups)
  errors, suspicious = len(scan.errors), len(labels.suspicious)
  empty = scan.request.without_images
  found = [
      Finding('unreadable', 'images', errors,
              console.format_count(errors, 'unreadable image'), harmful=True),
      Finding('without_images', 'folders', len(empty),
              f'{console.format_count(len(empty), "class folder")} without an '
              f'image that can be read: {", ".join(empty)}', harmful=True),
      Finding('across_splits', 'groups', len(across),
              f'{_counted_groups(across)} in several splits ({identical:,} '
              'with identical bytes): evaluation on training images '
              'overestimates accuracy', harmful=True),
      Finding('labels_differ', 'groups', len(differ),
              f'{_counted_groups(differ)} with different labels'),
      Finding('suspicious_label', 'images', suspicious,
              f'{console.format_count(suspicious, "image")} with a suspicious '
              'label: the nearest neighbours have another class'),
      Finding('copies', 'images', copies,
              f'{console.format_count(copies, "redundant image")}: all but one '
              'of each group of duplicates')]
  for split, row in zip(scan.request.splits, counts):
    missing = int((row == 0).sum()) if row.any() else 0
    found.append(Finding(
        'missing_class', 'classes', missing, f'{missing:,} of {len(row):,} '
        f'classes have no example in {split.name}'))
  return tuple(finding for finding in found if finding.count)


def _counted_groups(groups: Sequence[duplicates_lib.DuplicateGroup]) -> str:
  images = sum(len(group.examples) for group in groups)
  return (f'{console.format_count(len(groups), "group")} of duplicates '
          f'({console.format_count(images, "image")})')
