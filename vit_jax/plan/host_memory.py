"""The memory of this machine, for devices that are its processors."""

import pathlib
import socket
import zlib

import jax
from jax.experimental import multihost_utils
import numpy as np
import psutil

# What else a machine does with its memory: reading images, for one.
HOST_SHARE = 0.9
# The limit that a container has been given, and what it has taken of it:
# control groups of version 2, and of version 1.
_CONTAINER = (('memory.max', 'memory.stat', 'anon'),
              ('memory/memory.limit_in_bytes', 'memory/memory.stat',
               'total_rss'))
_GROUPS = pathlib.Path('/sys/fs/cgroup')


def free_bytes(devices: int) -> int:
  """Returns the memory that is free for each of this process's devices.

  What a run may take: a share of what the machine, or its container, has left,
  divided among the processes that train here too. All processes must ask.

  Args:
    devices: of this process, which share its memory.
  """
  free = psutil.virtual_memory().available
  return (int(HOST_SHARE * min([free, *_free_in_container()]))
          // (devices * _processes()))


def _processes() -> int:
  """Returns how many of the processes that train together are on this host."""
  if jax.process_count() == 1:
    return 1
  here = np.asarray(zlib.crc32(socket.gethostname().encode()) & 0x7fffffff,
                    np.int32)
  return int((multihost_utils.process_allgather(here) == here).sum())


def _free_in_container(groups: pathlib.Path = _GROUPS) -> list[int]:
  """Returns what a container's limit leaves, where it has one."""
  free = []
  for limit, stat, used in _CONTAINER:
    try:
      most = int((groups / limit).read_text())
      taken = dict(line.split() for line in
                   (groups / stat).read_text().splitlines())[used]
    except (OSError, ValueError, KeyError):  # 'max', or none of that version.
      continue
    free.append(max(0, most - int(taken)))
  return free
