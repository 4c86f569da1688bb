"""All that was found, as numbers and words: what text, page and JSON show."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.check import duplicates
from vit_jax.check import scan as scan_lib
from vit_jax.check import suspicious_labels

_COMMON = 5  # Sizes that are named.


@dataclasses.dataclass(frozen=True)
class Fault:
  """Something found, in a line.

  Attributes:
    kind: of fault, a word for programs.
    counted: what `count` is a number of: 'pictures', 'groups' or 'classes'.
    count: how many.
    text: the same, in words.
    harmful: whether it would spoil a run or its result, whatever is meant.
  """
  kind: str
  counted: str
  count: int
  text: str
  harmful: bool


@dataclasses.dataclass(frozen=True)
class Report:
  """What was found.

  Attributes:
    scan: what was read.
    groups: of duplicates, the most harmful first.
    labels: what the neighbours say.
    features: what neighbours were found by, in words.
    secs_per_image: that reading took, on this machine.
  """
  scan: scan_lib.Scan
  groups: tuple[duplicates.Group, ...]
  labels: suspicious_labels.Result
  features: str
  secs_per_image: float

  @property
  def harmful(self) -> bool:
    """Whether anything would spoil a run or its result."""
    return any(fault.harmful for fault in self.faults())

  def faults(self) -> list[Fault]:
    """Returns what was found in lines, the most harmful first."""
    across = [group for group in self.groups if group.across]
    conflict = [group for group in self.groups if group.conflict]
    same = sum(group.same_across for group in across)
    extra = sum(len(group.numbers) - 1 for group in self.groups)
    found = [
        _fault('unreadable', len(self.scan.errors), 'cannot be read',
               harmful=True),
        _groups('across_splits', across, f'in several splits ({same:,} of the '
                'groups with the same bytes there): a test on what was trained '
                'on proves less', harmful=True),
        _groups('labels_differ', conflict, 'with different labels'),
        _fault('suspicious_label', len(self.labels.suspects), 'with a '
               'suspicious label: the neighbours are of another class'),
        _fault('copies', extra, 'copied from others, exactly or nearly: as '
               'many could go, and one of each group stays')]
    missing = [_missing(self, place, split.name)
               for place, split in enumerate(self.scan.asked.splits)]
    return [fault for fault in (*found, *missing) if fault and fault.count]

  def counts(self) -> Int[np.ndarray, 'splits classes']:
    """Returns how many examples of each split have each class."""
    asked = self.scan.asked
    result = np.zeros((len(asked.splits), len(asked.class_names)), np.int64)
    splits = asked.split_numbers()
    for place, values in enumerate(self.scan.label_values):
      if asked.kind != 'numbers':
        of_split = np.bincount(
            splits[self.scan.labels == place], minlength=len(asked.splits))
        for value in values:
          result[:, int(value)] += of_split
    return result

  def split_rows(self) -> list[dict[str, Any]]:
    """Returns a row of numbers for each split."""
    scan, splits = self.scan, self.scan.asked.split_numbers()
    rows = []
    for place, split in enumerate(scan.asked.splits):
      mine = splits == place
      rows.append({
          'split': split.name, 'examples': split.total,
          'checked': int(mine.sum()),
          'unreadable': int((mine & ~scan.readable).sum()),
          'without_label': int((mine & (scan.labels < 0) & scan.readable).sum())
      })
    return rows

  def mode_rows(self) -> list[tuple[str, int]]:
    """Returns formats and modes with their numbers, the most frequent first."""
    counts = np.bincount(self.scan.modes[self.scan.readable],
                         minlength=len(self.scan.mode_names))
    return sorted(zip(self.scan.mode_names, counts.tolist()),
                  key=lambda row: (-row[1], row[0]))

  def spans(self) -> dict[str, tuple[float, float, float]]:
    """Returns least, median and largest of widths, heights and file sizes."""
    readable = self.scan.readable
    if not readable.any():
      return {}
    return {name: (float(values.min()), float(np.median(values)),
                   float(values.max()))
            for name, values in (
                ('width', self.scan.sizes[readable, 0]),
                ('height', self.scan.sizes[readable, 1]),
                ('bytes', self.scan.num_bytes[readable]))}

  def common_sizes(self) -> tuple[list[tuple[int, int, int]], int]:
    """Returns (width, height, count) of the most common, and how many differ.
    """
    sizes, counts = np.unique(
        self.scan.sizes[self.scan.readable], axis=0, return_counts=True)
    order = np.argsort(-counts, kind='stable')[:_COMMON]
    return [(*sizes[i].tolist(), int(counts[i])) for i in order], len(sizes)

  def to_json(self) -> dict[str, Any]:
    """Returns all of it, as what JSON holds."""
    scan, names = self.scan, self.scan.asked.class_names
    common, different = self.common_sizes()
    return {
        'source': scan.asked.name, 'understood': scan.asked.understood,
        'labels': scan.asked.kind,
        'splits': self.split_rows(),
        'classes': [
            {'name': name, **{split.name: int(count) for split, count in zip(
                scan.asked.splits, column)}}
            for name, column in zip(names, self.counts().T)],
        'spans': {name: dict(zip(('least', 'median', 'largest'), span))
                  for name, span in self.spans().items()},
        'sizes': {'different': different, 'common': [
            {'width': w, 'height': h, 'count': n} for w, h, n in common]},
        'modes': dict(self.mode_rows()),
        'remarks': {remark: self._named(numbers)
                    for remark, numbers in sorted(scan.remarks.items())},
        'found': [dataclasses.asdict(fault) for fault in self.faults()],
        'unreadable': [{**self.named(number), 'why': why}
                       for number, why in sorted(scan.errors.items())],
        'duplicates': [{
            'all_same_bytes': group.exact,
            'least_similarity': group.similarity,
            'across_splits': group.across,
            'same_bytes_across_splits': group.same_across,
            'labels_differ': group.conflict,
            'examples': self._named(group.numbers)} for group in self.groups],
        'suspicious_labels': {
            'features': self.features, 'agreement': self.labels.agreement,
            'not_compared': self.labels.reason, 'examples': [
                {**self.named(suspect.number),
                 'suggested': names[suspect.suggested],
                 'margin': suspect.margin,
                 'nearest': self._named(suspect.nearest)}
                for suspect in self.labels.suspects]},
        'secs_per_image': self.secs_per_image}

  def named(self, number: int) -> dict[str, str]:
    """Returns the split, key and label of an example."""
    split, index = self.scan.asked.locate(number)
    return {'split': split.name, 'key': split.source.key(index),
            'label': self.scan.label_text(number)}

  def _named(self, numbers: Sequence[int]) -> list[dict[str, str]]:
    return [self.named(number) for number in numbers]


def _fault(
    kind: str, count: int, words: str, *, harmful: bool = False) -> Fault:
  """Returns a fault of so many pictures."""
  return Fault(kind, 'pictures', count,
               f'{count:,} picture{"s" * (count != 1)} {words}', harmful)


def _groups(
    kind: str, groups: Sequence[duplicates.Group], words: str, *,
    harmful: bool = False,
) -> Fault:
  """Returns a fault of groups of copies."""
  count, members = len(groups), sum(len(group.numbers) for group in groups)
  return Fault(kind, 'groups', count,
               f'{count:,} group{"s" * (count != 1)} of copies, {members:,} '
               f'pictures in all, {words}', harmful)


def _missing(report: Report, place: int, split: str) -> Fault | None:
  """Returns how many classes a split has none of, unless it has no class."""
  counts = report.counts()[place]
  missing = int((counts == 0).sum())
  if not counts.any():
    return None
  return Fault(
      'no_example', 'classes', missing, f'{missing:,} of {len(counts):,} '
      f'classes have no example in {split}', False)


def rest(shown: int, total: int, noun: str) -> str:
  """Returns words on what is not shown, or ''."""
  return f'... and {total - shown:,} more {noun}' if total > shown else ''
