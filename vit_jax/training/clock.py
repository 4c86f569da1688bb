"""How long a run takes, and how much of it is waiting for the input."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import time


@dataclasses.dataclass(frozen=True)
class Interval:
  """What happened between two log lines.

  Attributes:
    images_per_sec: images trained on, over the time that was not paused.
    wait_share: part of that time spent waiting for the input, 0 to 1. More
      than a few percent: the input, not the model, sets the speed.
    secs: that time, in seconds.
  """
  images_per_sec: float
  wait_share: float
  secs: float


class Clock:
  """Measures the speed of a training loop.

  ```
  clock = Clock(devices=8)
  for step in ...:
    with clock.waiting():
      batch = next(batches)
    ...
    if is_log_step:
      speed = clock.interval(images=steps_since_last * batch_size)
    with clock.paused():
      evaluate()
  ```
  """

  def __init__(
      self, *, devices: int, now: Callable[[], float] = time.perf_counter,
  ):
    """Starts the clock.

    Args:
      devices: accelerators that the run holds, on all hosts.
      now: source of the time in seconds.
    """
    self._now = now
    self._devices = devices
    self._start = now()
    self._pauses = 0
    self._begin_interval()

  @property
  def secs(self) -> float:
    """Seconds since this start of the run."""
    return self._now() - self._start

  @property
  def device_secs(self) -> float:
    """Seconds times devices since this start of the run, with evaluations.

    Pauses count: the devices are held, and paid for, while they last.
    """
    return self._devices * self.secs

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Leaves a block out of the training's speed: evaluations, checkpoints."""
    start = self._now()
    self._pauses += 1
    try:
      yield
    finally:
      self._pauses -= 1
      # A pause within a pause is already counted by the outer one.
      if not self._pauses:
        self._paused_secs += self._now() - start

  @contextlib.contextmanager
  def waiting(self) -> Iterator[None]:
    """Counts a block as waiting for the input."""
    start = self._now()
    try:
      yield
    finally:
      self._waited_secs += self._now() - start

  def interval(self, *, images: int) -> Interval:
    """Ends the interval, in which `images` were trained on, and begins one."""
    assert not self._pauses, 'An interval cannot end within a pause.'
    secs = self._now() - self._interval_start - self._paused_secs
    speed = Interval(
        images_per_sec=images / secs if secs > 0 else 0.0,
        wait_share=self._waited_secs / secs if secs > 0 else 0.0,
        secs=secs)
    self._begin_interval()
    return speed

  def _begin_interval(self) -> None:
    self._interval_start = self._now()
    self._paused_secs = 0.0
    self._waited_secs = 0.0
