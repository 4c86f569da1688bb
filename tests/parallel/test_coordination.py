"""All processes of a run act on the wish of one, at the same point of it."""

import collections
import random
import threading
import time

import jax
import pytest

from vit_jax.checkpoints import errors
from vit_jax.parallel import coordination
from vit_jax.training import signals


class Shelf:
  """A store of the threads that stand for processes."""

  def __init__(self):
    self._texts = {}
    self._lock = threading.Lock()

  def set(self, key, value):
    with self._lock:
      self._texts.setdefault(key, value)

  def list(self, folder):
    with self._lock:
      return {key: text for key, text in self._texts.items()
              if key.startswith(folder)}


def run(num_processes, points, wishes, *, apart=1, poll_secs=0.01, seed=0):
  """Runs threads that wait for each other, as devices in a collective do.

  Args:
    num_processes: how many.
    points: how many each passes, if nothing is agreed on.
    wishes: by process, the point from which on it has a wish, and the wish.
    apart: how many points one may be ahead of another.
    poll_secs: of the agreement.
    seed: of how fast each is.

  Returns:
    By process, the point at which it acted and the wish that it acted on.
  """
  shelf = Shelf()
  passed, moved = [0] * num_processes, threading.Condition()
  acted = [None] * num_processes

  def process(index):
    rng = random.Random(f'{seed}-{index}')
    agreed = coordination.Agreement(
        shelf, 'stop/0', process=index, num_processes=num_processes,
        poll_secs=poll_secs)
    try:
      for point in range(1, points + 1):
        start, wish = wishes.get(index, (points + 1, None))
        found = agreed.reached(wish if point >= start else None)
        if found is not None:
          acted[index] = point, found
          return
        time.sleep(rng.random() * 2e-3)
        with moved:
          passed[index] = point
          moved.notify_all()
          assert moved.wait_for(
              lambda p=point: min(passed) >= p - apart, timeout=30)
    finally:
      agreed.close()

  threads = [threading.Thread(target=process, args=(i,))
             for i in range(num_processes)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=60)
    assert not thread.is_alive()
  return acted


@pytest.mark.parametrize('seed', range(4))
def test_all_act_at_the_same_point_on_the_same_wish(seed):
  start = random.Random(seed).randrange(1, 20)
  acted = run(4, 1000, {seed: (start, '15')}, apart=3, seed=seed)
  (point, wish), = set(acted)
  assert wish == '15'
  assert point > start


def test_of_two_wishes_all_act_on_one():
  acted = run(3, 1000, {0: (5, '15'), 2: (5, '2')})
  assert len(set(acted)) == 1
  assert acted[0][1] in ('15', '2')


def test_without_a_wish_nothing_happens():
  assert run(2, 20, {}) == [None, None]


def test_a_wish_at_the_very_end_blocks_nobody():
  # It is seen when the others have passed their last point, or not at all.
  assert run(3, 10, {1: (10, '15')}, poll_secs=0.001) == [None] * 3
  assert run(3, 10, {1: (10, '15')}, poll_secs=5) == [None] * 3


def test_a_signal_to_one_process_stops_all():
  shelf = Shelf()
  stops = [signals.Stop(coordination.Agreement(
      shelf, 'stop/0', process=i, num_processes=2, poll_secs=0.01))
      for i in range(2)]
  stops[1].receive(signals.signal.SIGTERM, None)
  checks = [0, 0]
  for _ in range(1000):
    stopped = []
    for i, stop in enumerate(stops):
      checks[i] += 1
      try:
        stop.check()
      except signals.Stopped as error:
        stopped.append(error.exit_code)
    if stopped:
      break
    time.sleep(0.01)
  assert stopped == [75, 75]
  assert checks[0] == checks[1] > 1


@pytest.fixture(name='shelf')
def _shelf(monkeypatch):
  """What processes share, seen from process 1 of 3."""
  shelf = Shelf()
  monkeypatch.setattr(coordination, 'store', lambda: shelf)
  monkeypatch.setattr(coordination, '_begun', collections.Counter())
  monkeypatch.setattr(coordination, 'START_SECS', 0.05)
  monkeypatch.setattr(coordination.jax, 'process_index', lambda: 1)
  monkeypatch.setattr(coordination.jax, 'process_count', lambda: 3)
  return shelf


def test_who_does_not_come_to_a_meeting_is_named(shelf):
  shelf.set('there/1/0', 'here')
  with pytest.raises(coordination.LostError, match='process 2 did not come'):
    coordination.meet('there')
  for process in range(3):
    shelf.set(f'there/2/{process}', 'here')
  coordination.meet('there')


def test_what_the_first_finds_all_are_told(shelf, monkeypatch):
  monkeypatch.setattr(coordination.jax, 'process_index', lambda: 0)
  for steps in (3, 5):
    assert coordination.on_first(
        'look', lambda n=steps: {'steps': n}) == {'steps': steps}
  assert coordination.on_first('see', lambda: 7) == 7
  for process in (1, 2):
    monkeypatch.setattr(coordination.jax, 'process_index', lambda n=process: n)
    # The n-th of a name is the n-th of it in each.
    for steps in (3, 5):
      assert coordination.on_first(
          'look', lambda: pytest.fail('not here')) == {'steps': steps}
    assert coordination.on_first('see', lambda: pytest.fail('not here')) == 7
    with pytest.raises(coordination.LostError, match='process 0 has not said'):
      coordination.on_first('look', lambda: pytest.fail('not here'))


def test_where_the_service_is_gone_process_0_is_missing(shelf, monkeypatch):
  def gone(*_):
    raise ConnectionError('the service is gone')
  monkeypatch.setattr(shelf, 'set', gone)
  with pytest.raises(coordination.LostError, match='no answer from process 0'):
    with coordination.naming_the_lost():
      raise jax.errors.JaxRuntimeError('Gloo: connection closed by peer')


@pytest.mark.usefixtures('shelf')
def test_a_server_of_data_that_is_away_is_not_a_lost_process():
  with pytest.raises(OSError, match='503 Service Unavailable'):
    with coordination.naming_the_lost():
      raise OSError('503 Service Unavailable')
  with pytest.raises(errors.StorageError, match='does not answer'):
    with coordination.naming_the_lost():
      with errors.explained('the checkpoint of step 3', 'gs://b/run'):
        raise OSError('Cannot connect to host b: connection refused')
