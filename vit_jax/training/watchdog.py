"""Reports a run that makes no progress and ends it.

JAX's heartbeats find processes that died. They do not find a process whose
input hangs, or a collective that waits for such a process; then every process
of the run would wait forever.
"""

from collections.abc import Callable
import functools
import os
import sys
import threading
import time
import traceback

import jax

# Exit status of a run that hung: EX_PROTOCOL of sysexits.h. The last checkpoint
# is complete; the same command resumes from it.
EXIT_CODE = 76


class Watchdog:
  """A thread that checks for progress; use as a context manager.

  ```
  with Watchdog(report_secs=300, end_secs=1800, start_secs=7200) as watchdog:
    watchdog.beat('compiling', is_start=True)
    ...
    for step in ...:
      watchdog.beat('waiting for the input')
      batch = next(batches)
      watchdog.beat('in a step', step=step)
  ```
  """

  def __init__(
      self, *, report_secs: float, end_secs: float, start_secs: float,
      activity: str = 'starting', report: Callable[[str], None] | None = None,
      end: Callable[[int], None] = os._exit,
  ):
    """Initialises the watchdog; entering the context starts it.

    Args:
      report_secs: time without a beat after which to report; 0 for never.
      end_secs: time without a beat after which to end the process; 0 for never.
      start_secs: `end_secs` for activities of the start, such as compiling.
      activity: activity until the first beat.
      report: receives the report.
      end: ends the process with an exit status.
    """
    self._report_secs = report_secs
    self._end_secs = end_secs
    self._start_secs = start_secs
    self._activity = activity
    self._report = report or functools.partial(
        print, file=sys.stderr, flush=True)
    self._end = end
    self._step = 0
    self._closed = threading.Event()
    self._thread: threading.Thread | None = None

  def __enter__(self) -> 'Watchdog':
    self._watched_thread = threading.get_ident()
    self.beat(self._activity, is_start=True)
    limits = [limit for limit in (
        self._report_secs, self._end_secs, self._start_secs) if limit]
    if limits:
      self._thread = threading.Thread(
          target=self._watch, args=(min(10.0, min(limits) / 4),),
          name='watchdog', daemon=True)
      self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._closed.set()
    if self._thread is not None:
      self._thread.join()

  def beat(
      self, activity: str, *, step: int | None = None, is_start: bool = False,
  ) -> None:
    """Records progress and the next activity; `is_start` uses `start_secs`."""
    if step is not None:
      self._step = step
    # One tuple, so that the thread never reads half of a beat.
    self._beat = (time.monotonic(), activity, is_start)

  def _watch(self, period_secs: float) -> None:
    reported = None
    while not self._closed.wait(period_secs):
      start, activity, is_start = beat = self._beat
      secs = time.monotonic() - start
      limit, setting = ((self._start_secs, 'log.start_secs') if is_start else
                        (self._end_secs, 'log.hung_secs'))
      if limit and secs >= limit:
        self._report(
            self._describe(activity, secs)
            + f'\nExiting with status {EXIT_CODE}: the same command resumes '
            'from the last checkpoint.')
        self._end(EXIT_CODE)
        return
      if self._report_secs and secs >= self._report_secs and (
          reported is not beat):
        reported = beat
        self._report(self._describe(activity, secs) + (
            f'\nThe process will exit after {limit:g} s ({setting}).'
            if limit else ''))

  def _describe(self, activity: str, secs: float) -> str:
    frame = sys._current_frames().get(self._watched_thread)
    stack = ''.join(traceback.format_stack(frame)) if frame else ''
    return (f'process {jax.process_index()} of {jax.process_count()}: no '
            f'progress for {secs:.0f} s after step {self._step:,} while '
            f'{activity}. Stack:\n{stack.rstrip()}')
