"""Builds the `findings.Report` of a scan."""

from collections.abc import Sequence

from jaxtyping import Int
import numpy as np

from vit_jax.check import findings
from vit_jax.check import scan as scan_lib
from vit_jax.check import suspicious_labels

_COMMON_SIZES = 5
_SHEET_IMAGES = 24


def build(
    scan: scan_lib.Scan, duplicates: tuple[findings.DuplicateGroup, ...],
    labels: suspicious_labels.Result, *, features: str, secs_per_image: float,
) -> findings.Report:
  """Returns the report.

  Args:
    scan: properties of all examples.
    duplicates: groups, most harmful first.
    labels: suspicious labels.
    features: what nearest neighbours were compared by.
    secs_per_image: reading time.
  """
  request = scan.request
  counts = _class_counts(scan)
  splits = _split_summaries(scan)
  sizes, num_sizes = _common_sizes(scan)
  unreadable = tuple(findings.Unreadable(scan.example(number), reason)
                     for number, reason in sorted(scan.errors.items()))
  return findings.Report(
      source=request.name, description=request.description,
      label_kind=request.label_kind, splits=splits,
      classes=_class_summaries(scan, counts), ranges=_ranges(scan),
      sizes=sizes, num_sizes=num_sizes, modes=_modes(scan),
      remarks={remark: tuple(map(scan.example, numbers))
               for remark, numbers in sorted(scan.remarks.items())},
      findings=tuple(
          finding for finding in (
              _unreadable(unreadable), *_duplicates(duplicates),
              _suspicious(labels), _copies(duplicates),
              *_missing_classes(request, counts)) if finding.count),
      unreadable=unreadable, duplicates=duplicates,
      suspicious_labels=labels.suspicious, features=features,
      label_agreement=labels.agreement, labels_not_compared=labels.not_compared,
      secs_per_image=secs_per_image,
      contact_sheets=_contact_sheets(scan, counts))


def _class_counts(scan: scan_lib.Scan) -> Int[np.ndarray, 'splits classes']:
  """Returns the number of examples of each class in each split."""
  request = scan.request
  result = np.zeros((len(request.splits), len(request.class_names)), np.int64)
  if request.label_kind == 'numbers':
    return result
  splits = request.split_numbers()
  for i, classes in enumerate(scan.label_values):
    in_split = np.bincount(
        splits[scan.labels == i], minlength=len(request.splits))
    for number in classes:
      result[:, int(number)] += in_split
  return result


def _split_summaries(
    scan: scan_lib.Scan) -> tuple[findings.SplitSummary, ...]:
  numbers = scan.request.split_numbers()
  return tuple(
      findings.SplitSummary(
          split.name, split.total, checked=len(split.source),
          unreadable=int((~scan.readable[numbers == i]).sum()),
          unlabeled=int((scan.readable & (scan.labels < 0))[
              numbers == i].sum()))
      for i, split in enumerate(scan.request.splits))


def _class_summaries(
    scan: scan_lib.Scan, counts: Int[np.ndarray, 'splits classes'],
) -> tuple[findings.ClassSummary, ...]:
  names = [split.name for split in scan.request.splits]
  totals, total = counts.sum(axis=0), max(1, int(counts.sum()))
  return tuple(
      findings.ClassSummary(
          scan.request.class_names[i], dict(zip(names, counts[:, i].tolist())),
          float(totals[i] / total))
      for i in np.argsort(-totals, kind='stable'))


def _ranges(scan: scan_lib.Scan) -> tuple[findings.Range, ...]:
  if not scan.readable.any():
    return ()
  return tuple(
      findings.Range(name, float(values.min()), float(np.median(values)),
                     float(values.max()))
      for name, values in (
          ('width', scan.sizes[scan.readable, 0]),
          ('height', scan.sizes[scan.readable, 1]),
          ('bytes', scan.num_bytes[scan.readable])))


def _common_sizes(scan: scan_lib.Scan) -> tuple[dict[str, int], int]:
  sizes, counts = np.unique(
      scan.sizes[scan.readable], axis=0, return_counts=True)
  order = np.argsort(-counts, kind='stable')[:_COMMON_SIZES]
  return {'{} x {}'.format(*sizes[i]): int(counts[i]) for i in order}, len(
      sizes)


