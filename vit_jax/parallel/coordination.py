"""One place of the run at which all processes act on the wish of any one.

A process that is told to stop cannot just do so: the others would wait for it
in their next collective. All have to stop at the same step. The devices are
not asked, for then every step would carry the question; the processes ask each
other through the key-value store of JAX's coordination service, and only once
somebody has a wish. Without one a step costs the taking of a free lock.
"""

import collections
from collections.abc import Callable, Generator
import contextlib
import json
import re
import sys
import threading
import time
from typing import Any, Protocol, runtime_checkable, TypeVar

import jax

# The one private name: JAX shows its key-value store nowhere else.
from jax._src import distributed

POLL_SECS = 1.0  # How long a wish may go unseen.
# How long the others may take to say how far they are. A process that is gone
# is the coordination service's to find, and sooner.
ANSWER_SECS = 600.0
# The same in the start of a run, of which a part may take as long on one of
# them as `log.start_secs`: a compilation, where others found theirs in a cache.
START_SECS = 7200.0
ROLL_CALL_SECS = 5.0  # For the others to answer, when a collective has failed.
HEARING_SECS = 10.0  # For the others to hear why the first one ends.

# What each process has begun, by its number and the name: all run the same
# program, so the n-th of a name is the same in each.
_begun: collections.Counter[tuple[int, str]] = collections.Counter()

_T = TypeVar('_T')


@runtime_checkable
class Store(Protocol):
  """Texts by key, shared by the processes of a run."""

  def set(self, key: str, value: str) -> None:
    """Writes a text, unless the key has one."""

  def list(self, folder: str) -> dict[str, str]:
    """Returns the texts of all keys in a folder, by their whole keys."""


class CoordinationStore:
  """The key-value store of JAX's coordination service."""

  def __init__(self, client: Any):
    self._client = client

  def set(self, key: str, value: str) -> None:
    """See `Store`."""
    try:
      self._client.key_value_set(key, value)
    except Exception as error:  # JAX's own class of errors is not public.
      if 'ALREADY_EXISTS' not in str(error):
        raise

  def list(self, folder: str) -> dict[str, str]:
    """See `Store`."""
    return dict(self._client.key_value_dir_get(folder))


def store() -> Store | None:
  """Returns the store of this run's processes; None where there is but one."""
  client = distributed.global_state.client
  if client is None or jax.process_count() == 1:
    return None
  return CoordinationStore(client)


def _numbered(name: str) -> str:
  """Returns a folder of the store that nothing else of this run has."""
  mine = jax.process_index(), name
  _begun[mine] += 1
  return f'{name}/{_begun[mine]}'


class Agreement:
  """Finds the point at which all processes act.

  Every process counts the points that it passes. As all run the same program,
  the n-th point is the same place of it in each. When one has a wish, each
  stops at its next point for as long as it takes to say how far it is and to
  hear how far the others are. The point after the farthest has been passed by
  none, and will be by all: there they act.
  """

  def __init__(
      self, store: Store, name: str, *, process: int, num_processes: int,
      poll_secs: float = POLL_SECS,
  ):
    """Begins to listen.

    Args:
      store: what the processes share.
      name: of this agreement; no other in the store may have it.
      process: number of this process.
      num_processes: how many there are.
      poll_secs: how long a wish may go unseen.
    """
    self._store = store
    self._wishes, self._points = f'{name}/wish/', f'{name}/point/'
    self._process = process
    self._num_processes = num_processes
    self._poll_secs = poll_secs
    self._lock = threading.Lock()
    self._point = 0
    self._has_said = False
    self._has_wished = False
    self._agreed: tuple[int, str] | None = None
    self._closed = threading.Event()
    self._thread = threading.Thread(
        target=self._listen, name='agreement', daemon=True)
    self._thread.start()

  def reached(self, wish: str | None) -> str | None:
    """Passes a point; returns the wish that all processes act on here.

    Args:
      wish: of this process, if it has one.
    """
    if wish is not None and not self._has_wished:
      self._has_wished = True
      self._store.set(f'{self._wishes}wish', wish)
    with self._lock:
      self._point += 1
      if self._agreed is not None and self._agreed[0] == self._point:
        return self._agreed[1]
    return None

  def close(self) -> None:
    """Ends listening: this process passes no point any more."""
    self._closed.set()
    self._thread.join()
    # Or the others would wait to hear it. Where the service is gone, nobody
    # asks.
    with contextlib.suppress(Exception):
      self._say()

  def _listen(self) -> None:
    try:
      while not self._closed.wait(self._poll_secs):
        wishes = self._store.list(self._wishes)
        if wishes:
          with self._lock:
            farthest = max(self._hear())
            self._agreed = farthest + 1, next(iter(wishes.values()))
          return
    except Exception as error:  # Else the thread would die unheard.
      if not self._closed.is_set():
        why = str(error).splitlines()[0]
        print(f'process {self._process}: cannot agree with the others any '
              f'more: {why}', file=sys.stderr, flush=True)

  def _hear(self) -> list[int]:
    self._say()
    end = time.monotonic() + ANSWER_SECS
    while len(points := self._store.list(self._points)) < self._num_processes:
      if time.monotonic() > end:
        raise TimeoutError(
            f'only {len(points)} of {self._num_processes} processes have said '
            f'within {ANSWER_SECS:.0f} s how far they are.')
      time.sleep(self._poll_secs / 20)
    return [int(point) for point in points.values()]

  def _say(self) -> None:
    if not self._has_said:
      self._has_said = True
      self._store.set(f'{self._points}{self._process}', str(self._point))


