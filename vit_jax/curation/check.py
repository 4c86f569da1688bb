"""A complete check: read images, find duplicates and suspicious labels."""

import collections
from collections.abc import Callable, Sequence

from jaxtyping import Int
import numpy as np

from vit_jax import console
from vit_jax.curation import duplicates as duplicates_lib
from vit_jax.curation import findings
from vit_jax.curation import scan as scan_lib
from vit_jax.curation import similarity
from vit_jax.curation import suspicious_labels

_COMMON_SIZES = 5
_SHEET_IMAGES = 24


def check(
    request: scan_lib.ScanRequest, *, thresholds: similarity.Thresholds,
    settings: suspicious_labels.Settings, features: str,
    advance: Callable[[int], None], failed: Callable[[str, Exception], None],
) -> findings.Report:
  """Reads the dataset and reports its problems.

  For `advance` and `failed` see `scan.scan`; `features` is for the report.
  """
  scan = scan_lib.scan(request, advance=advance, failed=failed)
  duplicates = duplicates_lib.find(scan, thresholds)
  labels = suspicious_labels.find(scan, duplicates, settings)
  counts = _class_counts(scan)
  names = [split.name for split in request.splits]
  return findings.Report(
      source=request.name, description=request.description,
      label_kind=request.label_kind, splits=_count_splits(scan),
      classes={request.class_names[i]: dict(zip(names, counts[:, i].tolist()))
               for i in np.argsort(-counts.sum(axis=0), kind='stable')},
      ranges=_ranges(scan), properties=_properties(scan),
      findings=_summarise(scan, counts, duplicates, labels),
      unreadable=tuple(findings.Unreadable(scan.example(number), reason)
                       for number, reason in sorted(scan.errors.items())),
      duplicates=duplicates, suspicious_labels=labels.suspicious,
      features=features, label_agreement=labels.agreement,
      labels_not_compared=labels.not_compared,
      contact_sheets=_contact_sheets(scan))


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
  unlabeled = collections.Counter(
      numbers[i] for i in scan.records if scan.labels[i] is None)
  return {
      split.name: {
          'examples': split.total, 'checked': len(split.source),
          'unreadable': unreadable[i], 'unlabeled': unlabeled[i]}
      for i, split in enumerate(scan.request.splits)}


def _ranges(scan: scan_lib.Scan) -> dict[str, tuple[int, int, int]]:
  rows = np.array([(*record.size, record.num_bytes)
                   for record in scan.records.values()], np.int64)
  return {name: (int(values.min()), int(np.median(values)), int(values.max()))
          for name, values in zip(('width', 'height', 'bytes'), rows.T)}


def _properties(scan: scan_lib.Scan) -> dict[str, int]:
  """Returns counts of file formats, the most common sizes, and remarks."""
  records = scan.records.values()
  modes = collections.Counter(record.mode for record in records)
  sizes = collections.Counter(
      f'{record.size[0]} x {record.size[1]} pixels' for record in records)
  remarks = collections.Counter(
      remark for record in records for remark in record.remarks)
  common = dict(sizes.most_common(_COMMON_SIZES))
  others = {f'{len(sizes) - len(common):,} other sizes':
            sizes.total() - sum(common.values())}
  return {**dict(modes.most_common()), **common,
          **(others if len(sizes) > len(common) else {}),
          **dict(remarks.most_common())}


def _contact_sheets(scan: scan_lib.Scan) -> dict[str, list[findings.Example]]:
  """Returns a sample of each class; for numbers, one sample in their order."""
  members: dict[str, list[int]] = collections.defaultdict(list)
  labels = scan.labelled()
  if scan.request.label_kind == 'numbers':
    members['sorted by the first number'] = sorted(
        labels, key=lambda number: np.nan_to_num(labels[number][0], nan=np.inf))
  else:
    for number, classes in labels.items():
      for value in classes:
        members[scan.request.class_names[int(value)]].append(number)
  return {
      name: [scan.example(numbers[i]) for i in np.unique(np.linspace(
          0, len(numbers) - 1, _SHEET_IMAGES).astype(int)).tolist()]
      for name, numbers in sorted(
          members.items(), key=lambda item: -len(item[1])) if numbers}


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
  rows: list[tuple[str, str, int, str, bool]] = [
      ('unreadable', 'images', errors,
       console.format_count(errors, 'unreadable image'), True),
      ('across_splits', 'groups', len(across), f'{_counted_groups(across)} in '
       f'several splits ({identical:,} with identical bytes): evaluation on '
       'training images overestimates accuracy', True),
      ('labels_differ', 'groups', len(differ),
       f'{_counted_groups(differ)} with different labels', False),
      ('suspicious_label', 'images', suspicious,
       f'{console.format_count(suspicious, "image")} with a suspicious label: '
       'the nearest neighbours have another class', False),
      ('copies', 'images', copies,
       f'{console.format_count(copies, "redundant image")}: all but one of '
       'each group of duplicates', False)]
  for split, row in zip(scan.request.splits, counts):
    missing = int((row == 0).sum()) if row.any() else 0
    rows.append(('missing_class', 'classes', missing, f'{missing:,} of '
                 f'{len(row):,} classes have no example in {split.name}',
                 False))
  return tuple(findings.Finding(*row) for row in rows if row[2])


def _counted_groups(groups: Sequence[findings.DuplicateGroup]) -> str:
  images = sum(len(group.examples) for group in groups)
  return (f'{console.format_count(len(groups), "group")} of duplicates '
          f'({console.format_count(images, "image")})')
