"""Free host memory, for runs whose devices are CPUs."""

import pathlib
import socket
import zlib

import jax
from jax.experimental import multihost_utils
import numpy as np
import psutil

# The rest is left to image decoding and other processes.
USABLE_FRACTION = 0.9
# Memory limit of a container and its present use: cgroup v2, then cgroup v1.
_CGROUP_FILES = (
    ('memory.max', 'memory.stat', 'anon'),
    ('memory/memory.limit_in_bytes', 'memory/memory.stat', 'total_rss'))
_CGROUP_ROOT = pathlib.Path('/sys/fs/cgroup')


def free_bytes(num_devices: int) -> int:
  """Returns the free host memory per device of this process.

  The memory is divided among all processes of the run on this host. This is a
  collective operation: every process must call it.

  Args:
    num_devices: devices of this process that share its memory.
  """
  free = min([psutil.virtual_memory().available, *_free_in_container()])
  return int(USABLE_FRACTION * free) // (num_devices * _processes_on_host())


def _processes_on_host() -> int:
  if jax.process_count() == 1:
    return 1
  host = np.asarray(
      zlib.crc32(socket.gethostname().encode()) & 0x7fffffff, np.int32)
  return int((multihost_utils.process_allgather(host) == host).sum())


def _free_in_container(root: pathlib.Path = _CGROUP_ROOT) -> list[int]:
  free = []
  for limit_file, stat_file, used_key in _CGROUP_FILES:
    try:
      limit = int((root / limit_file).read_text())
      used = dict(line.split() for line in
                  (root / stat_file).read_text().splitlines())[used_key]
    except (OSError, ValueError, KeyError):  # Other version, or limit 'max'.
      continue
    free.append(max(0, limit - int(used)))
  return free
