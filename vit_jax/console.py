"""Terminal output shared by all commands: tables, numbers, sizes, durations."""

from collections.abc import Mapping, Sequence
import sys
from typing import Any

import humanize
import rich.box
from rich.cells import cell_len
from rich.cells import set_cell_size
import rich.console
import rich.table
import rich.text

from vit_jax import escape

# Metrics whose last path component starts with one of these are fractions.
_FRACTIONS = ('accuracy', 'precision', 'mean_average_precision',
              'calibration_error', 'f1', 'mean_corruption_error', 'mean_iou')


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *,
    max_lines: int = 3, console: rich.console.Console | None = None,
) -> None:
  """Prints a table; numbers and percentages are right-aligned.

  Text that needs more than `max_lines` lines is shortened in the middle.

  Args:
    title: line above the table.
    columns: headings.
    rows: cells of each row; numbers are formatted by `format_number`, None is
      a dash, anything else is printed as `str`.
    max_lines: lines per row; cells with line breaks may have more.
    console: destination; standard output by default.
  """
  console = console or rich.console.Console()
  drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  columns = list(map(escape.lines, columns))
  cells = [[escape.lines(_cell(value)) for value in row] for row in rows]
  numeric = [all(_is_number(row[i]) or row[i] is None
                 or str(row[i]).endswith('%') for row in rows)
             for i in range(len(columns))]
  widths = _column_widths(columns, cells, numeric, total=console.width)
  for column, is_numeric, width in zip(columns, numeric, widths):
    drawn.add_column(
        _text(column), justify='right' if is_numeric else 'left',
        overflow='fold', width=width)
  for row in cells:
    drawn.add_row(*(_text(_fit(text, width, max_lines, console))
                    for text, width in zip(row, widths)))
  # Table(title=...) would wrap the title to the width of a narrow table.
  console.print(_text(title, style='bold'))
  console.print(drawn)


def print_lines(text: str, *, file: Any = None) -> None:
  """Prints text, without control characters; terminals wrap it at spaces."""
  text, file = escape.lines(text), file or sys.stdout
  if file.isatty():
    console = rich.console.Console(file=file)
    for line in text.split('\n'):
      # An indented line may be a command to copy.
      console.print(rich.text.Text(line), soft_wrap=line.startswith('  '))
  else:
    print(text, file=file, flush=True)


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
  """Formats a number of things: '1 image', '1,024 images'."""
  return f'{count:,} {noun}' + 's' * (count != 1)


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


def format_metrics(row: Mapping[str, float]) -> str:
  """Formats metrics by name, without the numbers of examples.

  For example: 'val/accuracy 97.22 %, val/loss 0.113'.
  """
  return ', '.join(
      f'{name} {format_metric(name, value)}' for name, value in row.items()
      if not name.endswith('/examples'))


def format_metric(name: str, value: float | None, *, digits: int = 3) -> str:
  """Formats a value of a metric: '97.22 %', '0.113', a dash for None."""
  if value is None:
    return '–'
  return (f'{100 * value:.2f} %' if is_fraction(name)
          else format_number(value, digits=digits))


def format_statistics(name: str, values: Mapping[str, Any]) -> str:
  """Formats `mean` and `std` of a metric over runs: '97.22 ± 0.13 %'."""
  mean, std = values['mean'], values['std']
  if mean is None or std is None:
    return format_metric(name, mean)
  if is_fraction(name):
    return f'{100 * mean:.2f} ± {100 * std:.2f} %'
  return f'{format_number(mean)} ± {format_number(std)}'


def is_fraction(name: str) -> bool:
  """Whether a metric is a fraction, shown in percent."""
  return name.split('/')[-1].startswith(_FRACTIONS) or name.endswith(
      ('accuracy', '_shot', '_shot_std'))


def shorten(text: str, width: int) -> str:
  """Replaces the middle of a text of more than `width` columns by '…'."""
  if cell_len(text) <= width:
    return text
  end = (width - 1) // 2
  return (f'{set_cell_size(text, width - 1 - end)}…'
          f'{set_cell_size(text[::-1], end)[::-1]}')


def _column_widths(
    columns: Sequence[str], cells: Sequence[Sequence[str]],
    numeric: Sequence[bool], *, total: int,
) -> list[int]:
  """Returns widths that fit into `total`; numbers are never cut.

  Words are broken only if the longest words of all columns do not fit side by
  side.
  """
  widths, words = [], []
  for column, is_numeric in zip(zip(columns, *cells), numeric):
    widths.append(max(
        cell_len(line) for text in column for line in text.split('\n')))
    # A number and its unit stay on one line; headings may wrap.
    words.append(max(
        cell_len(word) for i, text in enumerate(column)
        for word in (text.split('\n') if is_numeric and i else text.split())
        or ['']))
  free = total - 3 * len(widths) + 1  # Edges, padding and separators.
  for length in (total, 8, 4):
    words = [word if is_numeric else min(word, length)
             for word, is_numeric in zip(words, numeric)]
    for limit in range(total, 0, -1):
      fitted = [min(width, max(word, limit))
                for width, word in zip(widths, words)]
      if sum(fitted) <= free:
        return fitted
  return fitted


def _fit(
    text: str, width: int, max_lines: int, console: rich.console.Console,
) -> str:
  """Shortens a text until it fits into `max_lines` lines of `width`."""
  lines = text.split('\n')
  if len(lines) > 1:
    return '\n'.join(_fit(line, width, max(1, max_lines // len(lines)), console)
                     for line in lines)
  length = cell_len(text)
  while len(_text(text).wrap(console, width, overflow='fold')) > max_lines:
    length = min(length - 1, max_lines * width)
    text = shorten(text, length)
  return text


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(text: str, *, style: str = '') -> rich.text.Text:
  return rich.text.Text(escape.lines(text), style=style)


def _cell(value: Any) -> str:
  if value is None:
    return '–'
  if isinstance(value, int) and _is_number(value):
    return f'{value:,}'
  return format_number(value) if _is_number(value) else str(value)
