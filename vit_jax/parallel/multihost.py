"""Several processes, each with devices of its own, that run as one program.

JAX has to be told of the others before it looks for devices. Whoever started
the processes knows them: a cluster says it in the environment, a person says
it by flags. Where neither speaks of more than one process, nothing is waited
for and nothing changes.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import errno
import functools
import importlib.util
import itertools
import os
import re
import socket
import sys
import threading
from typing import Any
import urllib.request

import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from vit_jax import types
from vit_jax.parallel import coordination
from vit_jax.parallel import hardware
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import sharding

# Of a peer that is silent for so long, the others take it that it died, and
# end too (JAX's default is 100).
HEARTBEAT_SECS = 60
START_TIMEOUT_SECS = 300

_METADATA = (
    'http://metadata.google.internal/computeMetadata/v1/instance/attributes/')
_METADATA_TIMEOUT_SECS = 5
_ONE_ALONE = 'or --num-processes=1 for a run of this process alone'


@dataclasses.dataclass(frozen=True)
class Processes:
  """What the flags say of the processes; None where they say nothing.

  Attributes:
    coordinator: host:port of process 0, as all the others reach it.
    num_processes: how many there are.
    process_id: which one this is, from 0.
    start_timeout_secs: how long to wait until all have come.
  """
  coordinator: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  start_timeout_secs: int = START_TIMEOUT_SECS

  def __post_init__(self):
    if self.start_timeout_secs < 1:
      raise ValueError('--start-timeout must be at least 1 second, but is '
                       f'{self.start_timeout_secs}.')
    if self.num_processes is not None and self.num_processes < 1:
      raise ValueError(
          f'--num-processes must be at least 1, but is {self.num_processes}.')
    flags = {'--coordinator': self.coordinator,
             '--num-processes': self.num_processes,
             '--process-id': self.process_id}
    lacking = [name for name, value in flags.items() if value is None]
    if self.is_alone or len(lacking) == len(flags):
      return
    if lacking:
      given = [name for name in flags if name not in lacking]
      raise ValueError(
          f'{" and ".join(lacking)} must be given with {" and ".join(given)}: '
          'the three together say who takes part, for example --coordinator='
          'host0:1234 --num-processes=4 --process-id=0. Without any of them, a '
          'TPU pod, SLURM and Kubernetes are asked.')
    assert self.process_id is not None and self.num_processes is not None
    if not 0 <= self.process_id < self.num_processes:
      raise ValueError(
          f'--process-id must be from 0 to {self.num_processes - 1}, as there '
          f'are --num-processes={self.num_processes}, but is '
          f'{self.process_id}.')
    if not re.fullmatch(r'.+:\d+', self.coordinator or ''):
      raise ValueError(
          f'--coordinator must be HOST:PORT of process 0, but is '
          f'{self.coordinator!r}.')

  @property
  def is_alone(self) -> bool:
    """Whether they say that there is no other process, whatever a cluster says.
    """
    return (self.num_processes == 1 and self.coordinator is None
            and self.process_id in (None, 0))


def start(processes: Processes) -> bool:
  """Meets the other processes, if there are any; before any use of a device.

  Args:
    processes: from the flags.

  Returns:
    Whether this is one of several processes.

  Raises:
    ValueError: if the others, or the address of the first, cannot be known; or
      if not all have come in time.
  """
  if processes.is_alone:
    return False
  if processes.coordinator is not None:
    how = (f'process {processes.process_id} of {processes.num_processes}, '
           f'coordinator {processes.coordinator}')
    arguments: dict[str, Any] = {
        'coordinator_address': processes.coordinator,
        'num_processes': processes.num_processes,
        'process_id': processes.process_id}
    if processes.process_id == 0:
      _check_port(processes.coordinator)
  else:
    cluster = find_cluster(os.environ)
    if cluster is None:
      return False
    how = f'one of several processes of {cluster}'
    arguments = {}
    devices = slurm_gpus(os.environ)
    if cluster == SLURM and devices:
      arguments['local_device_ids'] = devices
  # Of devices of other processes, a CPU reaches those by this alone. It is the
  # default of some versions of JAX only.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  # It would take SIGTERM for itself, which is for training/signals.py.
  jax.config.update('jax_enable_preemption_service', False)
  _meet(arguments, how=how, timeout_secs=processes.start_timeout_secs)
  return jax.process_count() > 1


def describe() -> str:
  """Returns 'process 1 of 4, 2 of 8 devices'; numbers are from 0."""
  return (f'process {jax.process_index()} of {jax.process_count()}, '
          f'{jax.local_device_count()} of {jax.device_count()} devices')


def is_first() -> bool:
  """Whether this is the process that writes and speaks for all."""
  return jax.process_index() == 0


def leave(status: int, why: str = '') -> None:
  """Ends this process at once if it failed while others wait for it.

  An orderly end would first wait for them, minutes long, and they for this one.
  So they see its connections close, or its heartbeat missing, and end too.

  Args:
    status: exit status; 0 returns.
    why: what to print before, such as a traceback.
  """
  if status and jax.distributed.is_initialized():
    sys.stdout.flush()
    print(why, end='', file=sys.stderr, flush=True)
    os._exit(status)


def batch_parts(
    mesh: jax.sharding.Mesh, devices: Iterable[jax.Device] | None = None,
) -> tuple[tuple[int, ...], int]:
  """Returns which parts of a batch devices hold, and of how many.

  Where the axis `tensor` spans processes, several of them hold the same part,
  and each has to read it.

  Args:
    mesh: the mesh.
    devices: some of its devices; by default those of this process.

  Returns:
    The numbers of the parts, ascending, and the number of all parts: as few,
    and so as large, as the devices' share allows.
  """
  number = mesh_lib.data_parallelism(mesh)
  if devices is None:
    devices = [d for d in mesh.devices.flat
               if d.process_index == jax.process_index()]
  rows = NamedSharding(mesh, sharding.BATCH).devices_indices_map((number,))
  parts = sorted({rows[device][0].indices(number)[0] for device in devices})
  first, count = parts[0], len(parts)
  if (number % count == first % count == 0
      and parts == list(range(first, first + count))):
    return (first // count,), number // count
  return tuple(parts), number


def shard_batch(
    batch: Mapping[str, np.ndarray], mesh: jax.sharding.Mesh,
) -> types.Batch:
  """Puts this process's rows of a batch on its devices.

  Args:
    batch: arrays of this process's rows: its parts of the batch, in order.
    mesh: the mesh.

  Returns:
    Arrays of the global batch.
  """
  on_batch = NamedSharding(mesh, sharding.BATCH)
  if jax.process_count() == 1:
    return jax.device_put(dict(batch), on_batch)
  parts, number = batch_parts(mesh)

  def whole(rows: np.ndarray) -> jax.Array:
    size = len(rows) // len(parts)

    def of_device(index: Any) -> np.ndarray:
      start, stop, _ = index[0].indices(size * number)
      # A device's rows may be a piece of a part, where parts were joined.
      start_here = parts.index(start // size) * size + start % size
      return rows[start_here:start_here + stop - start]

    return jax.make_array_from_callback(
        (size * number, *rows.shape[1:]), on_batch, of_device)

  return {key: whole(value) for key, value in batch.items()}


def fetch(arrays: Any) -> Any:
  """Returns global arrays, whole, as NumPy's, in every process."""
  def of(array: Any) -> np.ndarray:
    if (not isinstance(array, jax.Array) or array.is_fully_addressable
        or array.is_fully_replicated):
      return jax.device_get(array)
    return multihost_utils.process_allgather(array, tiled=True)

  if jax.process_count() == 1:
    return jax.device_get(arrays)
  return jax.tree.map(of, arrays)


