"""Faults of single processes do not change the result of a run.

`python -m tests.faults` is the complete experiment with forty faults.
"""

from concurrent import futures
import re
import signal

import pytest

from tests import faults
from tests import toy
from vit_jax import tree
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.run import watchdog as watchdog_lib


@pytest.mark.slow
def test_a_kill_in_a_save_ends_the_other_process_as_documented(tmp_path):
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


@pytest.mark.large
def test_a_kill_and_a_hang_do_not_change_the_result(tmp_path):
  workdir, calm = tmp_path / 'disturbed', tmp_path / 'calm'
  config = f'--config={toy.write(tmp_path / "toy.py", **faults.CONFIG)}'

  def disturb(moment, signum, which, *flags, **settings):
    launch = faults.Launch(workdir, config, *flags, **settings)
    assert launch.until(moment), launch.end()
    launch.send(signum, which)
    return launch

  # Process 0, while it saves: the next start deletes the partial checkpoint.
  launch = disturb(lambda: faults.is_saving(workdir), signal.SIGKILL, [0])
  # It trains while the other process waits for heartbeats.
  undisturbed = faults.Launch(calm, config)
  ended = launch.end()
  assert undisturbed.end().statuses == [0, 0]
  faults.assert_documented(ended, killed=[0])
  # Reported by the other process or by JAX.
  assert 'lost the connection to other processes' in ended.outputs[1] or (
      'coordination service' in ended.outputs[1].lower()), ended

  # A process hangs: the other reports its stack and ends, as does the first
  # when it continues.
  before = faults.last_step(workdir)
  ended = disturb(
      lambda: faults.last_step(workdir) > before, signal.SIGSTOP, [1],
      *faults.HUNG, heartbeat_secs=10 * faults.HUNG_SECS).end()
  assert ended.statuses[0] == watchdog_lib.EXIT_CODE, ended
  faults.assert_documented(ended)
  *reported, ends = map(int, re.findall(
      r'process 0 of 2: no progress for (\d+) s after step \d+ while \w',
      ended.outputs[0]))
  assert reported  # Possibly several times on a loaded machine.
  assert all(
      faults.STALLED_SECS <= secs < faults.HUNG_SECS for secs in reported)
  assert ends >= faults.HUNG_SECS

  ended = faults.Launch(workdir, config).end()
  assert ended.statuses == [0, 0], ended
  assert 'Resuming from step' in ended.outputs[0]
  assert faults.assert_same_end(workdir, calm) > 50
  # All kinds of state were compared, and the time of all starts counts.
  latest = paths.find(workdir)
  assert (latest / 'average').exists()
  assert any(leaf.dtype.name == 'bfloat16' for leaf in tree.flatten(
      items.read_shapes(latest / 'training')).values())
  progress = items.read_config(latest / 'progress')
  assert 0 < progress['secs'] <= progress['device_secs_by_kind']['cpu']
