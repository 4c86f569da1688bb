"""Leaving in good order: SIGTERM and Ctrl-C become a wish that the loop grants.

Of a run of several processes a signal to any one stops all, at the same step.
"""

from collections.abc import Iterator
import contextlib
import signal
from typing import Any, Protocol, runtime_checkable

# What a process that saved and can be started again exits with: EX_TEMPFAIL of
# sysexits.h for SIGTERM, and the shell's 128 + 2 for Ctrl-C.
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}


@runtime_checkable
class Agreement(Protocol):
  """See `parallel.agreement`."""

  def reached(self, wish: str | None) -> str | None:
    """Passes a point; returns the wish that all act on here."""


class Stopped(Exception):
  """Training was asked to stop, and has saved what it had."""

  def __init__(self, signum: int):
    super().__init__(signal.Signals(signum).name)
    self.exit_code = EXIT_CODES[signal.Signals(signum)]


class Stop:
  """Whether, and by which signal, the run was asked to stop."""

  def __init__(self, agreed: Agreement | None = None):
    """Prepares to receive.

    Args:
      agreed: with the other processes of the run, if there are any.
    """
    self._signum: int | None = None
    self._agreed = agreed

  def receive(self, signum: int, frame: Any) -> None:
    """Handles a signal; a second Ctrl-C interrupts at once."""
    del frame
    if self._signum == signum == signal.SIGINT:
      raise KeyboardInterrupt
    self._signum = signum

  def check(self) -> None:
    """Raises `Stopped` if a signal has come.

    Of several processes each must call it at the same places of the program,
    and equally often: all raise in the same call.
    """
    signum = self._signum
    if self._agreed is not None:
      wish = self._agreed.reached(None if signum is None else str(int(signum)))
      signum = None if wish is None else int(wish)
    if signum is not None:
      raise Stopped(signum)


_active: list[Stop] = []  # At most one, whatever the depth of contexts.


@contextlib.contextmanager
def catch() -> Iterator[Stop]:
  """Catches SIGTERM and SIGINT while the context lasts.

  A context within another one is the same: a signal that comes while one run
  of several ends is granted by the next. Python only hands signals to its main
  thread; elsewhere nothing is caught.
  """
  if _active:
    yield _active[0]
    return
  # JAX takes seconds, and main.py reads this file's statuses before it.
  from vit_jax.parallel import coordination

  agreed = coordination.begin('stop')
  stop = Stop(agreed)
  before = {}
  try:
    for signum in EXIT_CODES:
      before[signum] = signal.signal(signum, stop.receive)
  except ValueError:
    pass
  _active.append(stop)
  try:
    yield stop
  finally:
    _active.clear()
    for signum, handler in before.items():
      signal.signal(signum, handler)
    if agreed is not None:
      agreed.close()
