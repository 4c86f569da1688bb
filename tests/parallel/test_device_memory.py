"""CPU devices share the host memory; compiler errors state the needed memory.
"""

import types

import psutil
import pytest

from vit_jax.parallel import device_memory

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
  """A host with 40 GiB free, without a container."""
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(
      total=100 * GIB, available=40 * GIB))
  monkeypatch.setattr(device_memory, '_free_in_container', lambda: [])


def test_devices_share_90_percent_of_the_free_memory(machine, monkeypatch):
  assert device_memory.free_host_bytes(4) == 9 * GIB
  # The limit of a container is used if it is lower.
  monkeypatch.setattr(device_memory, '_free_in_container', lambda: [10 * GIB])
  assert device_memory.free_host_bytes(3) == 3 * GIB


@pytest.mark.parametrize(('files', 'expected'), [
    ({'memory.max': '1000\n', 'memory.stat': 'file 500\nanon 300\n'}, [700]),
    ({'memory/memory.limit_in_bytes': '1000\n',
      'memory/memory.stat': 'rss 1\ntotal_rss 300\n'}, [700]),
    ({'memory.max': 'max\n', 'memory.stat': 'anon 300\n'}, [])])
def test_cgroup_files_of_both_versions_are_read(tmp_path, files, expected):
  for name, text in files.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  assert device_memory._free_in_container(tmp_path) == expected


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
