"""Settings of glibc's allocator for training on CPUs.

By default glibc returns large freed blocks to the kernel, which must clear new
pages for the temporary arrays of every step.
"""

from collections.abc import Mapping
import ctypes
import os

OFF = 'VIT_JAX_ALLOCATOR'  # The value `system` changes nothing.
# Parameters of mallopt(3) and their values.
_OPTIONS = {
    -4: 0,  # M_MMAP_MAX: large blocks come from the heap.
    -1: -1,  # M_TRIM_THRESHOLD: the heap does not shrink.
    -2: 64 * 2**20,  # M_TOP_PAD: it grows in steps of 64 MiB.
    # M_ARENA_MAX: all threads share the freed blocks. Other heaps end at 64
    # MiB.
    -8: 1,
}


def keep_freed_memory(environ: Mapping[str, str]) -> None:
  """Makes malloc keep freed memory for reuse by this process.

  The peak memory stays allocated until the process ends.

  Args:
    environ: environment variables.
  """
  if (environ.get(OFF) != 'system'
      and 'CS_GNU_LIBC_VERSION' in getattr(os, 'confstr_names', ())):
    mallopt = ctypes.CDLL(None).mallopt
    for number, value in _OPTIONS.items():
      mallopt(number, value)
