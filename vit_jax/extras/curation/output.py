"""Shows reports in the terminal and as HTML pages; writes found pairs."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from etils import epath
from PIL import Image

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import escape
from vit_jax.exceptions import UserError
from vit_jax.extras import html_page
from vit_jax.extras.curation import check as check_lib
from vit_jax.extras.curation import duplicates as duplicates_lib
from vit_jax.extras.curation import scan as scan_lib
from vit_jax.extras.curation import search
from vit_jax.extras.curation import selection as selection_lib

EXCLUDE, PAIRS, PAGE = 'exclude.txt', 'pairs.jsonl', 'pairs.html'
# Pixels of embedded images.
_REPORT_SIDE, _NEIGHBOUR_SIDE, _PAIR_SIDE = 96, 64, 192
# Rows, and images of a group, on a page.
SHOWN_PAIRS = 60
_PAGE_GROUPS, _PAGE_GROUP_IMAGES, _PAGE_SUSPECTS = 60, 6, 120
_ROWS = 10  # Rows of each table in the terminal.
_GROUP_IMAGES = 4  # Images listed of each group of duplicates.

Read = Callable[[scan_lib.Example], Image.Image]


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
  def read(example: scan_lib.Example) -> Image.Image:
    return scan_lib.to_rgb(
        request.decode(request.examples[example.number]['image']))

  sections = [
      html_page.Section(
          'Findings', '' if report.findings else 'No problems found.',
          rows=[['harmful' if finding.harmful else '', finding.text]
                for finding in report.findings]),
      *_duplicate_section(report, read), _suspect_section(report, read),
      *(html_page.Section(title, columns=columns, rows=rows)
        for title, columns, rows in report.tables())]
  html_page.write(
      path, title=f'Check of {report.source}', sections=sections,
      text='\n'.join(filter(None, [
          f'Labels: {report.label_kind}.', report.description])))


def _duplicate_section(
    report: check_lib.Report, read: Read) -> list[html_page.Section]:
  """Returns the table of duplicates, if there are any."""
  rows: list[list[str | list[html_page.Thumbnail]]] = []
  for group in report.duplicates[:_PAGE_GROUPS]:
    more = len(group.examples) - _PAGE_GROUP_IMAGES
    rows.append([
        group.description + f'; {more:,} more copies' * (more > 0),
        [_thumbnail(example, read, side=_REPORT_SIDE)
         for example in group.examples[:_PAGE_GROUP_IMAGES]]])
  return [html_page.Section(
      f'Groups of duplicates: {len(report.duplicates):,}',
      f'{_shown(len(report.duplicates), _PAGE_GROUPS)}; groups with different '
      'labels or in several splits first', columns=['group', 'examples'],
      rows=rows)] * bool(rows)


def _suspect_section(
    report: check_lib.Report, read: Read) -> html_page.Section:
  """Returns the table of suspicious labels, or why there is none."""
  if report.label_agreement is None:
    return html_page.Section(
        'Suspicious labels', f'Not searched: {report.labels_not_compared}.')
  return html_page.Section(
      f'Suspicious labels: {len(report.suspicious_labels):,}',
      f'{_shown(len(report.suspicious_labels), _PAGE_SUSPECTS)}; most certain '
      f'first, by {report.features}; neighbours predict the label of '
      f'{console.format_percent(report.label_agreement)} of all examples: '
      'where this is low, most suspicions are wrong',
      columns=['example', 'suggested', 'margin',
               'nearest examples of the suggested class'],
      rows=[[[_thumbnail(suspect.example, read, side=_REPORT_SIDE)],
             suspect.suggested, console.format_percent(suspect.margin),
             [dataclasses.replace(
                 _thumbnail(example, read, side=_NEIGHBOUR_SIDE), caption='')
              for example in suspect.neighbours]]
            for suspect in report.suspicious_labels[:_PAGE_SUSPECTS]])


def _shown(total: int, limit: int) -> str:
  return f'{"all" if total <= limit else limit} shown'


def write_search(
    folder: epath.Path, source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], settings: search.Settings,
    found: search.Matches,
) -> dict[str, Any]:
  """Writes the near-duplicates of a source, a page of them and a summary."""
  summary = {
      'source': source.name, 'examples': len(source.open()),
      'against': {s.name: len(s.open()) for s in against},
      'settings': dataclasses.asdict(settings),
      'near_duplicates': len(found.pairs), 'compared': found.num_compared,
      'unreadable': found.unreadable}
  write_pairs(folder, found.pairs)
  write_pairs_page(
      folder / PAGE, found.pairs, [source, *against],
      title=f'Near-duplicates in {source.name}',
      text='Examples (left) that are near-duplicates of test images (right) '
      f'of {", ".join(s.name for s in against)}: at most '
      f'{settings.max_distance} of 64 hash bits differ, and the pixel '
      f'correlation is at least {settings.min_similarity}.')
  atomic_files.write_json(folder / 'summary.json', summary)
  return summary


def write_pairs(folder: epath.Path, pairs: Sequence[search.Pair]) -> None:
  """Writes all pairs, and the keys for `data.exclude`, one per line.

  Raises:
    UserError: for a key that does not fit on a line.
  """
  for pair in pairs:
    if '\n' in pair.key:
      raise UserError(
          f'The key {pair.key!r} has several lines, but {EXCLUDE} has one key '
          'per line. Rename the file.')
  atomic_files.write_text(
      folder / EXCLUDE, ''.join(f'{pair.key}\n' for pair in pairs))
  atomic_files.write_json_lines(folder / PAIRS, map(dataclasses.asdict, pairs))


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

  def thumbnail(name: str, index: int, key: str) -> list[html_page.Thumbnail]:
    return [_thumbnail(
        scan_lib.Example(index, name, key, ''),
        lambda example: by_name[name].image(example.number), side=_PAIR_SIDE)]

  html_page.write(path, title=title, text=text, sections=[html_page.Section(
      f'Pairs: {len(sample):,} of {len(pairs):,}, evenly sampled; least '
      'similar first' if sample else 'No near-duplicates found',
      columns=['pair', 'source', 'test set'], rows=[
          [pair.description, thumbnail(source, pair.index, pair.key),
           thumbnail(pair.against, pair.against_index, pair.against_key)]
          for pair in sample])])


def _thumbnail(
    example: scan_lib.Example, read: Read, *, side: int,
) -> html_page.Thumbnail:
  """Returns an example's image with its label, split and key."""
  try:
    url = html_page.thumbnail(read(example), side=side)
  except Exception:  # Of any library: it changed since the scan.
    url = ''
  lines = [*[example.label] * bool(example.label), example.split, example.key]
  return html_page.Thumbnail(
      url, side, f'{example.label}: {example.key}' if example.label
      else example.key, '\n'.join(lines))
