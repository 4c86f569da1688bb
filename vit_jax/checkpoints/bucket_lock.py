"""One run at a time where files cannot be locked, as in a bucket.

    claim ─▶ wait ─▶ still there? ─▶ held: written anew every few seconds

Anybody may overwrite the file, and a bucket cannot say who came first. So each
reads it before it writes. Whoever finds another's word decides by it which of
the two goes on, and the other decides alike: who holds before who claims, else
the smaller of two random numbers. A holder that was cut off for so long that
another may rightly have taken it for dead gives way to it.
"""

from collections.abc import Callable, Generator
import contextlib
import json
import os
import sys
import threading
import time
from typing import Any, Protocol, runtime_checkable

from etils import epath

from vit_jax.checkpoints import errors
from vit_jax.checkpoints import holder

BEAT_SECS = 15.0
# At first the holder looks as often as a bucket takes writes of one file with
# ease: who starts at about the same time learns of it before it begins.
EARLY_BEAT_SECS, EARLY_SECS = 2.0, 60.0
SETTLE_SECS = 5.0
# A holder that misses three beats is dead.
WATCH_SECS = 3 * BEAT_SECS
EXIT_CODE = 2  # Of who loses the file: as where it is found held.


@runtime_checkable
class File(Protocol):
  """What is needed of a path."""

  def read_text(self) -> str:
    """Raises FileNotFoundError if there is none."""

  def write_text(self, text: str) -> Any:
    """Writes all or nothing."""


class InUseError(Exception):
  """Another run goes on here; `record` is what that one writes."""

  def __init__(self, record: dict[str, Any]):
    super().__init__(holder.name(record))
    self.record = record


@contextlib.contextmanager
def hold(
    path: epath.Path, *, sleep: Callable[[float], None] = time.sleep,
    end: Callable[[int], None] = os._exit,
) -> Generator[None, None, None]:
  """Holds a file for this process while the context lasts.

  Args:
    path: of the file, in the workdir.
    sleep: waits.
    end: ends the process, where another run turns out to hold the file: it
      must not write another byte.

  Raises:
    ValueError: if another run holds it.
    storage.StorageError: if it cannot be written.
  """
  claim = Claim(path, holder.me(), sleep=sleep)
  try:
    with errors.explained('the workdir', path.parent):
      claim.settle()
  except InUseError as error:
    raise ValueError(holder.in_use(path.parent, error.record)) from None
  closed = threading.Event()

  def beat() -> None:
    while not closed.wait(claim.beat_secs):
      try:
        claim.beat()
      except InUseError as error:
        print(f'main.py: error: {holder.in_use(path.parent, error.record)} '
              'This one was cut off from it, and ends.',
              file=sys.stderr, flush=True)
        end(EXIT_CODE)
        return
      except Exception:  # The next beat may succeed.
        continue

  thread = threading.Thread(target=beat, name='lock', daemon=True)
  thread.start()
  try:
    yield
  finally:
    closed.set()
    thread.join()
    with contextlib.suppress(Exception):
      if claim.is_there():
        path.unlink()


class Claim:
  """One run's claim of a file."""

  def __init__(
      self, file: File, record: dict[str, Any], *,
      sleep: Callable[[float], None] = time.sleep,
      clock: Callable[[], float] = time.monotonic):
    """Prepares.

    Args:
      file: that all claim.
      record: of this run, as `holder.me` makes it.
      sleep: waits.
      clock: tells seconds.
    """
    self._record = {**record, 'held': False, 'count': 0}
    self._file = file
    self._sleep = sleep
    self._clock = clock
    self._held_at = self._written_at = clock()

  def settle(self) -> None:
    """Takes the file.

    Raises:
      InUseError: if another run goes on.
    """
    self._watch()
    self._write()
    self._sleep(SETTLE_SECS)
    while not self._is_there():
      self._write()
      self._sleep(SETTLE_SECS)
    self._record['held'] = True
    self._held_at = self._clock()
    self._write()

  def beat(self) -> None:
    """Says that the holder is alive.

    Raises:
      InUseError: if another run goes on.
    """
    self._is_there()
    self._write()

  @property
  def beat_secs(self) -> float:
    """Seconds to the next beat."""
    is_early = self._clock() - self._held_at < EARLY_SECS
    return EARLY_BEAT_SECS if is_early else BEAT_SECS

  def is_there(self) -> bool:
    """Whether the file says that this run has it."""
    return holder.parse(self._read()).get('run') == self._record['run']

  def _is_there(self) -> bool:
    """As `is_there`, but raises where another's word counts."""
    found = holder.parse(self._read())
    if found.get('run') == self._record['run']:
      return True
    if found and not self._goes_before(found):
      raise InUseError(found)
    return False

  def _goes_before(self, other: dict[str, Any]) -> bool:
    was_cut_off = self._clock() - self._written_at > WATCH_SECS
    if self._record['held'] and was_cut_off:
      return False

    def rank(record: dict[str, Any]) -> tuple[bool, str]:
      return not record.get('held'), str(record.get('run'))

    return rank(self._record) < rank(other)

  def _watch(self) -> None:
    """Waits until whoever has the file has shown whether it is alive."""
    found = self._read()
    if not found or holder.is_dead(holder.parse(found)):
      return
    print(f'The lock says that process {holder.name(holder.parse(found))} is '
          f'at work here. Looks for {WATCH_SECS:g} s whether it is.',
          flush=True)
    for _ in range(10):
      self._sleep(WATCH_SECS / 10)
      now = self._read()
      if now and now != found:
        raise InUseError(holder.parse(now))

  def _read(self) -> str:
    try:
      return self._file.read_text()
    except FileNotFoundError:
      return ''

  def _write(self) -> None:
    self._record['count'] += 1
    self._file.write_text(json.dumps(self._record))
    self._written_at = self._clock()
