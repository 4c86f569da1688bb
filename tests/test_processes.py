"""Several processes on this machine compute the same as one process.

They are started by `main.py` and communicate through gloo.
"""

from concurrent import futures
import json
import signal

import numpy as np
import pytest

from tests import faults
from tests import leaves
from tests import pictures
from tests import toy
from vit_jax import __main__ as main
from vit_jax import run as run_lib

pytestmark = pytest.mark.slow

CONFIG = toy.config(
    total={'steps': 4}, batch_size=16, model={'dropout': 0.1},
    data={'channels': 1, 'split': 'train[:320]',
          'train_ops': ({'op': 'inception_crop'},), 'mixup': leaves.MIXUP},
    optimizer={'name': 'sgd', 'learning_rate': 0.3, 'clip_norm': 1.0},
    mesh={'fsdp': 2},
    # The last batch of 16 is padded.
    evals={'test': {'split': 'test[:50]', 'every': {'steps': 2}}},
    log={'every': {'steps': 1}},
    checkpoint={'every': {'steps': 2}, 'keep': 2, 'best': 'test/loss'})
EVALUATORS = {
    'classes': {'name': 'classification'}, 'loss': {'name': 'objective'},
    'several': {'name': 'multi_label'},
    'knn': {'name': 'knn', 'train_split': 'train[:100]', 'k': 5},
    'fewshot': {'name': 'fewshot', 'train_split': 'train[:300]',
                'shots': (5,), 'seeds': 2},
}


def run_processes(number, workdir, *argv, status=0, **options):
  """Returns the output of each process of main.py, which ends with a status."""
  ended = faults.Launch(workdir, *argv, processes=number, **options).end()
  assert set(ended.statuses) == {status}, ended
  return ended.outputs


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
def two_processes(tmp_path_factory):
  """The workdir and the outputs of two training processes with two devices."""
  folder = tmp_path_factory.mktemp('two')
  config = toy.write(folder / 'config.py', **CONFIG)
  return folder / 'run', run_processes(
      2, folder / 'run', f'--config={config}', devices=2)


def test_two_processes_train_like_one_device(two_processes, reference):
  assert_same_metrics(toy.rows(two_processes[0]), reference)


def test_only_process_0_prints_and_writes(two_processes):
  workdir, outputs = two_processes
  # Two threads of Gloo may write their lines before both line ends.
  first, second = ([line for line in output.splitlines()
                    if line and 'peer ranks' not in line] for output in outputs)
  assert first[0] == 'process 0 of 2, 2 of 4 devices'
  assert 'batch 16 = 2 host(s) x 2' in '\n'.join(first)
  assert second == ['process 1 of 2, 2 of 4 devices']
  assert len(list(workdir.glob('events.out.tfevents.*'))) == 1
  steps = [row['step'] for row in toy.rows(workdir) if 'train/loss' in row]
  assert steps == [1, 2, 3, 4]


def test_one_process_resumes_a_checkpoint_of_two(
    two_processes, reference, tmp_path, capsys):
  workdir = toy.copy_at(two_processes[0], tmp_path / 'run', step=2)
  # Evaluations are compared in other tests.
  run_lib.train(toy.build(devices=2, **{
      **CONFIG, 'evals': {}, 'checkpoint': {'every': {'steps': 2}},
      'mesh': {'tensor': 2}}), workdir)
  assert 'Resuming from step 2' in capsys.readouterr().out
  assert_same_metrics(toy.rows(workdir), reference, first=3, prefix='train/')


def test_two_processes_evaluate_like_one(two_processes, tmp_path):
  evals = {name: {'split': 'test[:50]', **section}
           for name, section in EVALUATORS.items()}
  config = toy.write(tmp_path / 'config.py', **{
      **CONFIG, 'evals': evals, 'checkpoint': {}})
  workdir, argv = two_processes[0], [
      'evaluate', f'--config={config}', f'--output={tmp_path / "pictures"}']
  assert main.main([*argv, f'--workdir={workdir}',
                    f'--json={tmp_path / "one.json"}']) == 0
  run_processes(2, workdir, *argv, f'--json={tmp_path / "two.json"}', devices=2)
  one, two = (json.loads((tmp_path / f'{name}.json').read_text())
              for name in ('one', 'two'))
  assert {name.split('/')[0] for name in one['metrics']} == set(EVALUATORS)
  assert two['metrics'].keys() == one['metrics'].keys()
  for name, value in one['metrics'].items():
    # An image more or less changes an accuracy by 0.02.
    np.testing.assert_allclose(
        two['metrics'][name], value, rtol=1e-5, atol=1e-7, err_msg=name)


def test_processes_with_different_configs_end_with_status_2(tmp_path):
  config = toy.write(tmp_path / 'config.py', **CONFIG)
  for output in run_processes(
      2, tmp_path / 'run', f'--config={config}', status=2,
      last=['--config.batch_size=32']):
    assert ('main.py: error: Processes of one run differ in config.batch_size: '
            'process 0 has 16, process 1 has 32') in output
  assert not (tmp_path / 'run').exists()


def test_an_error_in_one_process_ends_all_processes(tmp_path):
  images = tmp_path / 'images' / 'train'
  for i in range(16):
    pictures.save(
        images / 'ab'[i % 2] / f'{i}.png', pictures.picture(i, side=8))
  (images / 'b' / '3.png').write_bytes(b'not an image')
  config = toy.write(tmp_path / 'config.py', **{
      **CONFIG, 'evals': {}, 'checkpoint': {},
      'total': {'epochs': 2}, 'batch_size': 4,
      'data': {'source': str(tmp_path / 'images'), 'channels': 1}})
  ended = faults.Launch(tmp_path / 'run', f'--config={config}').end()
  assert 0 not in ended.statuses, ended
  # Only one process read the file.
  assert sum('3.png' in output for output in ended.outputs) == 1, ended


def test_a_kill_in_a_save_ends_the_other_process_as_documented(tmp_path):
  """`python -m tests.faults` also resumes the run, after forty faults."""
  config = f'--config={toy.write(tmp_path / "toy.py", **faults.CONFIG)}'

  def kill(which):
    workdir = tmp_path / f'run_{which}'
    launch = faults.Launch(workdir, config)
    assert launch.until(lambda: faults.is_saving(workdir)), launch.end()
    launch.send(signal.SIGKILL, [which])
    ended = launch.end()
    faults.assert_documented(ended, killed=[which])
    assert 'Traceback' not in ended.outputs[1 - which], ended

  # At the same time, because they wait for heartbeats.
  with futures.ThreadPoolExecutor() as pool:
    list(pool.map(kill, [0, 1]))
