"""Several processes on this machine compute the same as one process.

They are started by `main.py` and communicate through gloo.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image
import pytest

from tests import toy
from vit_jax import __main__ as main
from vit_jax import run as run_lib

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
# Generous, for loaded machines.
TIMEOUT_SECS = 540

CONFIG = toy.config(
    total={'steps': 4}, batch_size=16, model={'dropout': 0.1},
    data={'channels': 1, 'split': 'train[:320]',
          'train_ops': ({'op': 'inception_crop'},), 'mixup': 0.2},
    optimizer={'name': 'sgd', 'learning_rate': 0.3, 'clip_norm': 1.0},
    mesh={'fsdp': 2},
    # The last batch of 16 is padded.
    evals={'test': {'split': 'test[:50]', 'every': {'steps': 2}}},
    log={'every': {'steps': 1}},
    checkpoint={'every': {'steps': 2}, 'keep': 2, 'best': 'test/loss'})
EVALUATORS = {
    'classes': {'name': 'classification'}, 'confusion': {'name': 'confusion'},
    'calibration': {'name': 'calibration'}, 'loss': {'name': 'objective'},
    'several': {'name': 'multi_label'},
    'knn': {'name': 'knn', 'train_split': 'train[:100]', 'k': 5},
    'fewshot': {'name': 'fewshot', 'train_split': 'train[:300]',
                'shots': (5,), 'seeds': 2},
}


def run_processes(number, *argv, devices=1, last=()):
  """Returns the status, output and error stream of each process of main.py.

  Args:
    number: number of processes.
    *argv: arguments of all processes.
    devices: number of devices per process.
    last: additional arguments of the last process.
  """
  environ = {**os.environ, 'JAX_PLATFORMS': 'cpu',
             'JAX_NUM_CPU_DEVICES': str(devices)}
  started = []
  try:
    flags = [f'--coordinator=localhost:{toy.free_port()}',
             f'--num-processes={number}']
    for i in range(number):
      started.append(subprocess.Popen(
          [sys.executable, 'main.py', *map(str, argv), *flags,
           f'--process-id={i}', *(last if i == number - 1 else ())],
          cwd=ROOT, env=environ, text=True,
          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outputs = [process.communicate(timeout=TIMEOUT_SECS) for process in started]
    return [(process.returncode, *texts)
            for process, texts in zip(started, outputs)]
  except subprocess.TimeoutExpired:
    for process in started:
      process.kill()
    pytest.fail('A process did not end.\n' + '\n'.join(
        '\n'.join(process.communicate()) for process in started))
  finally:
    for process in started:
      process.kill()


def assert_all_succeeded(done):
  for status, out, err in done:
    assert status == 0, f'{out}\n{err}'


def assert_same_metrics(rows, expected, *, first=1, prefix=''):
  found, wanted = ({
      (row['step'], name): value for row in of for name, value in row.items()
      if row['step'] >= first and name.startswith(prefix)}
                   for of in (rows, expected))
  assert found.keys() == wanted.keys()
  assert {step for step, _ in found} == {*range(first, 5)}
  for key, value in wanted.items():
    is_exact = 'accuracy' in key[1] or 'examples' in key[1]
    np.testing.assert_allclose(
        found[key], value, rtol=0 if is_exact else 2e-5, err_msg=str(key))


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  """Metrics of one process with one device."""
  workdir = tmp_path_factory.mktemp('one') / 'run'
  run_lib.train(toy.build(**{**CONFIG, 'mesh': {'data': 1}}), workdir)
  return toy.rows(workdir)


@pytest.fixture(scope='module')
def four_processes(tmp_path_factory):
  """The workdir and the outputs of four training processes."""
  folder = tmp_path_factory.mktemp('four')
  config = toy.write(folder / 'config.py', **CONFIG)
  done = run_processes(4, f'--config={config}', f'--workdir={folder / "run"}')
  assert_all_succeeded(done)
  return folder / 'run', done


def test_four_processes_train_like_one_device(four_processes, reference):
  assert_same_metrics(toy.rows(four_processes[0]), reference)


def test_only_process_0_prints_and_writes(four_processes):
  workdir, done = four_processes
  lines = [[line for line in out.splitlines() if '[Gloo]' not in line]
           for _, out, _ in done]
  assert [output[0] for output in lines] == [
      f'process {i} of 4, 1 of 4 devices' for i in range(4)]
  assert 'batch 16 = 4 host(s) x 1' in '\n'.join(lines[0])
  assert [output[1:] for output in lines[1:]] == [[], [], []]
  assert len(list(workdir.glob('events.out.tfevents.*'))) == 1
  steps = [row['step'] for row in toy.rows(workdir) if 'train/loss' in row]
  assert steps == [1, 2, 3, 4]


# Settings of resumed runs; evaluations are compared in other tests.
RESUMED = {'evals': {}, 'checkpoint': {'every': {'steps': 2}}}


def test_two_processes_resume_a_checkpoint_of_four(
    four_processes, reference, tmp_path):
  workdir = toy.copy_at(four_processes[0], tmp_path / 'run', step=2)
  # Attention heads are split over both processes.
  config = toy.write(
      tmp_path / 'config.py', **{**CONFIG, **RESUMED, 'mesh': {'tensor': 2}})
  done = run_processes(2, f'--config={config}', f'--workdir={workdir}')
  assert_all_succeeded(done)
  assert 'Resuming from step 2' in done[0][1]
  assert_same_metrics(
      toy.rows(workdir), reference, first=3, prefix='train/')


def test_two_processes_evaluate_like_one(four_processes, tmp_path):
  evals = {name: {'split': 'test[:50]', **section}
           for name, section in EVALUATORS.items()}
  config = toy.write(tmp_path / 'config.py', **{
      **CONFIG, 'evals': evals, 'checkpoint': {}})
  argv = ['evaluate', f'--config={config}', f'--workdir={four_processes[0]}',
          f'--output={tmp_path / "pictures"}']
  assert main.main([*argv, f'--json={tmp_path / "one.json"}']) == 0
  done = run_processes(
      2, *argv, f'--json={tmp_path / "two.json"}', devices=2)
  assert_all_succeeded(done)
  one, two = (json.loads((tmp_path / f'{name}.json').read_text())
              for name in ('one', 'two'))
  assert {name.split('/')[0] for name in one['metrics']} == set(EVALUATORS)
  assert two['metrics'].keys() == one['metrics'].keys()
  for name, value in one['metrics'].items():
    # An image more or less changes an accuracy by 0.02.
    np.testing.assert_allclose(
        two['metrics'][name], value, rtol=1e-5, atol=1e-7, err_msg=name)
  assert (two['tables']['confusion']['confusion']
          == one['tables']['confusion']['confusion'])


def test_processes_with_different_configs_end_with_status_2(tmp_path):
  config = toy.write(tmp_path / 'config.py', **CONFIG)
  done = run_processes(
      2, f'--config={config}', f'--workdir={tmp_path / "run"}',
      last=['--config.batch_size=32'])
  for status, _, err in done:
    assert status == 2
    assert ('main.py: error: Processes of one run differ in config.batch_size: '
            'process 0 has 16, process 1 has 32') in err
  assert not (tmp_path / 'run').exists()


def test_an_error_in_one_process_ends_all_processes(tmp_path):
  images = tmp_path / 'images' / 'train'
  for name in ('a', 'b'):
    (images / name).mkdir(parents=True)
    for i in range(8):
      Image.new('L', (8, 8), 16 * i).save(images / name / f'{i}.png')
  (images / 'b' / '3.png').write_bytes(b'not an image')
  config = toy.write(tmp_path / 'config.py', **{
      **CONFIG, 'evals': {}, 'checkpoint': {},
      'total': {'epochs': 2}, 'batch_size': 4,
      'data': {'source': str(tmp_path / 'images'), 'channels': 1,
               'check_secs': 0}})
  done = run_processes(2, f'--config={config}', f'--workdir={tmp_path / "run"}')
  assert all(status != 0 for status, _, _ in done), done
  # Only one process read the file.
  assert sum('3.png' in err for _, _, err in done) == 1, done
