"""Progress of a run in a terminal or a log file."""

import dataclasses
import time

import rich.console
import rich.progress

from vit_jax import console as console_lib

_MAX_WAIT_SHARE = 0.5  # Advice is printed above.


@dataclasses.dataclass
class Progress:
  """A progress bar, or plain lines if the output is not a terminal.

  ```
  with Progress(total_steps=1000, title='pretrain') as progress:
    for step in range(1, 1001):
      ...
      progress.update(step, loss=loss, images_per_sec=speed)
      progress.print('evaluated: accuracy 0.91')
  ```

  Attributes:
    total_steps: last step.
    start_step: steps before this start.
    title: name of the run.
    console: destination.
    active: whether this process prints.
  """
  total_steps: int
  start_step: int = 0
  title: str = ''
  console: rich.console.Console = dataclasses.field(
      default_factory=rich.console.Console)
  active: bool = True

  def __post_init__(self):
    self._bar: rich.progress.Progress | None = None
    self._advised = False

  def __enter__(self) -> 'Progress':
    self._start_secs = time.monotonic()
    if self.active and self.console.is_terminal:
      self._bar = rich.progress.Progress(
          rich.progress.TextColumn('[bold]{task.description}'),
          rich.progress.BarColumn(bar_width=None),
          rich.progress.TextColumn('{task.completed:,}/{task.total:,}'
                                   '{task.fields[figures]}'),
          rich.progress.TimeRemainingColumn(compact=True),
          console=self.console, expand=True,
          # A higher rate would slow down training on a CPU.
          refresh_per_second=2)
      self._task = self._bar.add_task(
          self.title, total=self.total_steps, completed=self.start_step,
          figures='')
      self._bar.start()
    return self

  def __exit__(self, *exception: object) -> None:
    if self._bar is not None:
      self._bar.stop()
      self._bar = None

  def update(self, step: int, **figures: float) -> None:
    """Shows the step and its metrics; without a terminal, prints a line."""
    share = figures.get('wait_share', 0)
    if not self._advised and share > _MAX_WAIT_SHARE:
      self._advised = True
      self.print('note: training waits for images '
                 f'{console_lib.format_percent(share)} of the time; '
                 'docs/performance.md lists remedies')
    text = ''.join(
        f'  {name.replace("_per_sec", "/s").replace("_", " ")} '
        + (console_lib.format_percent(value, digits=1)
           if name == 'wait_share' else console_lib.format_number(value))
        for name, value in figures.items())
    if self._bar is not None:
      self._bar.update(self._task, completed=step, figures=text)
    else:
      title = f'{self.title}  ' if self.title else ''
      self.print(f'{title}{step:,}/{self.total_steps:,}{text}'
                 f'{self._time_left(step)}')

  def advance(self, step: int) -> None:
    """Moves the bar without printing."""
    if self._bar is not None:
      self._bar.update(self._task, completed=step)

  def print(self, text: str) -> None:
    """Prints a line above the bar."""
    if self.active:
      self.console.print(
          console_lib.wrap(text, width=self.console.width), markup=False,
          highlight=False, soft_wrap=True)

  def _time_left(self, step: int) -> str:
    done = step - self.start_step
    if done <= 0 or step >= self.total_steps:
      return ''
    secs = (time.monotonic() - self._start_secs) / done * (
        self.total_steps - step)
    return f'  {console_lib.format_secs(secs)} left'
