"""SIGTERM and Ctrl-C stop training at the next check."""

from concurrent import futures
import os
import signal

import pytest

from vit_jax.run import signals


@pytest.mark.parametrize('signum, code, name', [
    (signal.SIGTERM, 75, 'SIGTERM'), (signal.SIGINT, 130, 'SIGINT')])
def test_a_signal_stops_at_the_next_check(signum, code, name):
  with signals.catch() as stop:
    stop.check()
    os.kill(os.getpid(), signum)
    with pytest.raises(signals.Stopped, match=name) as caught:
      stop.check()
    assert caught.value.exit_code == code


def test_a_second_ctrl_c_interrupts_immediately():
  with signals.catch():
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_restored_after_an_error():
  before = {s: signal.getsignal(s) for s in signals.EXIT_CODES}
  with pytest.raises(RuntimeError), signals.catch():
    assert all(signal.getsignal(s) != before[s] for s in before)
    raise RuntimeError
  assert {s: signal.getsignal(s) for s in before} == before


def test_other_threads_catch_nothing():
  def handler():
    with signals.catch() as stop:
      stop.check()
      return signal.getsignal(signal.SIGTERM)

  with futures.ThreadPoolExecutor() as pool:
    assert pool.submit(handler).result() == signal.getsignal(signal.SIGTERM)
