"""Prints a summary of a report; the page and the JSON hold everything."""

from collections.abc import Sequence
from typing import Any

from vit_jax import console
from vit_jax.check import findings

_ROWS = 10  # Rows of each table.
_GROUP_IMAGES = 4  # Images listed of each group of duplicates.


def show(report: findings.Report) -> None:
  """Prints the summary."""
  if report.description:
    print(report.description + '\n')
  _table('Splits', ['split', 'examples', 'checked', 'unreadable', 'unlabeled'],
         [[s.name, s.examples, s.checked, s.unreadable, s.unlabeled]
          for s in report.splits])
  _table(
      f'Classes: {len(report.classes):,}, largest first',
      ['class', *(split.name for split in report.splits), 'share'],
      [[c.name, *c.counts.values(), f'{c.share:.1%}'] for c in report.classes])
  _table('Images', ['property', 'minimum', 'median', 'maximum'],
         [[name, *values] for name, values in report.ranges.items()])
  _table('Formats, sizes and remarks', ['property', 'images'],
         list(report.properties.items()))
  _table(f'Unreadable: {len(report.unreadable):,}',
         ['split', 'example', 'reason'],
         [[u.example.split, u.example.key, u.reason]
          for u in report.unreadable])
  _table(f'Groups of duplicates: {len(report.duplicates):,}',
         ['group', 'examples'],
         [[group.description, _examples(group)]
          for group in report.duplicates])
  _table(f'Suspicious labels: {len(report.suspicious_labels):,}, by '
         f'{report.features}',
         ['split', 'example', 'label', 'suggested', 'margin'],
         [[s.example.split, s.example.key, s.example.label, s.suggested,
           f'{s.margin:.0%}'] for s in report.suspicious_labels])
  print('Findings:' if report.findings else 'No problems found.')
  for finding in report.findings:
    print(f'  {"!" if finding.harmful else "-"} {finding.text}')


def _examples(group: findings.DuplicateGroup) -> str:
  lines = [f'{example.split}: {example.key} ({example.label})'
           for example in group.examples[:_GROUP_IMAGES]]
  more = len(group.examples) - len(lines)
  return '\n'.join(lines + [f'... and {more:,} more'] * bool(more))


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]],
) -> None:
  if rows:
    console.table(title, columns, rows[:_ROWS])
  if len(rows) > _ROWS:
    print(f'... and {len(rows) - _ROWS:,} more\n')
