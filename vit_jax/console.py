"""Terminal output shared by all commands: tables, numbers, sizes, durations."""

from collections.abc import Sequence
import re
import textwrap
from typing import Any

import humanize
import rich.box
from rich.cells import cell_len
from rich.cells import set_cell_size
import rich.console
import rich.table
import rich.text

from vit_jax import escape

_HEADING_WIDTH = 12  # Headings of numbers wrap here.
_GAP = 3  # Columns between those of a table.
_BRIEF = 4  # Lines of a report.
_NUMBER = re.compile(r'[\d.,e+-]+|.*[%–]')  # As text; a dash is a gap.
verbose = False  # Whether reports are printed whole; set by --verbose.


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *,
    console: rich.console.Console | None = None,
) -> None:
  """Prints a table; numbers and percentages are right-aligned and never cut.

  Args:
    title: line above the table.
    columns: headings; above numbers, they wrap at words.
    rows: cells of each row; numbers are formatted by `format_number`, None is
      a dash, anything else is printed as `str`. Text longer than a line of the
      console is shortened in the middle.
    console: destination; standard output by default.
  """
  console = console or rich.console.Console()
  drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  cells = [[_cell(value, max_width=console.width) for value in row]
           for row in rows]
  widths, loose = list[int](), list[int]()  # Loose columns may be wrapped.
  for i, heading in enumerate(columns):
    column = [row[i] for row in cells]
    numeric = all(_is_number(row[i]) or _NUMBER.fullmatch(text)
                  for row, text in zip(rows, column))
    widths.append(max(map(cell_len, column), default=0))
    # Short texts without spaces would be broken within words.
    if numeric or (widths[i] <= console.width / 3 and not any(
        ' ' in text for text in column)):
      heading = textwrap.fill(
          heading, max(_HEADING_WIDTH, widths[i]), break_long_words=False)
      widths[i] = max(widths[i], *map(cell_len, heading.split('\n')))
    else:
      loose.append(i)
    drawn.add_column(
        _text(heading), justify='right' if numeric else 'left',
        overflow='fold', no_wrap=i not in loose)
  rest = console.width - sum(widths) - _GAP * len(columns)
  if rest < 0 and not loose:  # Then all texts are.
    loose = [i for i, c in enumerate(drawn.columns) if c.justify == 'left']
    for i in loose:
      drawn.columns[i].no_wrap = False
  # Paths and names of metrics are broken after / and _.
  rest = (rest + sum(widths[i] for i in loose)) // max(1, len(loose))
  for row in cells:
    drawn.add_row(*(
        _text(_fold(text, max(rest, _HEADING_WIDTH)) if i in loose else text)
        for i, text in enumerate(row)))
  # Table(title=...) would wrap the title to the width of a narrow table.
  console.print(_text(title, style='bold'))
  console.print(drawn)


def _fold(text: str, width: int) -> str:
  """Breaks a text without spaces after / or _ into lines of `width` columns."""
  if ' ' in text:
    return text
  lines = ['']
  for part in re.findall(r'[^/_]*[/_]|[^/_]+', text):
    if lines[-1] and cell_len(lines[-1] + part) > width:
      lines.append('')
    lines[-1] += part
  return '\n'.join(lines)


def print_lines(text: str, *, in_logs: bool = False) -> None:
  """Prints text, without control characters; terminals wrap it.

  Without a terminal, only with `in_logs`: other lines may be records, such as
  one for each file.
  """
  console = rich.console.Console()
  if console.is_terminal or in_logs:
    text = wrap(text, width=console.width)
  console.print(_text(text), soft_wrap=True)


def brief(
    lines: Sequence[str], *, console: rich.console.Console | None = None,
) -> list[str]:
  """Returns a report for a terminal: four lines, cut to its width.

  Settings that files declare are left out first. Logs get all lines, as does a
  terminal if `verbose`.
  """
  console = console or rich.console.Console()
  if verbose or not console.is_terminal:
    return [*lines]
  shown = [*lines]
  if len(lines) > _BRIEF:
    shown = [line for line in lines if not line.startswith(
        ('  declared', '  inferred'))][:_BRIEF - 1]
    more = format_count(len(lines) - len(shown), 'line')
    shown.append(f'  and {more} more: --verbose, or model.summary in Python')
  return [line if cell_len(line) <= console.width else
          set_cell_size(line, console.width - 1) + '…' for line in shown]


def wrap(text: str, *, width: int) -> str:
  """Wraps lines between words; continued lines are indented.

  Indented lines are wrapped only if they begin with a key ('  model: ...'):
  others may be commands to copy.
  """
  return '\n'.join(
      line if re.match(r'  (?!\S[^:]*: )', line) else textwrap.fill(
          line, width, break_long_words=False, break_on_hyphens=False,
          subsequent_indent='    ' if line.startswith('  ') else '  ')
      for line in text.split('\n'))


def format_number(value: float, *, digits: int = 3) -> str:
  """Formats a number for reading: 0.0312, 1.24, 812, 14,210, 3.1e-05."""
  if value != value or abs(value) == float('inf'):
    return str(value)
  if abs(value) >= 100:
    return f'{value:,.0f}'
  if value == 0 or abs(value) >= 1e-3:
    return f'{value:#.{digits}g}'.rstrip('.')
  return f'{value:.1e}'


def format_numbers(values: float | Sequence[float]) -> str:
  """Formats one number or several, such as means of channels."""
  several = (values,) if isinstance(values, (int, float)) else values
  return ', '.join(f'{value:.4g}' for value in several)


def format_count(count: int, noun: str) -> str:
  """Formats a number of things: '1 image', '1,024 images', '2 classes'."""
  plural = 'es' if noun.endswith('s') else 's'
  return f'{count:,} {noun}' + plural * (count != 1)


def format_percent(fraction: float, *, digits: int = 0) -> str:
  """Formats a fraction: '34 %', a dash for NaN."""
  return '–' if fraction != fraction else f'{100 * fraction:.{digits}f} %'


def format_secs(secs: float) -> str:
  """Formats a duration as 0:07, 12:30 or 3:05:00."""
  minutes, rest = divmod(round(secs), 60)
  hours, minutes = divmod(minutes, 60)
  return (f'{hours}:{minutes:02}:{rest:02}' if hours
          else f'{minutes}:{rest:02}')


def format_bytes(count: float) -> str:
  """Formats a size in bytes with binary units: '1.2 GiB'."""
  return humanize.naturalsize(count, binary=True)


def format_flops(count: float) -> str:
  """Formats a number of floating-point operations: '1.24 TFLOP'."""
  return humanize.metric(count, 'FLOP')


def format_metric(
    value: float | None, *, is_fraction: bool, digits: int = 3) -> str:
  """Formats a value of a metric: '97.22 %', '0.113', a dash for None."""
  if value is None:
    return '–'
  return (format_percent(value, digits=2) if is_fraction
          else format_number(value, digits=digits))


def shorten(text: str, width: int) -> str:
  """Replaces the middle of a text of more than `width` columns by '…'."""
  if cell_len(text) <= width:
    return text
  end = (width - 1) // 2
  return (f'{set_cell_size(text, width - 1 - end)}…'
          f'{set_cell_size(text[::-1], end)[::-1]}')


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(text: str, *, style: str = '') -> rich.text.Text:
  return rich.text.Text(escape.lines(text), style=style)


def _cell(value: Any, *, max_width: int) -> str:
  if value is None:
    return '–'
  if isinstance(value, int) and _is_number(value):
    return f'{value:,}'
  if _is_number(value):
    return format_number(value)
  return shorten(escape.line(str(value)), max_width)
