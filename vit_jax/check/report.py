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
  """Returns the report; see its attributes."""
  request, counts = scan.request, _class_counts(scan)
  return findings.Report(
      source=request.name, description=request.description,
      label_kind=request.label_kind, splits=_split_summaries(scan),
      classes=_class_summaries(scan, counts), ranges=_ranges(scan),
      properties=_properties(scan),
      findings=_summarise(scan, counts, duplicates, labels),
      unreadable=tuple(findings.Unreadable(scan.example(number), reason)
                       for number, reason in sorted(scan.errors.items())),
      duplicates=duplicates, suspicious_labels=labels.suspicious,
      features=features, label_agreement=labels.agreement,
      labels_not_compared=labels.not_compared, secs_per_image=secs_per_image,
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
  numbers, unlabeled = scan.request.split_numbers(), scan.labels < 0
  return tuple(
      findings.SplitSummary(
          split.name, split.total, len(split.source),
          int((~scan.readable)[numbers == i].sum()),
          int((scan.readable & unlabeled)[numbers == i].sum()))
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


def _ranges(scan: scan_lib.Scan) -> dict[str, tuple[int, int, int]]:
  if not scan.readable.any():
    return {}
  columns = {'width': scan.sizes[:, 0], 'height': scan.sizes[:, 1],
             'bytes': scan.num_bytes}
  return {name: (int(values.min()), int(np.median(values)), int(values.max()))
          for name, column in columns.items()
          for values in [column[scan.readable]]}


def _properties(scan: scan_lib.Scan) -> dict[str, int]:
  """Returns counts of file formats, the most common sizes, and remarks."""
  modes = np.bincount(scan.modes[scan.readable],
                      minlength=len(scan.mode_names)).tolist()
  result = dict(sorted(zip(scan.mode_names, modes),
                       key=lambda row: (-row[1], row[0])))
  sizes, counts = np.unique(
      scan.sizes[scan.readable], axis=0, return_counts=True)
  order = np.argsort(-counts, kind='stable')
  for i in order[:_COMMON_SIZES]:
    result['{} x {} pixels'.format(*sizes[i])] = int(counts[i])
  if len(order) > _COMMON_SIZES:
    others = order[_COMMON_SIZES:]
    result[f'{len(others):,} other sizes'] = int(counts[others].sum())
  return result | {
      remark: len(numbers) for remark, numbers in sorted(scan.remarks.items())}


def _contact_sheets(
    scan: scan_lib.Scan, counts: Int[np.ndarray, 'splits classes'],
) -> tuple[findings.ContactSheet, ...]:
  """Returns a sheet for each class; for numbers, one in their order."""
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


def _summarise(
    scan: scan_lib.Scan, counts: Int[np.ndarray, 'splits classes'],
    groups: Sequence[findings.DuplicateGroup],
    labels: suspicious_labels.Result,
) -> tuple[findings.Finding, ...]:
  across = [group for group in groups if group.across_splits]
  identical = sum(group.identical_across_splits for group in across)
  differ = [group for group in groups if group.labels_differ]
  copies = sum(len(group.examples) - 1 for group in groups)
  errors, suspicious = len(scan.errors), len(labels.suspicious)
  found = [
      findings.Finding('unreadable', 'images', errors,
                       _counted(errors, 'unreadable image'), harmful=True),
      findings.Finding(
          'across_splits', 'groups', len(across), f'{_counted_groups(across)} '
          f'in several splits ({identical:,} with identical bytes): evaluation '
          'on training images overestimates accuracy', harmful=True),
      findings.Finding('labels_differ', 'groups', len(differ),
                       f'{_counted_groups(differ)} with different labels'),
      findings.Finding(
          'suspicious_label', 'images', suspicious,
          f'{_counted(suspicious, "image")} with a suspicious label: the '
          'nearest neighbours have another class'),
      findings.Finding(
          'copies', 'images', copies, f'{_counted(copies, "redundant image")}: '
          'all but one of each group of duplicates')]
  for split, row in zip(scan.request.splits, counts):
    missing = int((row == 0).sum()) if row.any() else 0
    found.append(findings.Finding(
        'missing_class', 'classes', missing, f'{missing:,} of {len(row):,} '
        f'classes have no example in {split.name}'))
  return tuple(finding for finding in found if finding.count)


def _counted_groups(groups: Sequence[findings.DuplicateGroup]) -> str:
  images = sum(len(group.examples) for group in groups)
  return (f'{_counted(len(groups), "group")} of duplicates '
          f'({_counted(images, "image")})')


def _counted(count: int, noun: str) -> str:
  return f'{count:,} {noun}' + 's' * (count != 1)
