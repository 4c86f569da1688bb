"""Reports a run that makes no progress and ends it.

JAX's heartbeats find processes that died. They do not find a process whose
input hangs, or a collective that waits for such a process; then every process
of the run would wait forever.
"""

from collections.abc import Callable
import dataclasses
import os
import sys
import threading
import time
import traceback

import jax

from vit_jax.experiment import config as config_lib
from vit_jax.parallel import coordination

# A run that hung can be restarted like one that lost other processes.
EXIT_CODE = coordination.LostError.exit_code


@dataclasses.dataclass
class Watchdog:
  """A thread that checks for progress; use as a context manager.

  ```
  with Watchdog(config.log, 'opening the workdir') as watchdog:
    watchdog.beat('compiling', is_start=True)
    ...
    for step in ...:
      watchdog.beat('waiting for the input')
      batch = next(batches)
      watchdog.beat('in a step', step=step)
  ```

  Attributes:
    log: time limits.
    activity: activity until the first beat, part of the start.
    report: receives the report.
    end: ends the process with an exit status.
  """
  log: config_lib.LogConfig
  activity: str
  report: Callable[[str], object] = lambda text: print(
      text, file=sys.stderr, flush=True)
  end: Callable[[int], None] = os._exit

  def __post_init__(self):
    self._step = 0
    self._closed = threading.Event()
    self._thread = threading.Thread(
        target=self._watch, name='watchdog', daemon=True)

  def __enter__(self) -> 'Watchdog':
    self._watched_thread = threading.get_ident()
    self.beat(self.activity, is_start=True)
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._closed.set()
    self._thread.join()

  def beat(
      self, activity: str, *, step: int | None = None, is_start: bool = False,
  ) -> None:
    """Records progress and the next activity; `is_start` uses `start_secs`."""
    self._step = self._step if step is None else step
    # One tuple, so that the thread never reads half of a beat.
    self._beat = (time.monotonic(), activity, is_start)

  def _watch(self) -> None:
    log, reported = self.log, None
    limits = filter(None, (log.stalled_secs, log.hung_secs, log.start_secs))
    period_secs = min([10.0, *(limit / 4 for limit in limits)])
    while not self._closed.wait(period_secs):
      start, activity, is_start = beat = self._beat
      secs = time.monotonic() - start
      setting = 'start_secs' if is_start else 'hung_secs'
      limit = getattr(log, setting)
      if limit and secs >= limit:
        self.report(
            self._describe(activity, secs)
            + f'\nExiting with status {EXIT_CODE}: the same command resumes '
            'from the last checkpoint.')
        self.end(EXIT_CODE)
        return
      if 0 < log.stalled_secs <= secs and reported is not beat:
        reported = beat
        self.report(self._describe(activity, secs) + (
            f'\nThe process will exit after {limit:g} s (log.{setting}).'
            if limit else ''))

  def _describe(self, activity: str, secs: float) -> str:
    frame = sys._current_frames().get(self._watched_thread)
    stack = ''.join(traceback.format_stack(frame)) if frame else ''
    return (f'process {jax.process_index()} of {jax.process_count()}: no '
            f'progress for {secs:.0f} s after step {self._step:,} while '
            f'{activity}. Stack:\n{stack.rstrip()}')