def _modes(scan: scan_lib.Scan) -> dict[str, int]:
  counts = np.bincount(scan.modes[scan.readable],
                       minlength=len(scan.mode_names)).tolist()
  return dict(sorted(zip(scan.mode_names, counts),
                     key=lambda row: (-row[1], row[0])))


def _contact_sheets(
    scan: scan_lib.Scan, counts: Int[np.ndarray, 'splits classes'],
) -> tuple[findings.ContactSheet, ...]:
  """Returns a sheet for each class, the largest class first.

  For numbers, one sheet in the order of the first number.
  """
  if scan.request.label_kind == 'numbers':
    first = np.array([value[0] for value in scan.label_values] or [0.0])
    numbers = np.flatnonzero(scan.readable & (scan.labels >= 0))
    order = np.argsort(first[scan.labels[numbers]], kind='stable')
    return (_contact_sheet(scan, 'sorted by the first number', numbers[order]),)
  sheets = []
  for place in np.argsort(-counts.sum(axis=0), kind='stable').tolist():
    values = [i for i, v in enumerate(scan.label_values) if place in v]
    sheets.append(_contact_sheet(
        scan, scan.request.class_names[place],
        np.flatnonzero(scan.readable & np.isin(scan.labels, values))))
  return tuple(sheets)


def _contact_sheet(
    scan: scan_lib.Scan, name: str, numbers: Int[np.ndarray, '_'],
) -> findings.ContactSheet:
  sample = np.unique(np.linspace(
      0, len(numbers) - 1, min(_SHEET_IMAGES, len(numbers))).astype(int))
  return findings.ContactSheet(
      name, len(numbers),
      tuple(scan.example(number) for number in numbers[sample].tolist()))


def _unreadable(
    unreadable: Sequence[findings.Unreadable]) -> findings.Finding:
  count = len(unreadable)
  return findings.Finding(
      'unreadable', 'images', count, f'{_counted(count, "unreadable image")}',
      harmful=True)


def _duplicates(
    groups: Sequence[findings.DuplicateGroup]) -> list[findings.Finding]:
  across = [group for group in groups if group.across_splits]
  differ = [group for group in groups if group.labels_differ]
  identical = sum(group.identical_across_splits for group in across)
  return [
      findings.Finding(
          'across_splits', 'groups', len(across), f'{_groups(across)} in '
          f'several splits ({identical:,} with identical bytes): evaluation on '
          'training images overestimates accuracy', harmful=True),
      findings.Finding(
          'labels_differ', 'groups', len(differ),
          f'{_groups(differ)} with different labels', harmful=False)]


def _groups(groups: Sequence[findings.DuplicateGroup]) -> str:
  images = sum(len(group.examples) for group in groups)
  return (f'{_counted(len(groups), "group")} of duplicates '
          f'({_counted(images, "image")})')


def _suspicious(labels: suspicious_labels.Result) -> findings.Finding:
  count = len(labels.suspicious)
  return findings.Finding(
      'suspicious_label', 'images', count, f'{_counted(count, "image")} with a '
      'suspicious label: the nearest neighbours have another class',
      harmful=False)


def _copies(
    groups: Sequence[findings.DuplicateGroup]) -> findings.Finding:
  count = sum(len(group.examples) - 1 for group in groups)
  return findings.Finding(
      'copies', 'images', count, f'{_counted(count, "redundant image")}: all '
      'but one of each group of duplicates', harmful=False)


def _missing_classes(
    request: scan_lib.ScanRequest, counts: Int[np.ndarray, 'splits classes'],
) -> list[findings.Finding]:
  return [
      findings.Finding(
          'missing_class', 'classes', int((row == 0).sum()),
          f'{(row == 0).sum():,} of {len(row):,} classes have no example in '
          f'{split.name}', harmful=False)
      for split, row in zip(request.splits, counts) if row.any()]


def _counted(count: int, noun: str) -> str:
  return f'{count:,} {noun}' + 's' * (count != 1)
