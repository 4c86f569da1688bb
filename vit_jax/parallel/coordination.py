"""Coordination between the processes of one run.

All processes run the same program, so the n-th call with a name matches the
n-th call with that name in every other process. Messages are sent through the
key-value store of JAX's coordination service, which works before the first
collective.
"""

import collections
from collections.abc import Callable, Mapping
import contextlib
import itertools
import json
import re
import time
from typing import Any, TypeVar

import jax

# The only private import: JAX has no public access to its key-value store.
from jax._src import distributed
from jax.experimental import multihost_utils

from vit_jax import exceptions
from vit_jax.exceptions import UserError

# Time limit of all calls, as long as `log.start_secs`: during the start, one
# process may compile for hours while others load from the cache.
START_SECS = 7200
ERROR_SECS = 10  # Time for all processes to read the error of process 0.
EXIT_SECS = 2  # Time for them to exit: JAX aborts those that outlive process 0.

# Messages of Gloo, NCCL and the coordination service. Buckets and data servers
# use the same words, but with other exception types.
_UNREACHABLE = re.compile(
    r'gloo|nccl|connection|unavailable|barrier|heartbeat|socket', re.IGNORECASE)
# JAX raises a failed collective as a plain ValueError where an array is read.
_COLLECTIVE = re.compile(r'[A-Z_]+: (Gloo|NCCL)\b')

_calls: collections.Counter[str] = collections.Counter()
_stop_checks = itertools.count(1)

_T = TypeVar('_T')


class LostError(UserError):
  """Another process of the run ended or cannot be reached.

  Attributes:
    exit_code: exit status, EX_PROTOCOL of sysexits.h: the last checkpoint is
      complete, and the same command resumes from it.
  """
  exit_code = 76


def run_on_first(name: str, function: Callable[[], _T]) -> _T | None:
  """Runs `function` in process 0 and returns its result in every process.

  Args:
    name: identifies the call; every process must call in the same order.
    function: returns JSON-compatible data.

  Raises:
    UserError: in other processes, with the message of an error in process 0.
    LostError: in other processes, if process 0 does not respond in time.
    Exception: in process 0, whatever `function` raises.
  """
  client = _client()
  if client is None:
    return function()
  key = _unique(name)
  if jax.process_index():
    with _explain_timeout(f'process 0 did not finish {key!r}'):
      answer = json.loads(client.blocking_key_value_get(key, START_SECS * 1000))
    if 'error' in answer:
      _wait_until_read(client, key)
      raise UserError(answer['error'])
    return answer['result']
  try:
    result = function()
  except Exception as error:
    client.key_value_set(key, json.dumps({'error': str(error)}))
    _wait_until_read(client, key)
    raise
  client.key_value_set(key, json.dumps({'result': result}))
  return result


def check_equal(name: str, values: Mapping[str, Any]) -> None:
  """Checks that every process passes the same values.

  Args:
    name: identifies the call; every process must call in the same order.
    values: JSON-compatible data by description.

  Raises:
    UserError: in every process, with the first difference.
    LostError: if a process does not respond in time.
  """
  client = _client()
  if client is None:
    return
  own = json.loads(json.dumps(values))
  key = _unique(f'{name}_values')
  client.key_value_set(f'{key}/{jax.process_index()}', json.dumps(values))

  def compare() -> None:
    for i in range(1, jax.process_count()):
      with _explain_timeout(f'process {i} did not finish {name!r}'):
        other = json.loads(client.blocking_key_value_get(
            f'{key}/{i}', START_SECS * 1000))
      for what in {**own, **other}:
        if own.get(what) != other.get(what):
          raise UserError(
              f'Processes of one run differ in {what}: process 0 has '
              f'{own.get(what)!r}, process {i} has {other.get(what)!r}. Start '
              'all with the same command, code, packages and data.')

  run_on_first(name, compare)


def barrier(name: str) -> None:
  """Waits until every process calls this with the same name.

  Raises:
    LostError: after `START_SECS`.
  """
  client = _client()
  if client is not None:
    with _explain_timeout(f'not all processes reached {name!r}'):
      client.wait_at_barrier(_unique(name), START_SECS * 1000)


def is_distributed() -> bool:
  """Whether this is one of several processes."""
  return _client() is not None


def reached_stop_point() -> bool:
  """Whether all processes must stop here because one received SIGTERM.

  Every process must call this equally often; JAX picks the first call that no
  process has passed yet. Needs `processes.start(..., stoppable=True)`.
  """
  return (is_distributed() and
          multihost_utils.reached_preemption_sync_point(next(_stop_checks)))


def explain_lost_processes() -> contextlib.AbstractContextManager[None]:
  """Replaces the error of a failed collective with a `LostError`.

  JAX's heartbeats end a collective that hangs.
  """
  return exceptions.replaced_by(lost_error)


def lost_error(error: Exception) -> LostError | None:
  """Returns the error of a lost process; None for other kinds of errors."""
  if not is_distributed() or isinstance(error, LostError) or not any(
      map(_is_unreachable, exceptions.causes(error))):
    return None
  return LostError(
      f'process {jax.process_index()} of {jax.process_count()}: lost the '
      'connection to other processes; see their output. Start the same command '
      'again: it resumes from the last checkpoint. '
      f'({exceptions.first_line(error)})')


def _is_unreachable(error: BaseException) -> bool:
  if isinstance(error, jax.errors.JaxRuntimeError):
    return _UNREACHABLE.search(str(error)) is not None
  return (isinstance(error, ValueError)
          and _COLLECTIVE.match(str(error)) is not None)


def _explain_timeout(what: str) -> contextlib.AbstractContextManager[None]:
  """Replaces errors of the coordination service with a `LostError`."""
  return exceptions.replaced_by(lambda error: LostError(
      f'process {jax.process_index()}: {what} within {START_SECS} s. See the '
      f'output of the others. ({exceptions.first_line(error)})'
  ) if isinstance(error, jax.errors.JaxRuntimeError) else None)


def _wait_until_read(client: Any, key: str) -> None:
  """Keeps process 0, which hosts the store, until others read its error."""
  with contextlib.suppress(Exception):
    client.wait_at_barrier(f'{key}/read', ERROR_SECS * 1000)
  if not jax.process_index():
    time.sleep(EXIT_SECS)


def _client() -> Any:
  """Returns the client of the coordination service; None for one process."""
  client = distributed.global_state.client
  return None if client is None or jax.process_count() == 1 else client


def _unique(name: str) -> str:
  _calls[name] += 1
  return f'{name}/{_calls[name]}'
