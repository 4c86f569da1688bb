"""Free memory of devices, and out-of-memory errors of the compiler.

CPU devices share the host memory that is free when a run starts.
"""

import contextlib
import gc
import re
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np
import psutil

from vit_jax import exceptions
from vit_jax.exceptions import UserError

# The rest is left to image decoding and other processes.
USABLE_FRACTION = 0.9
MIB = 2**20
# The TPU compiler writes binary units: '40.1G' is 40.1 * 2**30 bytes.
_UNITS = {'': 1, 'K': 2**10, 'M': 2**20, 'G': 2**30, 'T': 2**40, 'P': 2**50}
_SIZE = r'(\d+(?:\.\d+)?)([KMGTP]?)i?B?'
# A kernel of XLA for CPUs fails so if it cannot allocate its buffers.
_EXHAUSTED = ('RESOURCE_EXHAUSTED', 'YNNPACK operation failed')
_OUT_OF_MEMORY = (
    rf'Used {_SIZE} of {_SIZE} hbm',
    rf'temporaries \({_SIZE}\) exceeds available HBM \({_SIZE}\)',
    rf'allocate {_SIZE}.*?(?:limit|available|only)[^0-9]*{_SIZE}',
)


def explain_shortage(
    what: str, *, advice: str) -> contextlib.AbstractContextManager[None]:
  """Turns an out-of-memory error of the devices into a `ValueError`.

  `what` is the operation, such as 'Training', and `advice` a remedy.
  """
  return exceptions.replaced_by(lambda error: UserError(
      f'{what} ran out of device memory. {advice} '
      f'({exceptions.first_line(error)})') if (
          isinstance(error, jax.errors.JaxRuntimeError)
          and any(text in str(error) for text in _EXHAUSTED)) else None)


def free_bytes(mesh: jax.sharding.Mesh) -> int | None:
  """Returns the free memory per device of a mesh; None if unknown.

  Every process must call it; all get the minimum over the processes.
  """
  gc.collect()  # Frees arrays of an earlier stage held by reference cycles.
  if mesh.devices.flat[0].platform == 'cpu':
    least: int | None = free_host_bytes(max(1, len(mesh.local_devices)))
  else:
    stats = [device.memory_stats() or {} for device in mesh.local_devices]
    least = min((max(0, s['bytes_limit'] - s.get('bytes_in_use', 0))
                 for s in stats if 'bytes_limit' in s), default=None)
  if jax.process_count() == 1:
    return least
  # The collective uses 32-bit integers, which cannot hold byte counts.
  everywhere = multihost_utils.process_allgather(
      np.asarray(-1 if least is None else least // MIB, np.int32))
  return None if everywhere.min() < 0 else int(everywhere.min()) * MIB


def free_host_bytes(num_devices: int) -> int:
  """Returns the free host memory for each of `num_devices` CPU devices."""
  free = psutil.virtual_memory().available
  return int(USABLE_FRACTION * free) // num_devices


def try_compile(lowered: Any) -> tuple[Any, tuple[int, int] | None]:
  """Compiles a lowered function that may not fit.

  Returns:
    The compiled function and None, or None and the needed and available bytes
    if the compiler runs out of memory.

  Raises:
    jax.errors.JaxRuntimeError: if the compilation fails for another reason.
  """
  try:
    return lowered.compile(), None
  except jax.errors.JaxRuntimeError as error:
    sizes = parse_out_of_memory(str(error))
    if sizes is None:
      raise
    return None, sizes


def parse_out_of_memory(message: str) -> tuple[int, int] | None:
  """Parses the needed and available bytes from a compiler error.

  Returns None if the error is not about memory.
  """
  if _EXHAUSTED[0] not in message:
    return None
  for pattern in _OUT_OF_MEMORY:
    match = re.search(pattern, message, flags=re.DOTALL | re.IGNORECASE)
    if match:
      needed, unit, limit, limit_unit = match.groups()
      return (round(float(needed) * _UNITS[unit.upper()]),
              round(float(limit) * _UNITS[limit_unit.upper()]))
  return None
