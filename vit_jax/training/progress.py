"""What a person sees while a run goes on, in a terminal or in a log file."""

from collections.abc import Mapping, Sequence
import time
from typing import Any

import rich.box
import rich.console
import rich.progress
import rich.table
import rich.text

# Cells of at most so many characters stay whole; longer ones keep so many.
_SHORT, _LEAST = 24, 12


class Progress:
  """A progress bar; plain lines where there is no terminal to draw it in.

  ```
  with Progress(total_steps=1000, title='pretrain') as progress:
    for step in range(1, 1001):
      ...
      progress.update(step, loss=loss, images_per_sec=speed)
      progress.print('evaluated: accuracy 0.91')  # Above the bar.
  ```
  """

  def __init__(
      self, total_steps: int, *, start_step: int = 0, title: str = '',
      console: rich.console.Console | None = None, active: bool = True,
  ):
    """Prepares the bar; it appears when the context is entered.

    Args:
      total_steps: last step of the run.
      start_step: step that the run starts from; more than 0 on resuming.
      title: what is running, a word or two.
      console: where to write; standard output if not given.
      active: False on every process but the first: nothing is shown.
    """
    self._total_steps = total_steps
    self._start_step = start_step
    self._title = title
    self._console = console or rich.console.Console()
    self._active = active
    self._start_secs = time.monotonic()
    self._bar: rich.progress.Progress | None = None
    self._last: dict[str, float] = {}

  def __enter__(self) -> 'Progress':
    self._start_secs = time.monotonic()
    if self._active and self._console.is_terminal:
      self._bar = rich.progress.Progress(
          rich.progress.TextColumn('[bold]{task.description}'),
          rich.progress.BarColumn(bar_width=None),
          rich.progress.TextColumn('{task.fields[figures]}'),
          rich.progress.TimeRemainingColumn(compact=True),
          console=self._console, expand=True,
          # Four times a second would take a core from a CPU training.
          refresh_per_second=2)
      self._task = self._bar.add_task(
          self._title, total=self._total_steps, completed=self._start_step,
          figures=self._figures(self._start_step, {}))
      self._bar.start()
    return self

  def __exit__(self, *exception: object) -> None:
    if self._bar is not None:
      self._bar.stop()
      self._bar = None

  def update(self, step: int, **figures: float) -> None:
    """Shows the step and its figures, such as `loss` and `images_per_sec`.

    Without a terminal each call is a line: call it when figures are logged.
    """
    if not self._active:
      return
    self._last = figures
    text = self._figures(step, figures)
    if self._bar is not None:
      self._bar.update(self._task, completed=step, figures=text)
    else:
      left = self._time_left(step)
      self._plain('  '.join(filter(None, [self._title, text, left])))

  def advance(self, step: int) -> None:
    """Moves the bar between two updates; prints nothing."""
    if self._bar is not None:
      self._bar.update(self._task, completed=step,
                       figures=self._figures(step, self._last))

  def print(self, text: str) -> None:
    """Prints a line above the bar."""
    if not self._active:
      return
    if self._bar is not None:
      self._bar.console.print(text, markup=False, highlight=False)
    else:
      self._plain(text)

  def _plain(self, text: str) -> None:
    # Not wrapped: a line of a log is one record, whatever its length.
    self._console.print(text, markup=False, highlight=False, soft_wrap=True)

  def _figures(self, step: int, figures: dict[str, float]) -> str:
    shown = [f'{step:,}/{self._total_steps:,}']
    for name, value in figures.items():
      name = name.replace('_per_sec', '/s').replace('_', ' ')
      shown.append(f'{name} {format_number(value)}')
    return '  '.join(shown)

  def _time_left(self, step: int) -> str:
    done = step - self._start_step
    if done <= 0 or step >= self._total_steps:
      return ''
    secs = (time.monotonic() - self._start_secs) / done * (
        self._total_steps - step)
    return f'{format_secs(secs)} left'


def format_number(value: float, *, digits: int = 3) -> str:
  """Returns a figure as a person reads it: 0.0312, 1.24, 812, 14,210."""
  if value != value or abs(value) == float('inf'):
    return str(value)
  if abs(value) >= 100:
    return f'{value:,.0f}'
  if value == 0 or abs(value) >= 1e-3:
    return f'{value:#.{digits}g}'.rstrip('.')
  return f'{value:.1e}'


def format_secs(secs: float) -> str:
  """Returns a length of time as 0:07, 12:30 or 3:05:00."""
  minutes, rest = divmod(round(secs), 60)
  hours, minutes = divmod(minutes, 60)
  return (f'{hours}:{minutes:02}:{rest:02}' if hours
          else f'{minutes}:{rest:02}')


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *,
    console: rich.console.Console | None = None,
) -> None:
  """Prints a table: text to the left, numbers to the right.

  Args:
    title: a line above the table.
    columns: headings.
    rows: cells of each row; numbers are shown as `format_number` does, None as
      a dash. A percentage may come as text ('97.3 %').
    console: where to write; standard output if not given.
  """
  console = console or rich.console.Console()
  for row in rows:
    assert len(row) == len(columns), (row, columns)
  drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
  whole = _whole(columns, rows, width=console.width)
  for i, column in enumerate(columns):
    cells = [row[i] for row in rows]
    numeric = all(
        cell is None or _is_number(cell) or str(cell).endswith('%')
        for cell in cells)
    drawn.add_column(
        rich.text.Text(column), justify='right' if numeric else 'left',
        overflow='fold', no_wrap=i in whole)
  for row in rows:
    drawn.add_row(*(rich.text.Text(_cell(value)) for value in row))
  # Not the table's own title, which wraps where the table is narrow.
  console.print(rich.text.Text(title, style='bold'))
  console.print(drawn)


def _whole(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int,
) -> set[int]:
  """Returns the columns of short cells, which are not broken within a word.

  Others make room: headings of several words, and long texts. None is returned
  where that would leave them too little.
  """
  widths = [max((len(line) for row in rows for line in _cell(row[i]).split(
      '\n')), default=0) for i in range(len(columns))]
  short = {i for i, column in enumerate(columns)
           if len(column) <= widths[i] <= _SHORT}
  least = sum(
      widths[i] if i in short else
      max([min(widths[i], _LEAST), *map(len, column.split())])
      for i, column in enumerate(columns))
  return short if least + 3 * len(columns) <= width else set()


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
  if value is None:
    return '–'
  if isinstance(value, int) and _is_number(value):
    return f'{value:,}'
  return format_number(value) if _is_number(value) else str(value)


def format_metrics(row: Mapping[str, float], *, digits: int = 3) -> str:
  """Returns metrics as a person reads them: 'val/accuracy 97.22 %'.

  Args:
    row: metrics by name.
    digits: significant ones of what is no share.
  """
  shares = ('accuracy', 'precision', 'mean_average_precision',
            'calibration_error')
  return ', '.join(
      f'{name} {100 * value:.2f} %'
      if name.split('/')[-1].startswith(shares)
      or name.endswith(('accuracy', '_shot', '_shot_std'))
      else f'{name} {format_number(value, digits=digits)}'
      for name, value in row.items() if not name.endswith('/examples'))
