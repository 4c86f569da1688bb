"""The memory of a machine is divided among all that train on it."""

import types

import jax
import numpy as np
import psutil
import pytest

from vit_jax.experiment import fit_batch
from vit_jax.parallel import host_memory
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.plan import measure

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
  """A machine of 100 GiB, of which 40 are free, without a container."""
  monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(
      total=100 * GIB, available=40 * GIB))
  monkeypatch.setattr(host_memory, '_free_in_container', lambda: [])


def test_what_is_free_is_shared_and_some_is_left(machine):
  assert host_memory.free_bytes(1) == 36 * GIB
  assert host_memory.free_bytes(4) == 9 * GIB


def test_a_container_that_leaves_less_is_what_counts(machine, monkeypatch):
  monkeypatch.setattr(host_memory, '_free_in_container', lambda: [10 * GIB])
  assert host_memory.free_bytes(3) == 3 * GIB


@pytest.mark.parametrize(('hosts', 'expected'), [
    ('aa', 18), ('abab', 18), ('abcd', 36), ('aaaa', 9)])
def test_processes_of_one_host_share_its_memory(
    machine, monkeypatch, hosts, expected):
  """Each letter is the host of a process; the first one is here."""
  monkeypatch.setattr(jax, 'process_count', lambda: len(hosts))
  monkeypatch.setattr(
      host_memory.multihost_utils, 'process_allgather',
      lambda here: here + np.asarray([ord(h) - ord('a') for h in hosts]))
  assert host_memory.free_bytes(1) == expected * GIB


def test_a_plan_goes_by_what_a_run_takes(machine):
  mesh = mesh_lib.build(mesh_lib.MeshConfig(), jax.devices()[:2])
  planned, source = measure.capacity(jax.devices()[0], sharing=2)
  assert planned == fit_batch.free_bytes(mesh) == 18 * GIB
  assert '90% of what is free' in source


@pytest.mark.parametrize('files', [
    {'memory.max': '1000\n', 'memory.stat': 'file 500\nanon 300\n'},
    {'memory/memory.limit_in_bytes': '1000\n',
     'memory/memory.stat': 'rss 1\ntotal_rss 300\n'}])
def test_a_container_has_what_its_limit_leaves(tmp_path, files):
  for name, text in files.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  assert host_memory._free_in_container(tmp_path) == [700]


def test_a_container_without_a_limit_has_what_the_machine_has(tmp_path):
  (tmp_path / 'memory.max').write_text('max\n')
  (tmp_path / 'memory.stat').write_text('anon 300\n')
  assert host_memory._free_in_container(tmp_path) == []
