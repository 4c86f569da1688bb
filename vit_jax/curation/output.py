"""Shows a report in the terminal, and as a self-contained HTML page."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from vit_jax import console
from vit_jax.analysis import html_page
from vit_jax.curation import findings
from vit_jax.curation import image_record
from vit_jax.curation import scan as scan_lib

MAX_BYTES = 16 * 2**20  # Embedded images, as base64 text.
_MAX_SHEET_IMAGES = 2_000  # Total of all contact sheets.
_THUMBNAIL_SIDE = 96
_ROWS = 10  # Rows of each table in the terminal.
_GROUP_IMAGES = 4  # Images listed of each group of duplicates.


def show(report: findings.Report) -> None:
  """Prints a summary; the page and the JSON hold everything."""
  if report.description:
    console.print_lines(report.description + '\n')
  for table in report.tables():
    _table(*table)
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
    console.print_lines(f'{"!" if finding.harmful else "-"} {finding.text}')


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
    print(f'... and {console.format_count(len(rows) - _ROWS, "more row")}\n')


def write_page(
    report: findings.Report, request: scan_lib.ScanRequest,
    path: epath.PathLike,
) -> None:
  """Writes the page; images to show are read again from `request`."""
  num_bytes = 0

  def thumbnail(example: findings.Example) -> str:
    """Returns a data URL, or '' beyond the limit."""
    nonlocal num_bytes
    if num_bytes >= MAX_BYTES:
      return ''
    try:
      decoded = request.decode(request.examples[example.number]['image'])
    except Exception:  # It changed since the scan.
      return ''
    url = html_page.thumbnail(
        image_record.to_rgb(decoded), side=_THUMBNAIL_SIDE)
    num_bytes += len(url)
    return url if num_bytes <= MAX_BYTES else ''

  html_page.write(
      path, 'curation/check.html', title=f'Check of {report.source}',
      text=f'Labels: {report.label_kind}.', report=report, thumbnail=thumbnail,
      sheet_images=max(1, _MAX_SHEET_IMAGES // max(
          1, len(report.contact_sheets))), max_mib=MAX_BYTES // 2**20)
