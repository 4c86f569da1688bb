"""Profiles a few steps and measures host memory."""

import contextlib

from etils import epath
import jax
import psutil

SKIPPED_STEPS = 5  # The first steps are slower.


class Profiler:
  """Traces a few steps for TensorBoard (xprof) and Perfetto."""

  def __init__(
      self, folder: epath.Path, *, first: int, last: int, steps: int):
    """Schedules a trace of `steps` steps, 0 for none, after step `first`.

    Fewer steps are skipped if the run ends, at step `last`, before the trace.
    """
    self._folder = folder
    self._begin = first + max(1, min(SKIPPED_STEPS, last - first - steps))
    self._end = self._begin + steps
    self._steps = steps
    self._running = False

  def step(self, step: int, loss: jax.Array) -> None:
    """Starts or stops the trace after a step."""
    if self._steps and step == self._begin:
      loss.block_until_ready()
      jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
      self._running = True
    elif self._running and step == self._end:
      loss.block_until_ready()
      self.stop()

  def stop(self) -> None:
    """Stops a running trace."""
    if self._running:
      jax.profiler.stop_trace()
      self._running = False


def host_memory_bytes() -> int:
  """Returns the memory of this process and its child processes."""
  process = psutil.Process()
  total = process.memory_info().rss
  for child in process.children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
      total += child.memory_info().rss
  return total
