"""Where files cannot be locked, one of several runs goes on all the same."""

import heapq
import json
import os
import random
import socket
import subprocess
import sys
import threading

from etils import epath
import pytest

from vit_jax.checkpoints import bucket_lock

ELSEWHERE = {'host': 'elsewhere', 'pid': 7, 'since': 'then', 'run': 'x'}


def hold(path, *, sleep=lambda secs: None):
  return bucket_lock.hold(epath.Path(path), sleep=sleep)


def test_a_file_that_changes_belongs_to_a_run_that_is_alive(tmp_path):
  file = tmp_path / '.lock'
  record = {**ELSEWHERE, 'count': 0}
  file.write_text(json.dumps(record))

  def other_beats(secs):
    record['count'] += 1
    file.write_text(json.dumps(record))

  with (pytest.raises(ValueError, match='process 7 on elsewhere'),
        hold(file, sleep=other_beats)):
    pass
  assert json.loads(file.read_text())['host'] == 'elsewhere'


def test_a_file_that_does_not_change_is_of_a_dead_run(tmp_path, capsys):
  file = tmp_path / '.lock'
  file.write_text(json.dumps(ELSEWHERE))
  waited = []
  with hold(file, sleep=waited.append):
    assert json.loads(file.read_text())['pid'] == os.getpid()
  assert sum(waited) == pytest.approx(
      bucket_lock.WATCH_SECS + bucket_lock.SETTLE_SECS)
  assert 'process 7 on elsewhere (since then) is at work' in (
      capsys.readouterr().out)
  assert not file.exists()


def test_a_dead_process_of_this_host_is_not_waited_for(tmp_path):
  file = tmp_path / '.lock'
  dead = subprocess.Popen([sys.executable, '-c', ''])
  dead.wait()
  file.write_text(json.dumps({'host': socket.gethostname(), 'pid': dead.pid}))
  waited = []
  with hold(file, sleep=waited.append):
    pass
  assert sum(waited) == bucket_lock.SETTLE_SECS


def test_who_loses_the_file_ends_and_leaves_it(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(bucket_lock, 'EARLY_BEAT_SECS', 0.01)
  # As if it had been halted while the other started.
  monkeypatch.setattr(bucket_lock, 'WATCH_SECS', -1)
  file, statuses, ended = tmp_path / '.lock', [], threading.Event()

  def end(status):
    statuses.append(status)
    ended.set()

  with bucket_lock.hold(epath.Path(file), sleep=lambda secs: None, end=end):
    for _ in range(6_000):  # A beat that has just read may write once more.
      file.write_text(json.dumps({**ELSEWHERE, 'held': True}))
      if ended.wait(timeout=0.01):
        break
  assert statuses == [2]
  assert json.loads(file.read_text())['host'] == 'elsewhere'
  assert 'process 7 on elsewhere (since then). Wait' in capsys.readouterr().err


class World:
  """Threads that take turns, by a clock that costs no time."""

  def __init__(self, seed):
    self.now = 0.0
    self.rng = random.Random(seed)
    self._turns = []  # When, and whose.
    self._over = threading.Semaphore(0)
    self._mine = threading.local()

  def clock(self):
    return self.now

  def sleep(self, secs):
    turn = self._mine.turn
    heapq.heappush(self._turns, (self.now + secs, id(turn), turn))
    self._over.release()
    turn.acquire()

  def start(self, act):
    """Has a thread begin now; it runs until it sleeps."""
    turn = threading.Semaphore(0)

    def run():
      self._mine.turn = turn
      turn.acquire()
      try:
        act()
      finally:
        self._over.release()

    threading.Thread(target=run, daemon=True).start()
    heapq.heappush(self._turns, (self.now, id(turn), turn))

  def run(self):
    """Gives turns until all threads have ended."""
    while self._turns:
      self.now, _, turn = heapq.heappop(self._turns)
      turn.release()
      self._over.acquire()


class Bucket:
  """A file as a bucket has it: the last write stays, and each takes a while."""

  def __init__(self, world, longest_secs):
    self._world = world
    self._longest_secs = longest_secs
    self._text = None

  def _travel(self):
    rng = self._world.rng  # Most are quick.
    self._world.sleep(self._longest_secs * rng.random()**rng.choice((1, 8)))

  def read_text(self):
    self._travel()
    if self._text is None:
      raise FileNotFoundError
    return self._text

  def write_text(self, text):
    self._travel()
    self._text = text


def several_start(seed, *, longest_secs, number=3, end_secs=300):
  """Returns who goes on and who gave way after having begun."""
  world = World(seed)
  file = Bucket(world, longest_secs)
  going_on, gave_way = [], []

  def act(name):
    world.sleep(world.rng.uniform(0, longest_secs))
    record = {**ELSEWHERE, 'run': str(world.rng.random())}
    claim = bucket_lock.Claim(
        file, record, sleep=world.sleep, clock=world.clock)
    has_begun = False
    try:
      claim.settle()
      has_begun = True
      while world.now < end_secs:
        world.sleep(claim.beat_secs)
        claim.beat()
    except bucket_lock.InUseError:
      gave_way.extend([name] * has_begun)
    else:
      going_on.append(name)

  for name in range(number):
    world.start(lambda name=name: act(name))
  world.run()
  return going_on, gave_way


def test_of_several_that_start_at_once_exactly_one_goes_on():
  for seed in range(100):
    going_on, gave_way = several_start(
        seed, longest_secs=bucket_lock.SETTLE_SECS / 2)
    assert len(going_on) == 1, seed
    assert gave_way == [], seed  # Nobody began in vain.


def test_one_goes_on_also_where_writes_take_longer_than_is_waited():
  began_in_vain = 0
  for seed in range(100):
    going_on, gave_way = several_start(
        seed, longest_secs=4 * bucket_lock.SETTLE_SECS)
    assert len(going_on) == 1, seed
    began_in_vain += bool(gave_way)
  assert began_in_vain  # Else this would be the test above.