def sum_of_shares(count: int, rows: int, *, total: int) -> int:
  """Returns how many of `total` rows are what each process counted of its own.

  Rows that several processes hold, as those of one model's devices do, are
  counted by each, and so the sum is brought back to the total.

  Args:
    count: of this process.
    rows: among which it counted.
    total: rows of all processes, each counted once.
  """
  if jax.process_count() == 1:
    return count
  counts, all_rows = multihost_utils.process_allgather(
      np.array([count, rows])).sum(0).tolist()
  return round(counts * total / all_rows) if all_rows else 0


def put(arrays: Any, shardings: Any) -> Any:
  """Puts arrays that every process has whole on the devices of all.

  `jax.device_put` would first send them round, to see that they are the same.

  Args:
    arrays: a tree of NumPy's, or of this process's own.
    shardings: a tree like it.
  """
  if jax.process_count() == 1:
    return jax.device_put(arrays, shardings)

  def of(array: Any, on: jax.sharding.Sharding) -> jax.Array:
    array = np.asarray(array)
    return jax.make_array_from_callback(
        array.shape, on, lambda index: array[index])

  return jax.tree.map(of, arrays, shardings)


def join(mesh: jax.sharding.Mesh) -> None:
  """Connects the CPUs of several processes, all along each axis of a mesh.

  Else the first step would, and fail where one process compiles it half a
  minute longer than another: gloo waits no longer for a connection.

  Args:
    mesh: the mesh that will be computed on.

  Raises:
    agreement.LostError: if a process does not come.
  """
  if coordination.store() is None or mesh.devices.flat[0].platform != 'cpu':
    return
  coordination.meet('join')
  axes = [axis for axis, size in mesh.shape.items() if size > 1]
  spread = NamedSharding(mesh, PartitionSpec(tuple(mesh.axis_names)))
  ones = jax.make_array_from_callback(
      (mesh.size,), spread, lambda index: np.ones(mesh.size)[index])
  for count in range(1, len(axes) + 1):
    for along in itertools.combinations(axes, count):
      total = jax.shard_map(
          functools.partial(jax.lax.psum, axis_name=along), mesh=mesh,
          in_specs=spread.spec, out_specs=PartitionSpec(tuple(
              axis for axis in mesh.axis_names if axis not in along)))
      jax.block_until_ready(jax.jit(total)(ones))


