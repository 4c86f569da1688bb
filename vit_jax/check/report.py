"""Builds the `findings.Report` of a scan."""

import collections
from collections.abc import Sequence

from jaxtyping import Int
import numpy as np

from vit_jax import console
from vit_jax.check import findings
from vit_jax.check import image_record
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
  records = [record for record in scan.records if record is not None]
  return findings.Report(
      source=request.name, description=request.description,
      label_kind=request.label_kind, splits=_split_summaries(scan),
      classes=_class_summaries(scan, counts), ranges=_ranges(records),
      properties=_properties(records),
      findings=_summarise(scan, counts, duplicates, labels),
      unreadable=tuple(findings.Unreadable(scan.example(number), reason)
                       for number, reason in sorted(scan.errors.items())),
      duplicates=duplicates, suspicious_labels=labels.suspicious,
      features=features, label_agreement=labels.agreement,
      labels_not_compared=labels.not_compared, secs_per_image=secs_per_image,
      contact_sheets=_contact_sheets(scan))


def _class_counts(scan: scan_lib.Scan) -> Int[np.ndarray, 'splits classes']:
  """Returns the number of examples of each class in each split."""
  request = scan.request
  result = np.zeros((len(request.splits), len(request.class_names)), np.int64)
  if request.label_kind != 'numbers':
    for split, classes in zip(request.split_numbers(), scan.labels):
      for number in classes or ():
        result[split, int(number)] += 1
  return result


def _split_summaries(
    scan: scan_lib.Scan) -> tuple[findings.SplitSummary, ...]:
  numbers = scan.request.split_numbers()
  readable = np.array([record is not None for record in scan.records], bool)
  labelled = np.array([label is not None for label in scan.labels], bool)
  return tuple(
      findings.SplitSummary(
          split.name, split.total, len(split.source),
          int((~readable)[numbers == i].sum()),
          int((readable & ~labelled)[numbers == i].sum()))
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


def _ranges(
    records: Sequence[image_record.ImageRecord],
) -> dict[str, tuple[int, int, int]]:
  columns = {'width': [r.size[0] for r in records],
             'height': [r.size[1] for r in records],
             'bytes': [r.num_bytes for r in records]}
  return {name: (min(values), int(np.median(values)), max(values))
          for name, values in columns.items() if values}


def _properties(
    records: Sequence[image_record.ImageRecord]) -> dict[str, int]:
  """Returns counts of file formats, the most common sizes, and remarks."""
  modes = collections.Counter(record.mode for record in records)
  sizes = collections.Counter(record.size for record in records)
  remarks = collections.Counter(
      remark for record in records for remark in record.remarks)
  result = dict(modes.most_common())
  common = sizes.most_common(_COMMON_SIZES)
  result |= {f'{width} x {height} pixels': count
             for (width, height), count in common}
  if len(sizes) > len(common):
    result[f'{len(sizes) - len(common):,} other sizes'] = sizes.total() - sum(
        count for _, count in common)
  return result | dict(remarks.most_common())


def _contact_sheets(scan: scan_lib.Scan) -> tuple[findings.ContactSheet, ...]:
  """Returns a sheet for each class; for numbers, one in their order."""
  labels = {number: label for number in scan.readable
            if (label := scan.labels[number]) is not None}
  if scan.request.label_kind == 'numbers':
    return (_contact_sheet(scan, 'sorted by the first number',
                           sorted(labels, key=lambda n: labels[n][0])),)
  of_class: list[list[int]] = [[] for _ in scan.request.class_names]
  for number, classes in labels.items():
    for value in classes:
      of_class[int(value)].append(number)
  return tuple(
      _contact_sheet(scan, scan.request.class_names[i], of_class[i])
      for i in sorted(range(len(of_class)), key=lambda i: -len(of_class[i])))


def _contact_sheet(
    scan: scan_lib.Scan, name: str, numbers: Sequence[int],
) -> findings.ContactSheet:
  sample = np.unique(np.linspace(
      0, len(numbers) - 1, min(_SHEET_IMAGES, len(numbers))).astype(int))
  return findings.ContactSheet(
      name, len(numbers),
      tuple(scan.example(numbers[i]) for i in sample.tolist()))


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
                       console.format_count(errors, 'unreadable image'),
                       harmful=True),
      findings.Finding(
          'across_splits', 'groups', len(across), f'{_counted_groups(across)} '
          f'in several splits ({identical:,} with identical bytes): evaluation '
          'on training images overestimates accuracy', harmful=True),
      findings.Finding('labels_differ', 'groups', len(differ),
                       f'{_counted_groups(differ)} with different labels'),
      findings.Finding(
          'suspicious_label', 'images', suspicious,
          f'{console.format_count(suspicious, "image")} with a suspicious '
          'label: the nearest neighbours have another class'),
      findings.Finding(
          'copies', 'images', copies,
          f'{console.format_count(copies, "redundant image")}: all but one of '
          'each group of duplicates')]
  for split, row in zip(scan.request.splits, counts):
    missing = int((row == 0).sum()) if row.any() else 0
    found.append(findings.Finding(
        'missing_class', 'classes', missing, f'{missing:,} of {len(row):,} '
        f'classes have no example in {split.name}'))
  return tuple(finding for finding in found if finding.count)


def _counted_groups(groups: Sequence[findings.DuplicateGroup]) -> str:
  images = sum(len(group.examples) for group in groups)
  return (f'{console.format_count(len(groups), "group")} of duplicates '
          f'({console.format_count(images, "image")})')
