"""What befalls a run of several processes leaves no trace in what comes of it.

The whole experiment, of twenty kills, is `python -m tests.faults`.
"""

import re
import signal

import pytest

from tests import faults
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.training import watchdog


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('faults')


@pytest.fixture(scope='module')
def calm(folder):
  """The workdir of a run that nothing disturbed."""
  ended = faults.Launch(folder, folder / 'calm').end()
  assert ended.statuses == [0, 0], ended
  return folder / 'calm'


@pytest.mark.slow
def test_a_kill_a_signal_and_a_halt_of_one_process_change_nothing(folder, calm):
  workdir = folder / 'disturbed'

  def disturb(moment, signum, which, *flags, **settings):
    launch = faults.Launch(folder, workdir, *flags, **settings)
    assert launch.until(moment), launch.end()
    launch.send(signum, which)
    return launch.end()

  # In a save, the process that writes and that all others ask: the half-written
  # checkpoint is swept away by the next start.
  ended = disturb(lambda: faults.is_saving(workdir), signal.SIGKILL, [0])
  assert ended.statuses[0] == -signal.SIGKILL
  assert ended.statuses[1] != 0
  # Whoever is left says who is missing, or JAX does.
  assert 'no answer from process 0' in ended.outputs[1] or (
      'coordination service' in ended.outputs[1].lower()), ended

  # In an evaluation, a signal to the process that speaks for none.
  before = faults.last_step(workdir)
  ended = disturb(
      lambda: faults.last_step(workdir) > before
      and faults.is_evaluating(workdir), signal.SIGTERM, [1])
  assert ended.statuses == [75, 75], ended
  saved = checkpoint_source.find(workdir).path
  assert f'SIGTERM: saved at step {saved.name}' in ended.outputs[0]

  # A host hangs: the other says where it stands, and ends; so does the first
  # when it wakes.
  ended = disturb(
      lambda: faults.last_step(workdir) > int(saved.name), signal.SIGSTOP, [1],
      *faults.HUNG, heartbeat_secs=10 * faults.HUNG_SECS)
  assert ended.statuses[0] == watchdog.EXIT_CODE, ended
  assert ended.statuses[1] != 0
  *said, ends = map(int, re.findall(
      r'process 0 of 2: no progress for (\d+) s after step \d+ while \w',
      ended.outputs[0]))
  assert said  # Perhaps before, too: a loaded machine is slow.
  assert all(faults.STALLED_SECS <= secs < faults.HUNG_SECS for secs in said)
  assert ends >= faults.HUNG_SECS

  ended = faults.Launch(folder, workdir).end()
  assert ended.statuses == [0, 0], ended
  assert 'Resuming from step' in ended.outputs[0]
  assert faults.assert_same_end(workdir, calm) > 50
