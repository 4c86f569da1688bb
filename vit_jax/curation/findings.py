"""Records of a check; terminal, HTML page and JSON show a `Report`."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Example:
  """A checked example; `number` counts through all splits."""
  number: int
  split: str
  key: str
  label: str


@dataclasses.dataclass(frozen=True)
class Unreadable:
  """An example that training could not decode."""
  example: Example
  reason: str


@dataclasses.dataclass(frozen=True)
class DuplicateGroup:
  """Examples that show the same image.

  Attributes:
    examples: one example for each label in each split first, then the others.
    identical: all examples have the same bytes.
    min_similarity: lowest pixel correlation of the compared pairs.
    across_splits: the group has examples of several splits.
    identical_across_splits: several splits have the same bytes.
    labels_differ: the group has several labels.
  """
  examples: tuple[Example, ...]
  identical: bool
  min_similarity: float
  across_splits: bool
  identical_across_splits: bool
  labels_differ: bool

  @property
  def description(self) -> str:
    """Short text for tables and captions."""
    across = 'in several splits'
    if self.identical_across_splits and not self.identical:
      across += ' with identical bytes'
    return '; '.join([
        'identical bytes' if self.identical
        else f'similarity at least {self.min_similarity:.3f}',
        *['labels differ'] * self.labels_differ,
        *[across] * self.across_splits])


@dataclasses.dataclass(frozen=True)
class SuspiciousLabel:
  """An example whose nearest neighbours agree on another class.

  Attributes:
    example: the example.
    suggested: class with the most votes.
    margin: its share of votes minus the label's share.
    neighbours: the nearest examples of the suggested class.
  """
  example: Example
  suggested: str
  margin: float
  neighbours: tuple[Example, ...]


@dataclasses.dataclass(frozen=True)
class Finding:
  """A line of the summary; `unit` is 'images', 'groups' or 'classes'.

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
    splits: counts of each split: examples, checked, unreadable, unlabeled.
    classes: examples of each class in each split, the largest class first.
    ranges: minimum, median and maximum of 'width', 'height' and 'bytes'.
    properties: counts of file formats, common sizes and remarks.
    findings: the summary, most harmful first.
    unreadable, duplicates, suspicious_labels: most harmful first.
    features: representation used to find nearest neighbours.
    label_agreement: share of examples whose neighbours predict their label.
    labels_not_compared: why `label_agreement` is None.
    contact_sheets: readable examples of each class, for the page.
  """
  source: str
  description: str
  label_kind: str
  splits: dict[str, dict[str, int]]
  classes: dict[str, dict[str, int]]
  ranges: dict[str, tuple[int, int, int]]
  properties: dict[str, int]
  findings: tuple[Finding, ...]
  unreadable: tuple[Unreadable, ...]
  duplicates: tuple[DuplicateGroup, ...]
  suspicious_labels: tuple[SuspiciousLabel, ...]
  features: str
  label_agreement: float | None
  labels_not_compared: str
  contact_sheets: dict[str, list[Example]]

  @property
  def harmful(self) -> bool:
    """Whether any finding is harmful."""
    return any(finding.harmful for finding in self.findings)

  def tables(self) -> list[tuple[str, list[str], list[list[Any]]]]:
    """Returns title, columns and rows of each table."""
    total = max(1, sum(row['checked'] - row['unlabeled']
                       for row in self.splits.values()))
    tables: list[tuple[str, list[str], list[list[Any]]]] = [
        ('Splits', ['split', 'examples', 'checked', 'unreadable', 'unlabeled'],
         [[name, *row.values()] for name, row in self.splits.items()]),
        (f'Classes: {len(self.classes):,}, with their share of the images',
         ['class', *self.splits, 'share'],
         [[name, *row.values(), f'{sum(row.values()) / total:.1%}']
          for name, row in self.classes.items()]),
        ('Images', ['property', 'minimum', 'median', 'maximum'],
         [[name, *values] for name, values in self.ranges.items()]),
        ('Formats, sizes and remarks', ['property', 'images'],
         [list(item) for item in self.properties.items()]),
        (f'Unreadable: {len(self.unreadable):,}',
         ['split', 'example', 'reason'],
         [[u.example.split, u.example.key, u.reason]
          for u in self.unreadable])]
    return [table for table in tables if table[2]]

  def to_json(self) -> dict[str, Any]:
    """Returns the report as JSON values."""
    result = dataclasses.asdict(self)
    del result['contact_sheets']
    return result