TPU, SLURM = 'a TPU pod', 'SLURM'
KUBERNETES, OPEN_MPI = 'Kubernetes', 'Open MPI'


def find_cluster(environ: Mapping[str, str]) -> str | None:
  """Returns which cluster started several processes, or None for one alone.

  JAX itself knows these clusters and asks them for address, number and index.
  It would do so for a process that is alone as well, and take a port or wait
  for the network: so that there are several is made sure of first.

  Args:
    environ: environment variables.

  Raises:
    ValueError: if there are others whose address JAX could not find.
  """
  if int(environ.get('OMPI_COMM_WORLD_SIZE', 1)) > 1:
    if 'OMPI_MCA_orte_hnp_uri' not in environ:
      raise ValueError(
          f'Open MPI started {environ["OMPI_COMM_WORLD_SIZE"]} processes, but '
          'this version of it does not say where the first one is. Give '
          '--coordinator=HOST:PORT --num-processes=N --process-id=I, '
          f'{_ONE_ALONE}.')
    return OPEN_MPI
  # All that JAX asks for. A batch script or an allocation that starts a program
  # without `srun` has tasks too, but no step of that many.
  if all(f'SLURM_{name}' in environ for name in (
      'JOB_ID', 'STEP_NODELIST', 'NTASKS', 'PROCID', 'LOCALID')):
    tasks = environ.get('SLURM_STEP_NUM_TASKS', environ['SLURM_NTASKS'])
    return SLURM if int(tasks) > 1 else None
  tpu_hosts = _num_tpu_hosts(environ)
  if tpu_hosts is not None:
    return TPU if tpu_hosts > 1 else None
  if 'KUBERNETES_SERVICE_HOST' in environ and 'JOB_COMPLETION_INDEX' in environ:
    if importlib.util.find_spec('kubernetes') is None:
      raise ValueError(
          f'This is pod {environ["JOB_COMPLETION_INDEX"]} of an indexed job '
          'of Kubernetes, but the package that JAX asks for the other pods is '
          'not installed. pip install "jax[k8s]", or give '
          '--coordinator=HOST:PORT --num-processes=N --process-id=I, '
          f'{_ONE_ALONE}.')
    return KUBERNETES
  return None


