"""Detects clusters that started several processes of this program.

JAX reads the coordinator's address and the process numbers from these clusters.
It also does so for a single process, and then blocks on the network, so this
module first checks that there are several.
"""

from collections.abc import Mapping
import functools
import importlib.util
import re
import urllib.request

from vit_jax.parallel import hardware

TPU, SLURM = 'a TPU pod', 'SLURM'
KUBERNETES, OPEN_MPI = 'Kubernetes', 'Open MPI'

_METADATA = (
    'http://metadata.google.internal/computeMetadata/v1/instance/attributes/')
_METADATA_TIMEOUT_SECS = 5


def find(environ: Mapping[str, str]) -> str | None:
  """Returns the cluster that started several processes, or None.

  Raises:
    ValueError: if the package that lists Kubernetes pods is missing.
  """
  if int(environ.get('OMPI_COMM_WORLD_SIZE', 1)) > 1:
    return OPEN_MPI
  # The variables that JAX reads. A program started without `srun` in a batch
  # script or an allocation has SLURM_NTASKS too, but its step has one task.
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
          'An indexed Kubernetes job needs pip install "jax[k8s]", the flags '
          '--coordinator, --num-processes and --process-id, or '
          '--num-processes=1 to run this pod alone.')
    return KUBERNETES
  return None


def slurm_gpus(environ: Mapping[str, str]) -> list[int] | None:
  """Returns the local GPUs of this SLURM task; None to use JAX's choice.

  JAX takes one GPU per task, by the task's number on its node. That is wrong
  for a task that is alone on its node or sees only its own GPUs.
  """
  visible = environ.get('CUDA_VISIBLE_DEVICES', '')
  tasks = environ.get('SLURM_STEP_TASKS_PER_NODE', '')  # Such as '2(x3),1'.
  is_alone = re.fullmatch(r'1(\(x\d+\))?', tasks) is not None
  if visible and (is_alone or 'SLURM_GPUS_PER_TASK' in environ):
    return list(range(len(visible.split(','))))
  return None


def _num_tpu_hosts(environ: Mapping[str, str]) -> int | None:
  """Returns the number of hosts of all slices; None without a TPU."""
  # GKE sets variables in each pod; TPU VMs have a metadata server.
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
    found = re.search(r"MEGASCALE_NUM_SLICES: '?(\d+)",
                      _metadata('tpu-env') or '')
    slices = found.group(1) if found else slices
  return len(hosts.split(',')) * int(slices)


@functools.cache
def _metadata(key: str) -> str | None:
  """Returns an attribute from Google Cloud's metadata server, or None."""
  request = urllib.request.Request(
      _METADATA + key, headers={'Metadata-Flavor': 'Google'})
  try:
    with urllib.request.urlopen(
        request, timeout=_METADATA_TIMEOUT_SECS) as response:
      return response.read().decode()
  except OSError:  # Another cloud, or the key is missing.
    return None
