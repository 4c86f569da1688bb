"""A run without progress is reported, then ended."""

import time
import types

import pytest

from vit_jax.experiment import config as config_lib
from vit_jax.run import watchdog as watchdog_lib


@pytest.fixture
def wait():
  """Collects the reports and the end of a watchdog, and waits for them."""
  def until(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
      time.sleep(0.01)
    return condition()

  return types.SimpleNamespace(texts=[], statuses=[], until=until)


def watch(wait, report_secs, end_secs, start_secs=0):
  return watchdog_lib.Watchdog(
      config_lib.LogConfig(stalled_secs=report_secs, hung_secs=end_secs,
                           start_secs=start_secs),
      'starting', report=wait.texts.append, end=wait.statuses.append)


def test_a_stalled_run_reports_its_stack_once(wait):
  with watch(wait, 0.05, 0) as dog:
    dog.beat('waiting for the input', step=1234)
    assert wait.until(lambda: wait.texts)
    time.sleep(0.2)
  text, = wait.texts
  assert text.startswith('process 0 of 1: no progress for ')
  assert 'after step 1,234 while waiting for the input. Stack:\n' in text
  assert 'test_a_stalled_run_reports_its_stack_once' in text  # The stack.
  assert wait.statuses == []


def test_the_start_has_its_own_limit(wait):
  with watch(wait, 0.05, 0.1, 30) as dog:
    assert wait.until(lambda: 'starting. Stack' in ''.join(wait.texts))
    dog.beat('compiling', is_start=True)
    assert wait.until(lambda: 'compiling' in ''.join(wait.texts))
    time.sleep(0.2)
  assert wait.statuses == []
  assert wait.texts[-1].endswith('will exit after 30 s (log.start_secs).')


def test_a_hang_before_the_first_beat_exits(wait):
  with watch(wait, 0, 0, 0.05):
    assert wait.until(lambda: wait.statuses)
  assert wait.statuses == [76]
  assert 'after step 0 while starting' in wait.texts[-1]


def test_each_beat_restarts_the_clock(wait):
  with watch(wait, 0, 0.5) as dog:
    for _ in range(20):
      dog.beat('in a step')
      time.sleep(0.05)
    assert wait.statuses == []
    assert wait.until(lambda: wait.statuses)
  assert wait.statuses == [76]
  assert 'the same command resumes from the last checkpoint' in wait.texts[-1]
