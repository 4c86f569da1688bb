"""Time of a run: training, waiting for the input, and pauses."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import time


@dataclasses.dataclass
class Clock:
  """Measures the speed of a training loop.

  ```
  clock = Clock()
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
    now: returns the time in seconds.
  """
  now: Callable[[], float] = time.perf_counter

  def __post_init__(self):
    self._lap_start = self._interval_start = self.now()
    self._paused_secs = self._waited_secs = 0.0

  def lap(self) -> float:
    """Returns the seconds since the last call, including pauses."""
    start, self._lap_start = self._lap_start, self.now()
    return self._lap_start - start

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
    now = self.now()
    secs = now - self._interval_start - self._paused_secs
    rate = 1 / secs if secs > 0 else 0.0
    speed = {'images_per_sec': images * rate,
             'wait_share': self._waited_secs * rate}
    self._interval_start = now
    self._paused_secs = self._waited_secs = 0.0
    return speed
