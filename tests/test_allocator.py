"""The allocator keeps freed memory, unless the user turns this off."""

import os
import platform
import subprocess
import sys
from unittest import mock

import pytest

from vit_jax import __main__ as main

PROGRAM = """
import os, resource
from vit_jax import __main__ as main

main.keep_freed_memory()
for i in range(11):
  if i == 1:
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  bytearray(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""


def page_faults(**environ):
  """Returns the page faults of ten allocations of 8,192 pages."""
  done = subprocess.run(
      [sys.executable, '-c', PROGRAM], check=True, capture_output=True,
      env={**os.environ, **environ})
  return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='needs glibc')
def test_freed_memory_is_reused_unless_turned_off():
  pages = 2**25 // os.sysconf('SC_PAGE_SIZE')
  assert page_faults() < pages
  assert page_faults(VIT_JAX_ALLOCATOR='system') > 5 * pages


def test_without_glibc_nothing_is_configured(monkeypatch):
  monkeypatch.setattr(os, 'confstr_names', {}, raising=False)
  library = mock.Mock()
  monkeypatch.setattr(main.ctypes, 'CDLL', library)
  main.keep_freed_memory()
  assert not library.called
