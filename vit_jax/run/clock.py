"""Speed of training and time spent waiting for the input."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import time


@dataclasses.dataclass
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

  Attributes:
    devices: number of devices of all hosts.
    now: returns the time in seconds.
  """
  devices: int
  now: Callable[[], float] = time.perf_counter

  def __post_init__(self):
    self._start = self.now()
    self._begin_interval()

  @property
  def secs(self) -> float:
    """Seconds since this start of the run."""
    return self.now() - self._start

  @property
  def device_secs(self) -> float:
    """Seconds x devices since this start of the run, including pauses."""
    return self.devices * self.secs

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Excludes evaluations and checkpoints from the speed."""
    start = self.now()
    try:
      yield
    finally:
      self._paused_secs += self.now() - start

  @contextlib.contextmanager
  def waiting(self) -> Iterator[None]:
    """Counts this context as waiting for the input."""
    start = self.now()
    yield
    self._waited_secs += self.now() - start

  def interval(self, *, images: int) -> dict[str, float]:
    """Ends an interval with this number of images and begins the next.

    Returns:
      `images_per_sec`, excluding pauses, and `wait_share`, the fraction of the
      time spent waiting for the input. Above a few percent, the input limits
      the speed.
    """
    secs = self.now() - self._interval_start - self._paused_secs
    rate = 1 / secs if secs > 0 else 0.0
    speed = {'images_per_sec': images * rate,
             'wait_share': self._waited_secs * rate}
    self._begin_interval()
    return speed

  def _begin_interval(self) -> None:
    self._interval_start = self.now()
    self._paused_secs = 0.0
    self._waited_secs = 0.0
