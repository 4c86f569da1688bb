"""Writes a report as one self-contained HTML page with thumbnails."""

from etils import epath

from vit_jax.analysis import html_page
from vit_jax.check import findings
from vit_jax.check import image_record
from vit_jax.check import scan as scan_lib

MAX_BYTES = 16 * 2**20  # Embedded images, as base64 text.
_THUMBNAIL_SIDE = 96


def write(
    report: findings.Report, request: scan_lib.ScanRequest,
    path: epath.PathLike,
) -> None:
  """Writes the page; images to show are read again from `request`."""
  thumbnails = _Thumbnails(request, len(report.contact_sheets))
  html_page.write(
      path, 'check/page.html', title=f'Check of {report.source}',
      text=f'Labels: {report.label_kind}.', report=report,
      thumbnail=thumbnails.url, start_sheet=thumbnails.start_sheet,
      max_mib=MAX_BYTES // 2**20)


class _Thumbnails:
  """Thumbnails of examples, within a budget of bytes.

  Findings may use half of `MAX_BYTES`; the contact sheets share the rest.
  """

  def __init__(self, request: scan_lib.ScanRequest, num_sheets: int):
    self._request = request
    self._reserved = MAX_BYTES // 2
    self._available = MAX_BYTES - self._reserved
    self._sheets_left = num_sheets

  def start_sheet(
      self, sheet: findings.ContactSheet) -> tuple[findings.Example, ...]:
    """Gives the next sheet its share; returns the sheet's examples."""
    self._reserved += self._available
    self._available = self._reserved // self._sheets_left
    self._reserved -= self._available
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
      self._reserved += self._available  # For the following sheets.
      self._available = 0
      return ''
    self._available -= len(url)
    return url