def _num_tpu_hosts(environ: Mapping[str, str]) -> int | None:
  """Returns the hosts of all slices; None on a machine that has no TPU."""
  # GKE says it to each pod, Google's TPU machines in their metadata.
  hosts = environ.get('TPU_PROCESS_ADDRESSES',
                      environ.get('TPU_WORKER_HOSTNAMES'))
  slices: str | int = environ.get('MEGASCALE_NUM_SLICES', 1)
  if hosts is None:
    if (not hardware.has_tpu() or importlib.util.find_spec('libtpu') is None
        or 'TPU_SKIP_MDS_QUERY' in environ):
      return None
    hosts = _metadata('worker-network-endpoints')
    if hosts is None:
      return None
    found = re.search(r"MEGASCALE_NUM_SLICES: '?(\d+)", _metadata('tpu-env')
                      or '')
    slices = found.group(1) if found else slices
  return len(hosts.split(',')) * int(slices)


@functools.cache
def _metadata(key: str) -> str | None:
  """Returns what Google's cloud says to this machine of itself, or None."""
  request = urllib.request.Request(
      _METADATA + key, headers={'Metadata-Flavor': 'Google'})
  try:
    with urllib.request.urlopen(
        request, timeout=_METADATA_TIMEOUT_SECS) as answer:
      return answer.read().decode()
  except OSError:  # Of another cloud, or without this key.
    return None


def slurm_gpus(environ: Mapping[str, str]) -> list[int] | None:
  """Returns this task's GPUs of those it sees; None to let JAX choose.

  JAX takes the one GPU whose number is the task's on its node. That is right
  for a task per GPU that all see all of them, and wrong where a task is alone
  on its node, or sees no GPUs but its own.
  """
  visible = environ.get('CUDA_VISIBLE_DEVICES', '')
  if not visible:
    return None
  # Such as '2(x3),1': tasks of each node.
  tasks = environ.get('SLURM_STEP_TASKS_PER_NODE', '')
  is_alone = re.fullmatch(r'1(\(x\d+\))?', tasks) is not None
  if is_alone or 'SLURM_GPUS_PER_TASK' in environ:
    return list(range(len(visible.split(','))))
  return None


def _check_port(address: str) -> None:
  """Raises if this process could not be the coordinator: JAX would crash."""
  port = int(address.rpartition(':')[2])
  for family, host in ((socket.AF_INET6, '::'), (socket.AF_INET, '')):
    try:
      with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    except (OSError, OverflowError) as error:
      if not isinstance(error, OSError) or error.errno in (
          errno.EADDRINUSE, errno.EACCES):
        raise ValueError(
            f'--coordinator is {address}, but process 0 cannot listen on port '
            f'{port} of its machine: {error}. Give all processes another one, '
            'from 1024 to 65535.') from error


def _meet(
    arguments: Mapping[str, Any], *, how: str, timeout_secs: int) -> None:
  """Waits for the others.

  In a thread: where JAX itself runs out of time, it aborts the process without
  a word of what to do, and until then it is deaf to Ctrl-C.
  """
  errors: list[BaseException] = []

  def initialize() -> None:
    try:
      jax.distributed.initialize(
          **arguments, initialization_timeout=timeout_secs + 60,
          heartbeat_timeout_seconds=HEARTBEAT_SECS)
    except BaseException as error:  # For the thread that waits to raise.
      errors.append(error)

  thread = threading.Thread(target=initialize, daemon=True)
  thread.start()
  thread.join(timeout_secs)
  if thread.is_alive():
    raise ValueError(
        f'This is {how}. After {timeout_secs} s (--start-timeout) not all of '
        'them have met there. Those that came say so in their output: a '
        'process that does not was not started. Else see that its machine '
        'reaches the address, and that all were given the same address and '
        'number of processes.')
  if errors:
    raise ValueError(f'This is {how}, but they could not meet: {errors[0]}'
                     ) from errors[0]
