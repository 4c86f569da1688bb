"""What was found, as one page that opens anywhere: nothing is fetched.

Its pictures are small and of a limited number of bytes in all: what was found
comes first, and the classes share the rest.
"""

import base64
from collections.abc import Iterator, Sequence
import html

from etils import epath
import numpy as np

from vit_jax.analysis import html_page
from vit_jax.check import duplicates
from vit_jax.check import report as report_lib
from vit_jax.check import suspicious_labels

MAX_BYTES = 16 * 2**20  # Of all pictures, as text in the page.
_GROUPS, _SUSPECTS, _UNREADABLE = 60, 120, 500  # Shown, at most.
_MEMBERS = 6  # Of a group of duplicates.
_SHEET = 24  # Pictures of a class.

_STYLE = """
.cards { display: grid; gap: .75rem; padding: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr)); }
.cards > li { border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem; }
.cards strong { display: block; margin-bottom: .25rem; }
.row { display: flex; flex-wrap: wrap; gap: .5rem; }
.cards .quiet { font-size: .75rem; margin-top: .4rem; }
.row > div { width: 6rem; font-size: .75rem; line-height: 1.3; }
.row img, .sheet img { width: 6rem; height: 6rem; object-fit: contain;
  background: #8883; display: block; }
.sheet { display: grid; gap: .25rem; justify-content: start;
  grid-template-columns: repeat(auto-fill, 4rem); }
.sheet img { width: 4rem; height: 4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); min-width: 3rem; }
th { white-space: nowrap; }
.wide td:nth-child(2):not(.n) { min-width: 9rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
.harm { font-weight: 600; }
.harm::before { content: "Harmful: "; color: #c0392b; }
@media (prefers-color-scheme: dark) { .harm::before { color: #ff8a75; } }
"""


