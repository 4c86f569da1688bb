"""Leaving in good order: SIGTERM and Ctrl-C become a wish that the loop grants.
"""

from collections.abc import Iterator
import contextlib
import signal
from typing import Any

# What a process that saved and can be started again exits with: EX_TEMPFAIL of
# sysexits.h for SIGTERM, and the shell's 128 + 2 for Ctrl-C.
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}


class Stopped(Exception):
  """Training was asked to stop, and has saved what it had."""

  def __init__(self, signum: int):
    super().__init__(signal.Signals(signum).name)
    self.exit_code = EXIT_CODES[signal.Signals(signum)]


class Stop:
  """Whether, and by which signal, the process was asked to stop."""

  def __init__(self) -> None:
    self._signum: int | None = None

  def receive(self, signum: int, frame: Any) -> None:
    """Handles a signal; a second Ctrl-C interrupts at once."""
    del frame
    if self._signum == signum == signal.SIGINT:
      raise KeyboardInterrupt
    self._signum = signum

  def check(self) -> None:
    """Raises `Stopped` if a signal has come."""
    if self._signum is not None:
      raise Stopped(self._signum)


@contextlib.contextmanager
def catch() -> Iterator[Stop]:
  """Catches SIGTERM and SIGINT while the context lasts.

  Python only hands signals to its main thread; elsewhere nothing is caught.
  """
  stop = Stop()
  before = {}
  try:
    for signum in EXIT_CODES:
      before[signum] = signal.signal(signum, stop.receive)
  except ValueError:
    pass
  try:
    yield stop
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
