"""Process flags, clusters, and the shards of a batch in each process."""

import pathlib
import socket
import subprocess
import sys

import jax
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from tests import toy
from vit_jax.parallel import clusters
from vit_jax.parallel import mesh as mesh_lib
from vit_jax.parallel import multihost
from vit_jax.parallel import processes

ROOT = str(pathlib.Path(__file__).parents[2])
STEP = {'SLURM_JOB_ID': '7', 'SLURM_STEP_NODELIST': 'n[1-2]',
        'SLURM_NTASKS': '2', 'SLURM_PROCID': '1', 'SLURM_LOCALID': '0'}
POD = {'KUBERNETES_SERVICE_HOST': '10.0.0.1', 'JOB_COMPLETION_INDEX': '0'}


def mesh(**sizes):
  return mesh_lib.build(mesh_lib.MeshConfig(**sizes))


def test_batch_is_sharded_over_data_and_fsdp():
  on = mesh(data=2, fsdp=2, tensor=2)
  rows = np.arange(8 * 3).reshape(8, 3)
  batch = multihost.shard_batch({'label': rows}, on)['label']
  np.testing.assert_array_equal(batch, rows)
  assert batch.sharding.spec == P(('data', 'fsdp'))
  assert {shard.data.shape for shard in batch.addressable_shards} == {(2, 3)}


@pytest.mark.parametrize(('sizes', 'process', 'shards'), [
    # Four processes with two devices each, in mesh order.
    ({}, slice(6, 8), ((3,), 4)),
    ({'fsdp': 2}, slice(2, 4), ((1,), 4)),
    # The axis `tensor` within one process, over two, and over all.
    ({'tensor': 4}, slice(2, 4), ((0,), 2)),
    ({'tensor': 4}, slice(4, 6), ((1,), 2)),
    ({'tensor': 8}, slice(6, 8), ((0,), 1)),
    # A TPU torus: the devices of a process are not neighbours in the mesh.
    ({}, slice(1, 8, 4), ((1, 5), 8)),
    ({}, slice(1, 3), ((1, 2), 8)),
    ({}, slice(0, 8), ((0,), 1)),
])
def test_a_process_reads_the_shards_of_its_devices(
    sizes, process, shards):
  on = mesh(**sizes)
  assert multihost.batch_shards(on, on.devices.flat[process]) == shards


@pytest.mark.parametrize(('flags', 'words'), [
    ({'coordinator': 'a:1'}, 'must be given together'),
    ({'coordinator': 'a:1', 'num_processes': 2, 'process_id': 2},
     '--process-id must be from 0 to 1'),
    ({'coordinator': 'a', 'num_processes': 2, 'process_id': 1}, 'HOST:PORT'),
    ({'num_processes': 0}, 'at least 1'),
    ({'start_timeout_secs': 0}, 'at least 1'),
])
def test_inconsistent_flags_are_errors(flags, words):
  with pytest.raises(ValueError, match=words):
    processes.Processes(**flags)


@pytest.mark.parametrize(('environ', 'cluster'), [
    ({}, None),
    (STEP, clusters.SLURM),
    ({**STEP, 'SLURM_NTASKS': '1'}, None),
    # A shell in an allocation of two tasks is a step of one.
    ({**STEP, 'SLURM_STEP_NUM_TASKS': '1'}, None),
    # A batch script that starts a program without srun.
    ({'SLURM_JOB_ID': '7', 'SLURM_NTASKS': '2', 'SLURM_PROCID': '0'}, None),
    ({'TPU_WORKER_HOSTNAMES': 'a,b', 'TPU_WORKER_ID': '0'}, clusters.TPU),
    ({'TPU_WORKER_HOSTNAMES': 'localhost'}, None),
    ({'TPU_WORKER_HOSTNAMES': 'a', 'MEGASCALE_NUM_SLICES': '2'},
     clusters.TPU),
    # A single-host TPU within a Kubernetes job.
    ({'TPU_WORKER_HOSTNAMES': 'a', **POD}, None),
    ({'OMPI_COMM_WORLD_SIZE': '2'}, clusters.OPEN_MPI),
])
def test_a_cluster_is_detected_only_with_several_processes(environ, cluster):
  assert clusters.find(environ) == cluster


def test_a_kubernetes_job_needs_the_package_that_lists_pods(monkeypatch):
  monkeypatch.setattr(
      clusters.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match='pip install "jax.*--num-processes=1'):
    clusters.find(POD)


@pytest.mark.parametrize(('environ', 'gpus'), [
    ({'SLURM_STEP_TASKS_PER_NODE': '1(x2)'}, [0, 1, 2, 3]),
    ({'SLURM_STEP_TASKS_PER_NODE': '4', 'SLURM_GPUS_PER_TASK': '4'},
     [0, 1, 2, 3]),
    # One task per GPU, all visible: JAX takes the GPU of the task's number.
    ({'SLURM_STEP_TASKS_PER_NODE': '4(x2)'}, None),
])
def test_a_slurm_task_alone_on_its_node_has_all_gpus(environ, gpus):
  environ = {**environ, 'CUDA_VISIBLE_DEVICES': '0,1,2,3'}
  assert clusters.slurm_gpus(environ) == gpus


def test_a_single_process_does_not_wait(monkeypatch):
  monkeypatch.setattr(
      jax.distributed, 'initialize', lambda **_: pytest.fail('waited'))
  assert not processes.start(processes.Processes())
  for name, value in STEP.items():
    monkeypatch.setenv(name, value)
  assert not processes.start(processes.Processes(num_processes=1))


def test_an_occupied_port_is_an_error():
  with socket.create_server(('localhost', 0)) as taken:
    port = taken.getsockname()[1]
    with pytest.raises(ValueError, match=f'cannot listen on port {port}'):
      processes.start(processes.Processes(f'localhost:{port}', 2, 0))


@pytest.mark.parametrize('index', [0, 1])
def test_a_missing_process_is_an_error_after_the_timeout(index):
  address = f'localhost:{toy.free_port()}'
  program = (
      'import sys\n'
      f'sys.path.insert(0, {ROOT!r})\n'
      'from vit_jax.parallel import processes\n'
      'try:\n'
      f'  processes.start(processes.Processes({address!r}, 2, {index}, 1))\n'
      'except ValueError as error:\n'
      '  print(error, flush=True)\n'
      '  processes.exit_now(2)\n')
  done = subprocess.run(
      [sys.executable, '-c', program], capture_output=True, text=True,
      timeout=240)
  assert done.returncode == 2, done.stderr
  assert (f'This is process {index} of 2, coordinator {address}. Not all '
          'processes connected within 1 s (--start-timeout)') in done.stdout