def begin(name: str) -> Agreement | None:
  """Returns an agreement of this run's processes; None where there is but one.

  Args:
    name: of what is agreed on; each process begins those of a name in the same
      order.
  """
  shared = store()
  return None if shared is None else Agreement(
      shared, _numbered(name), process=jax.process_index(),
      num_processes=jax.process_count())


def on_first(name: str, act: Callable[[], _T]) -> _T | None:
  """Acts on process 0 alone; where it fails there, it fails on all.

  Args:
    name: of the act; each process asks for those of a name in the same order.
    act: what process 0 does.

  Returns:
    What `act` does, which is plain data.

  Raises:
    ValueError: on the others, with the words of the error on process 0.
    LostError: on the others, if they do not hear of it in time.
    Exception: on process 0, what `act` raises.
  """
  shared = store()
  if shared is None:
    return act()
  name = _numbered(name)
  if jax.process_index():
    return json.loads(_told_by_first(shared, name))
  try:
    result = act()
  except Exception as error:
    shared.set(f'{name}/done', f'failed: {error}')
    # The service ends with this process, and with it the chance to hear why.
    end = time.monotonic() + HEARING_SECS
    while (len(shared.list(f'{name}/heard/')) < jax.process_count() - 1
           and time.monotonic() < end):
      time.sleep(POLL_SECS / 10)
    raise
  shared.set(f'{name}/done', f'done: {json.dumps(result)}')
  return result


def _told_by_first(shared: Store, name: str) -> str:
  end = time.monotonic() + START_SECS
  while not (text := shared.list(f'{name}/').get(f'{name}/done')):
    if time.monotonic() > end:
      raise LostError(
          f'process {jax.process_index()}: process 0 has not said within '
          f'{START_SECS:.0f} s what came of {name!r}: see what it said last.')
    time.sleep(POLL_SECS / 10)
  if text.startswith('failed: '):
    shared.set(f'{name}/heard/{jax.process_index()}', 'yes')
    raise ValueError(text.removeprefix('failed: '))
  return text.removeprefix('done: ')


def meet(name: str) -> None:
  """Waits for all processes, where there are several.

  Args:
    name: of the meeting; each process comes to those of a name in the same
      order.

  Raises:
    LostError: with those that do not come in time.
  """
  shared = store()
  if shared is None:
    return
  name = _numbered(name)
  shared.set(f'{name}/{jax.process_index()}', 'here')
  end = time.monotonic() + START_SECS
  while len(there := shared.list(f'{name}/')) < jax.process_count():
    if time.monotonic() > end:
      came = {int(key.split('/')[-1]) for key in there}
      missing = [i for i in range(jax.process_count()) if i not in came]
      raise LostError(
          f'process {jax.process_index()}: process '
          f'{", ".join(map(str, missing))} did not come within '
          f'{START_SECS:.0f} s: see what it said last.')
    time.sleep(POLL_SECS / 10)


class LostError(RuntimeError):
  """Another process of the run is gone, or cut off.

  Attributes:
    exit_code: as of a run that hangs: it can be started again.
  """
  exit_code = 76


# What JAX says when it cannot reach a process: Gloo, NCCL, the coordination
# service. A bucket or a server of data says alike, by errors of other classes,
# and what we make of these is a RuntimeError, but none of JAX's.
_UNREACHABLE = re.compile(
    r'gloo|nccl|connection|unavailable|barrier|heartbeat|socket', re.IGNORECASE)


@contextlib.contextmanager
def naming_the_lost() -> Generator[None, None, None]:
  """Turns the failure of a collective into an error that says who is missing.

  Where no collective fails, but hangs, JAX's heartbeats end the process.

  Raises:
    LostError: with the processes that do not answer a roll call.
  """
  try:
    yield
  except LostError:
    raise
  except Exception as error:
    shared = store()
    if shared is None or not _is_of_a_collective(error):
      raise
    missing = _missing(shared)
    me = f'process {jax.process_index()} of {jax.process_count()}'
    if not missing:
      who = 'though all processes are there'
    else:
      who = (f'and {ROLL_CALL_SECS:g} s later there was no answer from process '
             f'{", ".join(map(str, missing))}: see what it said last')
    reason = str(error).splitlines()[0][:200]
    raise LostError(
        f'{me}: the processes could not reach each other, {who}. When all are '
        'there again, the same command goes on from the last checkpoint. '
        f'({reason})') from error


def _is_of_a_collective(error: BaseException | None) -> bool:
  """Whether an error, or what it came from, is that of a lost process."""
  while error is not None:
    if (isinstance(error, jax.errors.JaxRuntimeError)
        and _UNREACHABLE.search(str(error))):
      return True
    error = error.__cause__
  return False


def _missing(shared: Store) -> list[int]:
  """Calls the roll; returns who does not answer in time."""
  answers: set[int] = set()
  try:
    shared.set(f'roll/{jax.process_index()}', 'here')
    end = time.monotonic() + ROLL_CALL_SECS
    while len(answers) < jax.process_count() and time.monotonic() < end:
      answers = {int(key.split('/')[-1]) for key in shared.list('roll/')}
      time.sleep(POLL_SECS / 10)
  except Exception:  # JAX's own class of errors is not public.
    return [0]  # It keeps the texts.
  # The first to leave must not take the answers of the others with it.
  time.sleep(POLL_SECS)
  return [i for i in range(jax.process_count()) if i not in answers]
