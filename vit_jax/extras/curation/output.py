"""Shows reports in the terminal and as HTML pages; writes found pairs.

A report of `data check` and the pairs of `deduplicate` share one page template.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from etils import epath
from PIL import Image

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax.extras import html_page
from vit_jax.extras.curation import check as check_lib
from vit_jax.extras.curation import duplicates as duplicates_lib
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import search
from vit_jax.extras.curation import selection as selection_lib

EXCLUDE, PAIRS, PAGE = 'exclude.txt', 'pairs.jsonl', 'pairs.html'
_REPORT_SIDE, _PAIR_SIDE = 96, 192  # Pixels of embedded images.
SHOWN_PAIRS = 60
_ROWS = 10  # Rows of each table in the terminal.
_GROUP_IMAGES = 4  # Images listed of each group of duplicates.


def show(report: check_lib.Report) -> None:
  """Prints a summary; the page and the JSON hold everything."""
  if report.description:
    console.print_lines(report.description + '\n')
  for table in report.tables():
    _table(*table)
  _show_groups(report.duplicates)
  _table(f'Suspicious labels: {len(report.suspicious_labels):,}, by '
         f'{report.features}',
         ['split', 'example', 'label', 'suggested', 'margin'],
         [[s.example.split, s.example.key, s.example.label, s.suggested,
           console.format_percent(s.margin)] for s in report.suspicious_labels])
  if not report.suspicious_labels:
    console.print_lines('Suspicious labels: ' + (
        f'not searched, because {report.labels_not_compared}'
        if report.label_agreement is None
        else f'none, by {report.features}'))
  print('Findings:' if report.findings else 'No problems found.')
  for finding in report.findings:
    console.print_lines(f'{"!" if finding.harmful else "-"} {finding.text}')


def _show_groups(groups: Sequence[duplicates_lib.DuplicateGroup]) -> None:
  """Prints whole names, to copy; a table would break or shorten long ones."""
  if groups:
    print(f'Groups of duplicates: {len(groups):,}')
  for group in groups[:_ROWS]:
    lines = [escape.line(f'  {example.split}: {example.key} ({example.label})')
             for example in group.examples[:_GROUP_IMAGES]]
    more = len(group.examples) - len(lines)
    console.print_lines('\n'.join([
        f'- {group.description}', *lines,
        *[f'  ... and {more:,} more'] * bool(more)]))
  _print_more(len(groups), 'group')


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]],
) -> None:
  if rows:
    console.table(title, columns, rows[:_ROWS])
  _print_more(len(rows), 'row')


def _print_more(count: int, noun: str) -> None:
  """Prints how many of `count` rows or groups are not shown."""
  if count > _ROWS:
    print(f'... and {console.format_count(count - _ROWS, f"more {noun}")}\n')


def write_report(
    report: check_lib.Report, request: scan_lib.ScanRequest,
    path: epath.PathLike,
) -> None:
  """Writes the page; images to show are read again from `request`."""
  _write_page(
      path, lambda example: scan_lib.to_rgb(
          request.decode(request.examples[example.number]['image'])),
      side=_REPORT_SIDE, title=f'Check of {report.source}',
      text=f'Labels: {report.label_kind}.', report=report)


def write_pairs(folder: epath.Path, pairs: Sequence[search.Pair]) -> None:
  """Writes all pairs, and the keys for `data.exclude`, one per line.

  Raises:
    ValueError: for a key that does not fit on a line.
  """
  for pair in pairs:
    if '\n' in pair.key:
      raise ValueError(
          f'The key {pair.key!r} has several lines, but {EXCLUDE} has one key '
          'per line. Rename the file.')
  atomic_files.write_text(
      folder / EXCLUDE, ''.join(f'{pair.key}\n' for pair in pairs))
  atomic_files.write_json_lines(
      folder / PAIRS, map(dataclasses.asdict, pairs))


def write_pairs_page(
    path: epath.Path, pairs: Sequence[search.Pair],
    selections: Sequence[selection_lib.Selection], *, title: str, text: str,
) -> None:
  """Writes a page of pairs side by side, the least similar first.

  Some pairs are sampled, evenly by similarity. `selections` are the source and
  the test sets.
  """
  ordered = sorted(pairs, key=lambda pair: pair.similarity)
  sample = [ordered[i] for i in scan_lib.spread(len(ordered), SHOWN_PAIRS)]
  by_name = {selection.name: selection for selection in selections}
  source = selections[0].name

  _write_page(
      path, lambda example: by_name[example.split].image(example.number),
      side=_PAIR_SIDE, title=title, text=text, report=None,
      num_pairs=len(pairs), pairs=[{
          'description': pair.description, 'examples': [
              scan_lib.Example(pair.index, source, pair.key, ''),
              scan_lib.Example(
                  pair.against_index, pair.against, pair.against_key, ''),
          ]} for pair in sample])


def _write_page(
    path: epath.PathLike, read: Callable[[scan_lib.Example], Image.Image], *,
    side: int, **values: Any,
) -> None:
  """Writes a page, whose template embeds images of examples in its order."""
  def thumbnail(example: scan_lib.Example) -> str:
    try:
      return html_page.thumbnail(read(example), side=side)
    except Exception:  # It changed since the scan.
      return ''

  html_page.write(path, 'curation/page.html', thumbnail=thumbnail, **values)
