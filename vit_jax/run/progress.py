"""Progress of a run in a terminal or a log file."""

from collections.abc import Mapping
import time

import rich.console
import rich.progress

from vit_jax import console as console_lib

# Training metrics of a line, with their headings.
_SHOWN = {'loss': 'loss', 'images_per_sec': 'images/s',
          'wait_share': 'wait share'}
_MAX_WAIT_SHARE = 0.5  # Advice is printed above.


class Progress:
  """A progress bar, or plain lines if the output is not a terminal.

  ```
  with Progress(total_steps=1000, title='pretrain') as progress:
    for step in range(1, 1001):
      ...
      progress.update(step, {'loss': loss, 'images_per_sec': speed})
      progress.print('evaluated: accuracy 0.91')
  ```
  """

  def __init__(
      self, total_steps: int, *, start_step: int = 0, title: str = '',
      quiet: bool = False, console: rich.console.Console | None = None):
    """Begins at the step before the first one of this start."""
    self._console = console or rich.console.Console(quiet=quiet)
    self._bar = rich.progress.Progress(
        rich.progress.TextColumn('[bold]{task.description}'),
        rich.progress.BarColumn(bar_width=None),
        rich.progress.TextColumn('{task.completed:,}/{task.total:,}'
                                 '{task.fields[figures]}'),
        rich.progress.TimeRemainingColumn(compact=True),
        console=self._console, expand=True, get_time=time.monotonic,
        disable=not self._console.is_terminal, speed_estimate_period=3600,
        # A higher rate would slow down training on a CPU.
        refresh_per_second=2)
    self._bar.add_task(
        title, total=total_steps, completed=start_step, figures='')
    self._task, = self._bar.tasks
    self._advised = False

  def __enter__(self) -> 'Progress':
    self._bar.start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._bar.stop()

  def advance(self, step: int) -> None:
    """Moves the bar without printing."""
    self._bar.update(self._task.id, completed=step)

  def update(self, step: int, row: Mapping[str, float]) -> None:
    """Shows training metrics; without a terminal, prints a line."""
    share = row.get('wait_share', 0)
    if not self._advised and share > _MAX_WAIT_SHARE:
      self._advised = True
      self.print('note: training waits for images '
                 f'{console_lib.format_percent(share)} of the time; '
                 'docs/measurements.md lists remedies')
    figures = ''.join(
        f'  {heading} ' + (
            console_lib.format_percent(row[name], digits=1)
            if name == 'wait_share' else console_lib.format_number(row[name]))
        for name, heading in _SHOWN.items() if name in row)
    self._bar.update(self._task.id, completed=step, figures=figures)
    if self._bar.disable:
      title, secs = self._task.description, self._task.time_remaining
      left = f'  {console_lib.format_secs(secs)} left' if secs else ''
      self.print(f'{title}{"  " * bool(title)}{step:,}/{self._task.total:,}'
                 f'{figures}{left}')

  def print(self, text: str) -> None:
    """Prints a line above the bar."""
    self._console.print(
        console_lib.wrap(text, width=self._console.width), markup=False,
        highlight=False, soft_wrap=True)
