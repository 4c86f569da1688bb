"""Speed and device time, with a clock that the test moves by hand."""

import pytest

from vit_jax.run import clock as clock_lib


class Time:
  """A source of time that only `sleep` advances."""

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
  assert clock.interval(images=100)['images_per_sec'] == 25
  time.sleep(2)
  assert clock.interval(images=100)['images_per_sec'] == 50


def test_pauses_count_as_device_time_only(time):
  clock = clock_lib.Clock(devices=8, now=time)
  time.sleep(4)
  with clock.paused():
    time.sleep(60)
  assert clock.interval(images=100)['images_per_sec'] == 25
  assert clock.device_secs == 8 * 64


def test_a_pause_ends_after_an_error(time):
  clock = clock_lib.Clock(devices=1, now=time)
  with pytest.raises(KeyboardInterrupt), clock.paused():
    time.sleep(5)
    raise KeyboardInterrupt
  time.sleep(2)
  assert clock.interval(images=4)['images_per_sec'] == 2


def test_wait_share_excludes_pauses(time):
  clock = clock_lib.Clock(devices=1, now=time)
  with clock.waiting():
    time.sleep(1)
  time.sleep(3)
  with clock.paused():
    time.sleep(96)
  assert clock.interval(images=1)['wait_share'] == 0.25
  time.sleep(1)
  assert clock.interval(images=1)['wait_share'] == 0
