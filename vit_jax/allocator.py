"""Settings of glibc's allocator for training on CPUs.

By default glibc returns large freed blocks to the kernel, which must clear new
pages for the temporary arrays of every step.
"""

from collections.abc import Mapping
import ctypes
import os

OFF = 'VIT_JAX_ALLOCATOR'  # The value `system` changes nothing.
# (name of glibc's tunable, number of the mallopt(3) parameter, value).
_OPTIONS = (
    ('mmap_max', -4, 0),  # Large blocks come from the heap.
    ('trim_threshold', -1, -1),  # The heap does not shrink.
    ('top_pad', -2, 64 * 2**20),  # It grows in steps of 64 MiB.
    # All threads share the freed blocks. Other heaps end at 64 MiB.
    ('arena_max', -8, 1),
)


def keep_freed_memory(environ: Mapping[str, str]) -> None:
  """Makes malloc keep freed memory for reuse by this process.

  The peak memory stays allocated until the process ends.

  Args:
    environ: environment variables. Those of glibc (MALLOC_ARENA_MAX, ...,
      GLIBC_TUNABLES) take precedence.
  """
  if (environ.get(OFF) == 'system'
      or 'CS_GNU_LIBC_VERSION' not in getattr(os, 'confstr_names', ())):
    return
  mallopt = ctypes.CDLL(None).mallopt
  tunables = environ.get('GLIBC_TUNABLES', '')
  for name, number, value in _OPTIONS:
    variables = (f'MALLOC_{name.upper()}', f'MALLOC_{name.upper()}_')
    if (not any(variable in environ for variable in variables)
        and f'glibc.malloc.{name}=' not in tunables):
      mallopt(number, value)
