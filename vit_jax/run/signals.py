"""SIGTERM and Ctrl-C stop training at the next safe point.

In a run of several processes a signal to any one of them stops all at the same
step. Importing JAX takes seconds, in which a run has nothing to save. Extension
modules that are being imported ignore a `KeyboardInterrupt` or replace it with
an `ImportError`, so a signal ends the process there without an exception.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
from types import FrameType
from typing import Any

# Exit status of a run that the same command resumes: EX_TEMPFAIL of sysexits.h
# for SIGTERM, and the shell's 128 + 2 for Ctrl-C.
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}


def catch_early() -> None:
  """Ends the process with these statuses, until `catch` takes over."""
  for signum in EXIT_CODES:
    if signal.getsignal(signum) != signal.SIG_IGN:  # As under nohup.
      signal.signal(signum, _end)


def release_sigterm() -> None:
  """Restores the default of SIGTERM, for commands that do not resume."""
  if signal.getsignal(signal.SIGTERM) is _end:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(signum: int, frame: FrameType | None) -> None:
  importing = False
  while frame is not None and not importing:
    importing = frame.f_code.co_filename.startswith('<frozen importlib')
    frame = frame.f_back
  if signum == signal.SIGINT and not importing:
    raise KeyboardInterrupt  # Removes temporary files.
  os._exit(EXIT_CODES[signal.Signals(signum)])


class Stopped(Exception):
  """Training was stopped by a signal."""

  def __init__(self, signum: int):
    super().__init__(signal.Signals(signum).name)
    self.exit_code = EXIT_CODES[signal.Signals(signum)]


class StopRequest:
  """Remembers the signal that asked this run to stop."""

  def __init__(self, *, is_distributed: bool = False):
    self._is_distributed = is_distributed
    self._signum: int | None = None

  def receive(self, signum: int, frame: Any) -> None:
    """Handles a signal; a second Ctrl-C interrupts immediately."""
    del frame
    if self._signum == signum == signal.SIGINT:
      raise KeyboardInterrupt
    self._signum = signum
    if self._is_distributed:  # JAX forwards SIGTERM to all processes.
      os.kill(os.getpid(), signal.SIGTERM)

  def check(self) -> None:
    """Raises `Stopped` if the run must stop, at the same call in all processes.
    """
    if self._is_distributed:
      from vit_jax.parallel import coordination
      if coordination.reached_stop_point():
        raise Stopped(self._signum or signal.SIGTERM)
    elif self._signum is not None:
      raise Stopped(self._signum)


_active: list[StopRequest] = []  # At most one: inner contexts share it.


@contextlib.contextmanager
def catch() -> Iterator[StopRequest]:
  """Catches SIGTERM and Ctrl-C in the main thread; nested contexts share it."""
  if _active:
    yield _active[0]
    return
  # Imports JAX, which takes seconds; main.py needs only the exit codes.
  from vit_jax.parallel import coordination

  is_distributed = coordination.is_distributed()
  stop = StopRequest(is_distributed=is_distributed)
  # With several processes, JAX itself handles SIGTERM.
  caught = [signal.SIGINT] if is_distributed else list(EXIT_CODES)
  before = {}
  with contextlib.suppress(ValueError):  # Not the main thread.
    for signum in caught:
      before[signum] = signal.signal(signum, stop.receive)
  _active.append(stop)
  try:
    yield stop
  finally:
    _active.clear()
    for signum, handler in before.items():
      signal.signal(signum, handler)