def write(report: report_lib.Report, path: epath.PathLike) -> None:
  """Writes the page; the file is whole or not there."""
  path = epath.Path(path)
  pictures = _Pictures(report, MAX_BYTES // 2)
  body = [*_found(report), *_duplicates(report, pictures),
          *_suspects(report, pictures), *_unreadable(report),
          *_tables(report)]
  # What findings leave is added to the half that the classes have.
  pictures.left += MAX_BYTES // 2
  body += _sheets(report, pictures)
  names = ', '.join(f'{row["checked"]:,} of {row["examples"]:,} examples of '
                    f'{row["split"]}' for row in report.split_rows())
  text = html_page.document(
      title=f'Check of {report.scan.asked.name}', body=body, style=_STYLE,
      text=f'{names}. Labels: {report.scan.asked.kind}. Nothing was changed.')
  path.parent.mkdir(parents=True, exist_ok=True)
  new = path.with_name(path.name + '.new')
  new.write_text(text)
  new.replace(path)


class _Pictures:
  """Pictures as HTML, until their bytes are used up.

  Attributes:
    left: bytes that there are still.
  """

  def __init__(self, report: report_lib.Report, left: int):
    self._report = report
    self.left = left

  def tag(self, number: int) -> str:
    """Returns the picture of an example; '' if there is no room for it."""
    data = base64.b64encode(self._report.scan.shown.get(number)).decode()
    if not data or len(data) > self.left:
      return ''
    self.left -= len(data)
    named = self._report.named(number)
    alt = html.escape(f'{named["label"]}: {named["key"]}', quote=True)
    return (f'<img loading="lazy" decoding="async" alt="{alt}" title="{alt}" '
            f'src="data:image/jpeg;base64,{data}">')

  def captioned(self, number: int) -> str:
    """Returns the picture with its split, key and label below it."""
    named = self._report.named(number)
    return (f'<div>{self.tag(number)}<b>{html.escape(named["label"])}</b><br>'
            f'{html.escape(named["split"])} '
            f'<span class="quiet">{html.escape(named["key"])}</span></div>')


def _found(report: report_lib.Report) -> Iterator[str]:
  if report.scan.asked.understood:
    yield f'<p class="quiet">{html.escape(report.scan.asked.understood)}</p>'
  faults = report.faults()
  if not faults:
    yield '<p>Found nothing wrong.</p>'
    return
  yield '<ul>'
  for fault in faults:
    yield (f'<li class="{"harm" * fault.harmful}">{html.escape(fault.text)}'
           '</li>')
  yield '</ul>'


def _duplicates(
    report: report_lib.Report, pictures: _Pictures) -> Iterator[str]:
  groups = report.groups
  if not groups:
    return
  yield _heading(f'Groups of duplicates: {len(groups):,}', min(
      len(groups), _GROUPS), len(groups), 'those of other labels or splits '
      'first')
  yield '<ul class="cards">'
  for group in groups[:_GROUPS]:
    yield f'<li>{_group(group, pictures)}</li>'
  yield '</ul>'


def _group(group: duplicates.Group, pictures: _Pictures) -> str:
  title = '; '.join(group.words)
  shown = group.numbers[:_MEMBERS]
  more = report_lib.rest(len(shown), len(group.numbers), 'copies')
  return (f'<strong>{title}</strong><div class="row">'
          + ''.join(map(pictures.captioned, shown)) + f'</div>{more}')


def _suspects(
    report: report_lib.Report, pictures: _Pictures) -> Iterator[str]:
  labels = report.labels
  if labels.agreement is None:
    yield (f'<h2>Suspicious labels</h2><p>Not looked for: '
           f'{html.escape(labels.reason)}.</p>')
    return
  yield _heading(
      f'Suspicious labels: {len(labels.suspects):,}',
      min(len(labels.suspects), _SUSPECTS), len(labels.suspects),
      f'most certain first, by {report.features}; neighbours name the label '
      f'of {labels.agreement:.0%} of all examples: the fewer, the more of '
      'these are right after all')
  yield '<ul class="cards">'
  for suspect in labels.suspects[:_SUSPECTS]:
    yield f'<li>{_suspect(report, suspect, pictures)}</li>'
  yield '</ul>'


def _suspect(
    report: report_lib.Report, suspect: suspicious_labels.Suspect,
    pictures: _Pictures,
) -> str:
  name = html.escape(report.scan.asked.class_names[suspect.suggested])
  label = html.escape(report.scan.label_text(suspect.number))
  return (f'<strong>{label} &rarr; {name}? (margin {suspect.margin:.0%})'
          f'</strong><div class="row">{pictures.captioned(suspect.number)}'
          f'</div><div class="quiet">nearest of {name}</div>'
          '<div class="sheet">' + ''.join(map(pictures.tag, suspect.nearest))
          + '</div>')


def _unreadable(report: report_lib.Report) -> Iterator[str]:
  errors = sorted(report.scan.errors.items())
  if errors:
    yield _heading(f'Cannot be read: {len(errors):,}',
                   min(len(errors), _UNREADABLE), len(errors), '')
    yield _table(['split', 'example', 'why'], [
        [report.named(number)['split'], report.named(number)['key'], why]
        for number, why in errors[:_UNREADABLE]])


def _tables(report: report_lib.Report) -> Iterator[str]:
  yield '<h2>Splits</h2>'
  yield _table(
      ['split', 'examples', 'checked', 'unreadable', 'without label'],
      [[str(row['split']), *(f'{row[name]:,}' for name in (
          'examples', 'checked', 'unreadable', 'without_label'))]
       for row in report.split_rows()], numbers=4)
  counts, asked = report.counts(), report.scan.asked
  if counts.any():
    order = np.argsort(-counts.sum(axis=0), kind='stable').tolist()
    yield f'<h2>Classes: {len(order):,}, the largest first</h2>'
    yield _table(
        ['class', *(split.name for split in asked.splits), 'share'],
        [[asked.class_names[i], *(f'{n:,}' for n in counts[:, i]),
          f'{counts[:, i].sum() / counts.sum():.1%}'] for i in order],
        numbers=len(asked.splits) + 1)
  yield '<h2>Pictures</h2>'
  yield _table(['', 'least', 'median', 'largest'], [
      [name, *(f'{value:,.0f}' for value in span)]
      for name, span in report.spans().items()], numbers=3)
  common, different = report.common_sizes()
  rows = [[f'{w} x {h} pixels', f'{n:,}'] for w, h, n in common]
  rows += [[report_lib.rest(len(common), different, 'sizes'), '']] * (
      different > len(common))
  rows += [[mode, f'{n:,}'] for mode, n in report.mode_rows()]
  rows += [[remark, f'{len(numbers):,}']
           for remark, numbers in sorted(report.scan.remarks.items())]
  yield '<p></p>' + _table(['', 'examples'], rows, numbers=1)


def _sheets(
    report: report_lib.Report, pictures: _Pictures) -> Iterator[str]:
  """Yields a sheet of pictures for each class, the largest class first."""
  sheets = _members(report)
  yield '<h2>Contact sheets</h2>'
  for place, (name, numbers) in enumerate(sheets):
    # Each has its share of what is left.
    share = pictures.left // (len(sheets) - place)
    before, tags = pictures.left, []
    for i in np.unique(np.linspace(
        0, len(numbers) - 1, min(_SHEET, len(numbers))).astype(int)):
      if before - pictures.left >= share:
        break
      tags.append(pictures.tag(int(numbers[i])))
    shown = sum(map(bool, tags))
    yield (f'<h3>{html.escape(name)} <span class="quiet">{shown:,} of '
           f'{len(numbers):,}</span></h3><div class="sheet">'
           f'{"".join(tags)}</div>')
  yield (f'<p class="quiet">All pictures of this page have at most '
         f'{MAX_BYTES / 2**20:.0f} MiB: with many classes, fewer of each are '
         'shown.</p>')


def _members(report: report_lib.Report) -> list[tuple[str, np.ndarray]]:
  """Returns names of classes and their readable examples.

  Of numbers there is one sheet, from the lowest first number to the highest.
  """
  scan = report.scan
  if scan.asked.kind == 'numbers':
    first = np.array([value[0] for value in scan.label_values] or [0.0])
    numbers = np.flatnonzero(scan.readable & (scan.labels >= 0))
    order = np.argsort(first[scan.labels[numbers]], kind='stable')
    return [('by the first number, the lowest first', numbers[order])]
  found = []
  for place in np.argsort(-report.counts().sum(axis=0), kind='stable'):
    values = [i for i, v in enumerate(scan.label_values) if place in v]
    found.append((scan.asked.class_names[place], np.flatnonzero(
        scan.readable & np.isin(scan.labels, values))))
  return found


def _heading(title: str, shown: int, total: int, text: str) -> str:
  number = 'all shown' if shown == total else f'{shown:,} of {total:,} shown'
  words = '; '.join(filter(None, [number if total else '', text]))
  return (f'<h2>{html.escape(title)}</h2><p class="quiet">'
          f'{html.escape(words)}</p>')


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0,
) -> str:
  """Returns a table; its last `numbers` columns are set to the right."""
  def cells(kind: str, row: Sequence[str]) -> str:
    return '<tr>' + ''.join(
        f'<{kind}{" class=n" * (i >= len(row) - numbers)}>{html.escape(cell)}'
        f'</{kind}>' for i, cell in enumerate(row)) + '</tr>'

  return ('<div class="wide"><table><thead>' + cells('th', head)
          + '</thead><tbody>' + ''.join(cells('td', row) for row in rows)
          + '</tbody></table></div>')
