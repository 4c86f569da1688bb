"""Speed and device time, with a clock that the test moves by hand."""

import pytest

from vit_jax.training import clock as clock_lib


class Time:
  """A source of time that stands still until told otherwise."""

  def __init__(self):
    self.secs = 1000.0

  def __call__(self):
    return self.secs

  def sleep(self, secs):
    self.secs += secs


@pytest.fixture
def time():
  return Time()


def test_speed_is_images_per_second_of_the_interval(time):
  clock = clock_lib.Clock(devices=1, now=time)
  time.sleep(4)
  assert clock.interval(images=100).images_per_sec == 25
  time.sleep(2)
  assert clock.interval(images=100).images_per_sec == 50


def test_pauses_count_as_device_time_only(time):
  clock = clock_lib.Clock(devices=8, now=time)
  time.sleep(4)
  with clock.paused():
    time.sleep(60)
  interval = clock.interval(images=100)
  assert (interval.images_per_sec, interval.secs) == (25, 4)
  assert clock.device_secs == 8 * 64


def test_nested_pauses_count_once(time):
  clock = clock_lib.Clock(devices=1, now=time)
  time.sleep(10)
  with clock.paused():
    time.sleep(5)
    with clock.paused():
      time.sleep(5)
  assert clock.interval(images=10).secs == 10


def test_a_pause_ends_after_an_error(time):
  clock = clock_lib.Clock(devices=1, now=time)
  with pytest.raises(KeyboardInterrupt), clock.paused():
    time.sleep(5)
    raise KeyboardInterrupt
  time.sleep(2)
  assert clock.interval(images=4).images_per_sec == 2


def test_wait_share_excludes_pauses(time):
  clock = clock_lib.Clock(devices=1, now=time)
  with clock.waiting():
    time.sleep(1)
  time.sleep(3)
  with clock.paused():
    time.sleep(96)
  assert clock.interval(images=1).wait_share == 0.25
  time.sleep(1)
  assert clock.interval(images=1).wait_share == 0


def test_device_time_accumulates(time):
  clock = clock_lib.Clock(devices=2, now=time)
  for _ in range(3):
    time.sleep(5)
    clock.interval(images=1)
  assert clock.device_secs == 30
