"""Settings of glibc's allocator for training on CPUs.

By default glibc returns large freed blocks to the kernel, which must clear new
pages for the temporary arrays of every step.
"""

from collections.abc import Mapping
import ctypes
import os

OFF = 'VIT_JAX_ALLOCATOR'  # The value `system` changes nothing.
# Parameter of mallopt(3), its number in malloc.h and its value. The names in
# lower case are those of glibc's tunables.
_OPTIONS = (
    ('mmap_max', -4, 0),  # Large blocks come from the heap.
    ('trim_threshold', -1, -1),  # The heap does not shrink.
    ('top_pad', -2, 64 * 2**20),  # It grows in steps of 64 MiB.
    # All threads share the freed blocks. Other heaps end at 64 MiB.
    ('arena_max', -8, 1),
)


def keep_freed_memory(environ: Mapping[str, str]) -> tuple[str, ...]:
  """Makes malloc keep freed memory for reuse by this process.

  The peak memory stays allocated until the process ends.

  Args:
    environ: environment variables. Those of glibc (MALLOC_ARENA_MAX, ...,
      GLIBC_TUNABLES) take precedence.

  Returns:
    The names of the options set: none without glibc.
  """
  if (environ.get(OFF) == 'system'
      or 'CS_GNU_LIBC_VERSION' not in getattr(os, 'confstr_names', ())):
    return ()
  mallopt = ctypes.CDLL(None).mallopt
  tunables = environ.get('GLIBC_TUNABLES', '')
  names = []
  for name, number, value in _OPTIONS:
    variables = (f'MALLOC_{name.upper()}', f'MALLOC_{name.upper()}_')
    if (not any(variable in environ for variable in variables)
        and f'glibc.malloc.{name}=' not in tunables
        and mallopt(number, value)):
      names.append(name)
  return tuple(names)
