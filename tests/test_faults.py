"""A process that is killed in a save ends the other one.

`python -m tests.faults` also resumes the run, after forty faults, and
compares its result with that of an undisturbed one.
"""

from concurrent import futures
import signal

import pytest

from tests import faults
from tests import toy


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
