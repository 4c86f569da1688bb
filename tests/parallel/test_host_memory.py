"""Host memory is divided among the processes and devices of a run."""

import types

import jax
import numpy as np
import psutil
import pytest

from vit_jax.experiment import fit_batch
from vit_jax.parallel import host_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.plan import step_cost

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
  """A host with 40 GiB free, without a container."""
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(
      total=100 * GIB, available=40 * GIB))
  monkeypatch.setattr(host_memory, '_free_in_container', lambda: [])


def test_devices_share_90_percent_of_the_free_memory(machine):
  assert host_memory.free_bytes(1) == 36 * GIB
  assert host_memory.free_bytes(4) == 9 * GIB


def test_the_limit_of_a_container_counts_if_it_is_lower(machine, monkeypatch):
  monkeypatch.setattr(host_memory, '_free_in_container', lambda: [10 * GIB])
  assert host_memory.free_bytes(3) == 3 * GIB


@pytest.mark.parametrize(('hosts', 'expected'), [
    ('aa', 18), ('abab', 18), ('abcd', 36), ('aaaa', 9)])
def test_processes_of_a_host_share_its_memory(
    machine, monkeypatch, hosts, expected):
  """Each letter is the host of a process; the first is this process."""
  monkeypatch.setattr(jax, 'process_count', lambda: len(hosts))
  monkeypatch.setattr(
      host_memory.multihost_utils, 'process_allgather',
      lambda here: here + np.asarray([ord(h) - ord('a') for h in hosts]))
  assert host_memory.free_bytes(1) == expected * GIB


def test_plans_and_runs_use_the_same_capacity(machine):
  mesh = mesh_lib.build(mesh_lib.MeshConfig(), jax.devices()[:2])
  planned, source = step_cost.capacity(jax.devices()[0], sharing=2)
  assert planned == fit_batch.free_bytes(mesh) == 18 * GIB
  assert '90% of the free host memory' in source


@pytest.mark.parametrize('files', [
    {'memory.max': '1000\n', 'memory.stat': 'file 500\nanon 300\n'},
    {'memory/memory.limit_in_bytes': '1000\n',
     'memory/memory.stat': 'rss 1\ntotal_rss 300\n'}])
def test_cgroup_files_of_both_versions_are_read(tmp_path, files):
  for name, text in files.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  assert host_memory._free_in_container(tmp_path) == [700]


def test_a_container_may_have_no_limit(tmp_path):
  (tmp_path / 'memory.max').write_text('max\n')
  (tmp_path / 'memory.stat').write_text('anon 300\n')
  assert host_memory._free_in_container(tmp_path) == []
