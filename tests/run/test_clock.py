"""Speed and device time, with a clock that the test moves by hand."""

from unittest import mock

import pytest

from vit_jax.run import clock as clock_lib


@pytest.fixture
def time():
  """A clock's source of time, which only `sleep` advances."""
  now = [1000.0]
  source = mock.Mock(side_effect=lambda: now[0])
  source.sleep = lambda secs: now.append(now.pop() + secs)
  return source


def test_speed_is_images_per_second_of_the_interval(time):
  clock = clock_lib.Clock(now=time)
  time.sleep(4)
  assert clock.interval(images=100)['images_per_sec'] == 25
  time.sleep(2)
  assert clock.interval(images=100)['images_per_sec'] == 50


def test_pauses_count_in_laps_only(time):
  clock = clock_lib.Clock(now=time)
  time.sleep(4)
  with clock.paused():
    time.sleep(60)
  assert clock.interval(images=100)['images_per_sec'] == 25
  assert clock.lap() == 64
  time.sleep(1)
  assert clock.lap() == 1


def test_wait_share_excludes_pauses(time):
  clock = clock_lib.Clock(now=time)
  with clock.waiting():
    time.sleep(1)
  time.sleep(3)
  with clock.paused():
    time.sleep(96)
  assert clock.interval(images=1)['wait_share'] == 0.25
  time.sleep(1)
  assert clock.interval(images=1)['wait_share'] == 0
