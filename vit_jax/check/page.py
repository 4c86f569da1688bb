"""Writes a report as one self-contained HTML page with thumbnails."""

from etils import epath

from vit_jax.analysis import html_page
from vit_jax.check import findings
from vit_jax.check import image_record
from vit_jax.check import scan as scan_lib
from vit_jax.check import terminal

MAX_BYTES = 16 * 2**20  # Embedded images, as base64 text.
_THUMBNAIL_SIDE = 96
_GROUPS, _GROUP_IMAGES, _SUSPECTS, _UNREADABLE = 60, 6, 120, 500


def write(
    report: findings.Report, request: scan_lib.ScanRequest,
    path: epath.PathLike,
) -> None:
  """Writes the page.

  Args:
    report: what to show.
    request: the checked dataset; images to show are read again.
    path: the .html file.
  """
  thumbnails = _Thumbnails(request, len(report.contact_sheets))
  checked = ', '.join(
      f'{split.checked:,} of {split.examples:,} examples of {split.name}'
      for split in report.splits)
  splits = [split.name for split in report.splits]
  html_page.write(
      path, 'check/page.html', title=f'Check of {report.source}',
      text=f'{checked}. Labels: {report.label_kind}.', report=report,
      thumbnail=thumbnails.url, start_sheet=thumbnails.start_sheet,
      max_groups=_GROUPS, max_group_images=_GROUP_IMAGES,
      max_suspects=_SUSPECTS, max_unreadable=_UNREADABLE,
      max_mib=MAX_BYTES // 2**20,
      split_table=(
          ['split', 'examples', 'checked', 'unreadable', 'unlabeled'],
          [[s.name, *(f'{count:,}' for count in (
              s.examples, s.checked, s.unreadable, s.unlabeled))]
           for s in report.splits]),
      class_table=(
          ['class', *splits, 'share'],
          [[c.name, *(f'{count:,}' for count in c.counts.values()),
            f'{c.share:.1%}'] for c in report.classes]),
      range_table=(
          ['property', 'minimum', 'median', 'maximum'],
          [[r.name, *(f'{value:,.0f}' for value in (
              r.minimum, r.median, r.maximum))] for r in report.ranges]),
      count_table=(
          ['property', 'images'],
          [[name, f'{count:,}']
           for name, count in terminal.property_counts(report)]))


class _Thumbnails:
  """Thumbnails of examples, within a budget of bytes.

  Findings may use half of `MAX_BYTES`; the contact sheets share the rest.
  """

  def __init__(self, request: scan_lib.ScanRequest, num_sheets: int):
    self._request = request
    self._total = MAX_BYTES // 2  # Not yet available to findings.
    self._available = MAX_BYTES - self._total
    self._sheets_left = num_sheets

  def start_sheet(
      self, sheet: findings.ContactSheet) -> tuple[findings.Example, ...]:
    """Gives the next sheet its share; returns the sheet's examples."""
    self._total += self._available
    self._available = self._total // self._sheets_left
    self._total -= self._available
    self._sheets_left -= 1
    return sheet.examples

  def url(self, example: findings.Example) -> str:
    """Returns an example's thumbnail, or '' beyond the budget."""
    if self._available <= 0:
      return ''
    split, index = self._request.locate(example.number)
    try:
      decoded = self._request.decode(split.source[index]['image'])
    except Exception:  # It changed since the scan.
      return ''
    url = html_page.thumbnail(
        image_record.to_rgb(decoded), side=_THUMBNAIL_SIDE)
    if len(url) > self._available:
      self._total += self._available  # For the following sheets.
      self._available = 0
      return ''
    self._available -= len(url)
    return url
