"""Starts several processes that run as one program.

JAX must be initialised before it looks for devices. The processes are detected
from the environment of a cluster or given by flags.
"""

from collections.abc import Mapping
import dataclasses
import os
import re
import socket
import sys
import threading
from typing import Any

import jax

from vit_jax import fields
from vit_jax.parallel import clusters

# A process without heartbeats for this time counts as lost, and the others end
# (JAX's default is 100).
HEARTBEAT_SECS = 60
START_TIMEOUT_SECS = 300


@dataclasses.dataclass(frozen=True)
class Processes:
  """Command-line flags that describe the processes; None if not given."""
  coordinator: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  start_timeout_secs: int = START_TIMEOUT_SECS

  def __post_init__(self):
    fields.check_range(self, 'start_timeout_secs', 'num_processes', low=1)
    flags = (self.coordinator, self.num_processes, self.process_id)
    if self.is_single or flags == (None, None, None):
      return
    if (self.coordinator is None or self.num_processes is None
        or self.process_id is None):
      raise ValueError(
          '--coordinator, --num-processes and --process-id must be given '
          'together, for example --coordinator=host0:1234 --num-processes=4 '
          '--process-id=0. TPU pods, SLURM and Kubernetes need none of them.')
    if not 0 <= self.process_id < self.num_processes:
      raise ValueError(
          f'--process-id must be from 0 to {self.num_processes - 1} with '
          f'--num-processes={self.num_processes}, but is {self.process_id}.')
    if not re.fullmatch(r'.+:\d+', self.coordinator):
      raise ValueError(
          '--coordinator must be HOST:PORT of process 0, but is '
          f'{self.coordinator!r}.')

  @property
  def is_single(self) -> bool:
    """Whether the flags ask for a single process, even in a cluster."""
    return (self.num_processes == 1 and self.coordinator is None
            and self.process_id in (None, 0))


def start(processes: Processes, *, stoppable: bool = False) -> bool:
  """Connects to the other processes, if any; call before using a device.

  Args:
    processes: the flags.
    stoppable: whether SIGTERM is handled by `coordination.reached_stop_point`
      instead of ending the process.

  Returns:
    Whether this is one of several processes.

  Raises:
    ValueError: if the other processes cannot be found or do not connect in
      time.
  """
  if processes.is_single:
    return False
  arguments: dict[str, Any] = {}
  if processes.coordinator is not None:
    name = (f'process {processes.process_id} of {processes.num_processes}, '
            f'coordinator {processes.coordinator}')
    arguments = {'coordinator_address': processes.coordinator,
                 'num_processes': processes.num_processes,
                 'process_id': processes.process_id}
    if processes.process_id == 0:
      _check_port(processes.coordinator)
  else:
    cluster = clusters.find(os.environ)
    if cluster is None:
      return False
    name = f'one of several processes of {cluster}'
    gpus = clusters.slurm_gpus(os.environ)
    if cluster == clusters.SLURM and gpus:
      arguments['local_device_ids'] = gpus
  # Collectives between CPUs; not the default in every version of JAX.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  jax.config.update('jax_enable_preemption_service', stoppable)
  _initialize(arguments, name=name, timeout_secs=processes.start_timeout_secs)
  return jax.process_count() > 1


def describe() -> str:
  """Returns 'process 1 of 4, 2 of 8 devices'."""
  return (f'process {jax.process_index()} of {jax.process_count()}, '
          f'{jax.local_device_count()} of {jax.device_count()} devices')


def is_first() -> bool:
  """Whether this is process 0, which writes files and prints."""
  return jax.process_index() == 0


def exit_now(status: int, message: str = '') -> None:
  """Ends a failed process (status not 0) immediately if others depend on it.

  A normal exit would wait minutes for the others, which wait for this one.
  """
  if status and jax.distributed.is_initialized():
    sys.stdout.flush()
    print(message, end='', file=sys.stderr, flush=True)
    os._exit(status)


def _check_port(address: str) -> None:
  """Raises if process 0 cannot listen on the port, because JAX would crash."""
  port = address.rpartition(':')[2]
  try:
    with socket.socket() as probe:
      probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      probe.bind(('', int(port)))
  except (OSError, OverflowError) as error:
    raise ValueError(
        f'--coordinator is {address}, but process 0 cannot listen on port '
        f'{port}: {error}. Give all processes another port from 1024 to '
        '65535.') from error


def _initialize(
    arguments: Mapping[str, Any], *, name: str, timeout_secs: int) -> None:
  """Runs `jax.distributed.initialize` with a timeout and a helpful error.

  A thread is needed because JAX aborts the process at its own timeout and
  ignores Ctrl-C until then.
  """
  errors: list[BaseException] = []

  def initialize() -> None:
    try:
      jax.distributed.initialize(
          **arguments, initialization_timeout=timeout_secs + 60,
          heartbeat_timeout_seconds=HEARTBEAT_SECS)
    except BaseException as error:  # Raised below, in the waiting thread.
      errors.append(error)

  thread = threading.Thread(target=initialize, daemon=True)
  thread.start()
  thread.join(timeout_secs)
  if thread.is_alive():
    raise ValueError(
        f'This is {name}. Not all processes connected within {timeout_secs} s '
        '(--start-timeout). Check that all were started with the same address '
        'and number of processes, and can reach the address.')
  if errors:
    raise ValueError(
        f'This is {name}, but it could not connect: {errors[0]}'
    ) from errors[0]
