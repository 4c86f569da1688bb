"""Says that a run no longer moves, and ends one that stays so.

A process that died is found by JAX's heartbeats. One that is alive and yet
does nothing is not: its input hangs, or a collective waits for a process whose
input does. Then every process of the run stands still, and would for ever.
"""

from collections.abc import Callable
import os
import sys
import threading
import time
import traceback

import jax

# What a process exits with that has not moved for long: EX_PROTOCOL of
# sysexits.h. The last checkpoint is whole; the same command goes on from it.
EXIT_CODE = 76


class Watchdog:
  """A thread that looks at the clock; use as a context manager.

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
      doing: str = 'starting', name: str = '',
      report: Callable[[str], None] | None = None,
      end: Callable[[int], None] = os._exit,
  ):
    """Prepares; the clock starts when the context is entered.

    Args:
      report_secs: without a beat for so long, it is said; 0 for never.
      end_secs: without a beat for so long, the process ends; 0 for never.
      start_secs: the same in the start of a run, of which a single thing, such
        as compiling, may take long; 0 for never.
      doing: what is done until the first beat, a part of the start.
      name: of the process; by default its number.
      report: takes the text; writes to standard error if not given.
      end: ends the process with a status.
    """
    self._report_secs = report_secs
    self._end_secs = end_secs
    self._start_secs = start_secs
    self._doing = doing
    self._name = name or (
        f'process {jax.process_index()} of {jax.process_count()}')
    self._report = report or _write
    self._end = end
    self._watched = threading.get_ident()
    self._step = 0
    # One tuple, so that the thread never sees the half of a beat.
    self._beat = (time.monotonic(), doing, True)
    self._closed = threading.Event()
    self._thread: threading.Thread | None = None

  def __enter__(self) -> 'Watchdog':
    self._watched = threading.get_ident()
    self.beat(self._doing, is_start=True)
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
      self, doing: str, *, step: int | None = None, is_start: bool = False,
  ) -> None:
    """Starts the clock anew: something has moved.

    Args:
      doing: what is done from now on.
      step: updates made, if their number has changed.
      is_start: that is a part of the start, such as compiling, which has a
        limit of its own.
    """
    if step is not None:
      self._step = step
    self._beat = (time.monotonic(), doing, is_start)

  def _watch(self, period_secs: float) -> None:
    reported, looked = None, time.monotonic()
    resumed = 0.0
    while not self._closed.wait(period_secs):
      now, beat = time.monotonic(), self._beat
      if now - looked > 2 * period_secs + 5:
        # The whole process was halted, as by Ctrl-Z: nothing could move.
        resumed = now
      looked = now
      start, doing, is_start = beat
      start = max(start, resumed)
      limit, setting = ((self._start_secs, 'log.start_secs') if is_start else
                        (self._end_secs, 'log.hung_secs'))
      if limit and now - start >= limit:
        self._report(
            self._text(doing, now - start) + f'\nEnds with status {EXIT_CODE}: '
            'the same command goes on from the last checkpoint.')
        self._end(EXIT_CODE)
        return
      if (self._report_secs and now - start >= self._report_secs
          and reported is not beat):
        reported = beat
        self._report(self._text(doing, now - start) + (
            f'\nIt ends after {limit:g} s of this ({setting}).'
            if limit else ''))

  def _text(self, doing: str, secs: float) -> str:
    frame = sys._current_frames().get(self._watched)
    stack = ''.join(traceback.format_stack(frame)) if frame else ''
    return (f'{self._name}: nothing has moved for {secs:.0f} s, after '
            f'step {self._step:,}: {doing}. It stands at\n{stack.rstrip()}')


def _write(text: str) -> None:
  print(text, file=sys.stderr, flush=True)
