"""Starts several processes that run as one program.

JAX must be initialised before it looks for devices. It finds the processes in
the environment of a cluster (TPU, SLURM, Kubernetes, Open MPI), or they are
given by flags.
"""

import jax

from vit_jax.exceptions import UserError

# A process without heartbeats for this time counts as lost, and the others end
# (JAX's default is 100).
HEARTBEAT_SECS = 60


def start(
    coordinator: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, *, timeout_secs: int = 300,
    stoppable: bool = False,
) -> bool:
  """Connects to the other processes, if any; call before using a device.

  JAX ends the process if the others do not connect in time.

  Args:
    coordinator: HOST:PORT of process 0; None to ask the cluster.
    num_processes: number of processes; 1 alone ignores a cluster.
    process_id: number of this process, from 0.
    timeout_secs: time limit for all processes to connect.
    stoppable: whether SIGTERM is handled by `coordination.reached_stop_point`
      instead of ending the process.

  Returns:
    Whether this is process 0, which writes files and prints.

  Raises:
    UserError: if the flags are inconsistent, or JAX cannot connect.
  """
  flags = (coordinator, num_processes, process_id)
  if flags == (None, 1, None):
    return True
  # Collectives between CPUs; not the default in every version of JAX.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  jax.config.update('jax_enable_preemption_service', stoppable)
  try:
    jax.distributed.initialize(
        *flags, initialization_timeout=timeout_secs,
        heartbeat_timeout_seconds=HEARTBEAT_SECS)
  except Exception as error:
    if flags == (None, None, None) and 'coordinator_address' in str(error):
      return True  # JAX found no cluster.
    raise UserError(
        f'Cannot connect to the other processes: {str(error).rstrip(".")}. '
        'Give each process --coordinator=HOST:PORT, with a free port of '
        'process 0, --num-processes=N and --process-id from 0 to N - 1; or '
        '--num-processes=1, which runs this process alone.') from error
  print(f'process {jax.process_index()} of {jax.process_count()}, '
        f'{jax.local_device_count()} of {jax.device_count()} devices',
        flush=True)
  return jax.process_index() == 0
