"""CPU devices share the host memory; compiler errors state the needed memory.
"""

import types

import psutil
import pytest

from vit_jax.parallel import device_memory

GIB = 2**30


def test_devices_share_90_percent_of_the_free_memory(monkeypatch):
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(
      total=100 * GIB, available=40 * GIB))
  assert device_memory.free_host_bytes(4) == 9 * GIB


@pytest.mark.parametrize(('message', 'expected'), [
    ('RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in'
     ' memory space hbm. Used 40.10G of 15.48G hbm. Exceeded hbm capacity by '
     '24.62G.', (40.10 * 2**30, 15.48 * 2**30)),
    ('RESOURCE_EXHAUSTED: ... HLO temporaries (4.00T) exceeds available HBM '
     '(512.5M).', (4 * 2**40, 512.5 * 2**20)),
    ('RESOURCE_EXHAUSTED: something about a queue', None),
    ('INVALID_ARGUMENT: Used 40.10G of 15.48G hbm', None),
])
def test_memory_is_parsed_from_compiler_errors(message, expected):
  assert device_memory.parse_out_of_memory(message) == (
      expected and tuple(round(n) for n in expected))
