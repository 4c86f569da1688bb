"""What was found, as tables for a terminal."""

from collections.abc import Iterator

import numpy as np
from rich import box
from rich import console as console_lib
from rich import markup
from rich import table as table_lib

from vit_jax.check import report as report_lib

_ROWS = 10  # Of a table of findings; the page and the JSON have more.
_MEMBERS = 4  # Of a group of duplicates.


def show(
    report: report_lib.Report, console: console_lib.Console) -> None:
  """Prints it."""
  if report.scan.asked.understood:
    console.print(markup.escape(report.scan.asked.understood) + '\n',
                  highlight=False, soft_wrap=True)
  for part in (_splits(report), _classes(report), _pixels(report),
               *_findings(report)):
    if part is not None:
      # Not as the table's own title, which breaks at the table's width.
      title, part.title = part.title, None
      console.print(title, style='bold', highlight=False, soft_wrap=True)
      console.print(part)
  faults = report.faults()
  console.print('found:' if faults else 'found nothing wrong')
  for fault in faults:
    console.print(f'  {"!" if fault.harmful else "-"} {fault.text}',
                  highlight=False, soft_wrap=True)


def _table(title: str, *columns: str, numbers: int = 0) -> table_lib.Table:
  """Returns an empty table; its last `numbers` columns are set to the right."""
  result = table_lib.Table(
      title=title, box=box.SIMPLE_HEAD, pad_edge=False)
  for place, name in enumerate(columns):
    right = place >= len(columns) - numbers
    result.add_column(name, justify='right' if right else 'left',
                      overflow='fold', no_wrap=right)
  return result


def _splits(report: report_lib.Report) -> table_lib.Table:
  result = _table('Splits', 'split', 'examples', 'checked', 'unreadable',
                  'without label', numbers=4)
  for row in report.split_rows():
    result.add_row(row['split'], *(f'{row[name]:,}' for name in (
        'examples', 'checked', 'unreadable', 'without_label')))
  return result


def _classes(report: report_lib.Report) -> table_lib.Table | None:
  """Returns the classes with the most and the fewest examples."""
  counts, asked = report.counts(), report.scan.asked
  if not counts.any():
    return None
  totals = counts.sum(axis=0)
  order = np.argsort(-totals, kind='stable').tolist()
  ratio = int(totals.max()) / max(int(totals.min()), 1)
  result = _table(
      f'Classes: {len(totals):,}, the largest {ratio:,.1f} times the smallest'
      if totals.min() else f'Classes: {len(totals):,}, some without examples',
      'class', *(split.name for split in asked.splits), 'share',
      numbers=len(asked.splits) + 1)
  short = len(order) > 2 * _ROWS
  for place in order[:_ROWS] if short else order:
    result.add_row(*_class_row(report, counts, place))
  if short:
    result.add_row(f'... {len(order) - 2 * _ROWS:,} more ...')
    for place in order[-_ROWS:]:
      result.add_row(*_class_row(report, counts, place))
  return result


def _class_row(
    report: report_lib.Report, counts: np.ndarray, place: int) -> list[str]:
  share = counts[:, place].sum() / counts.sum()
  return [markup.escape(report.scan.asked.class_names[place]),
          *(f'{count:,}' for count in counts[:, place]), f'{share:.1%}']


def _pixels(report: report_lib.Report) -> table_lib.Table | None:
  if not report.scan.readable.any():
    return None
  result = _table('Pictures', 'what', 'least', 'median', 'largest', numbers=3)
  for name, span in report.spans().items():
    result.add_row(name, *(f'{value:,.0f}' for value in span))
  common, different = report.common_sizes()
  result.add_section()
  for width, height, count in common:
    result.add_row(f'{width} x {height} pixels', '', '', f'{count:,}')
  if different > len(common):
    result.add_row(report_lib.rest(len(common), different, 'sizes'))
  result.add_section()
  for mode, count in report.mode_rows():
    result.add_row(mode, '', '', f'{count:,}')
  result.add_section()
  for remark, numbers in sorted(report.scan.remarks.items()):
    result.add_row(remark, '', '', f'{len(numbers):,}')
  return result


def _findings(report: report_lib.Report) -> Iterator[table_lib.Table]:
  errors = sorted(report.scan.errors.items())
  if errors:
    yield _limited(
        _table(f'Cannot be read: {len(errors):,}', 'split', 'example', 'why'),
        [(*_named(report, number)[:2], why) for number, why in errors])
  if report.groups:
    yield _limited(
        _table(f'Groups of duplicates: {len(report.groups):,}', 'what',
               'examples'),
        [('\n'.join(group.words), _members(report, group.numbers))
         for group in report.groups[:_ROWS + 1]], len(report.groups))
  suspects = report.labels.suspects
  names = report.scan.asked.class_names
  if suspects:
    yield _limited(
        _table(f'Suspicious labels: {len(suspects):,}, by {report.features}',
               'split', 'example', 'label', 'neighbours say', 'margin',
               numbers=1),
        [(*_named(report, suspect.number), names[suspect.suggested],
          f'{suspect.margin:.0%}') for suspect in suspects])


def _members(report: report_lib.Report, numbers: tuple[int, ...]) -> str:
  lines = [f'{split}: {key} ({label})' for split, key, label in (
      _named(report, number) for number in numbers[:_MEMBERS])]
  more = report_lib.rest(len(lines), len(numbers), 'copies')
  return '\n'.join(lines + [more] * bool(more))


def _named(
    report: report_lib.Report, number: int) -> tuple[str, str, str]:
  named = report.named(number)
  return named['split'], named['key'], named['label']


def _limited(
    result: table_lib.Table, rows: list[tuple[str, ...]],
    total: int | None = None,
) -> table_lib.Table:
  for row in rows[:_ROWS]:
    result.add_row(*map(markup.escape, row))
  more = report_lib.rest(min(_ROWS, len(rows)), total or len(rows), '')
  if more:
    result.caption = more.strip()
    result.caption_justify = 'left'
  return result
