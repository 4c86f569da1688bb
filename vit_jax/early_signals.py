"""Exit statuses of SIGTERM and Ctrl-C from the first line of the program on.

Importing JAX takes seconds, in which a run has nothing to save. Extension
modules that are being imported ignore a `KeyboardInterrupt` or replace it with
an `ImportError`, so a signal must end the process there without an exception.
"""

import os
import signal
from types import FrameType

# Exit status of a run that the same command resumes: EX_TEMPFAIL of sysexits.h
# for SIGTERM, and the shell's 128 + 2 for Ctrl-C.
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}


def catch() -> None:
  """Ends the process with these statuses, until `run.signals` takes over."""
  for signum in EXIT_CODES:
    if signal.getsignal(signum) != signal.SIG_IGN:  # As under nohup.
      signal.signal(signum, _end)


def release_sigterm() -> None:
  """Restores the default of SIGTERM, for commands that do not resume."""
  if signal.getsignal(signal.SIGTERM) is _end:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(signum: int, frame: FrameType | None) -> None:
  if signum == signal.SIGINT and not _is_importing(frame):
    raise KeyboardInterrupt  # Removes temporary files.
  os._exit(EXIT_CODES[signal.Signals(signum)])


def _is_importing(frame: FrameType | None) -> bool:
  while frame is not None:
    if frame.f_code.co_filename.startswith('<frozen importlib'):
      return True
    frame = frame.f_back
  return False
