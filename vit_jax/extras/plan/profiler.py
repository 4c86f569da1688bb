"""Profiles a few steps of a run (`train --profile`)."""

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax.exceptions import UserError

SKIPPED_STEPS = 5  # The first steps are slower.


def check(folder: epath.Path) -> None:
  """Raises a UserError for a folder that JAX cannot write traces to."""
  if atomic_files.is_remote(folder):
    raise UserError(
        f'--profile needs a local workdir, but writes to {folder}. Profile a '
        'short run with a local --workdir.')


class Profiler:
  """Traces a few steps for TensorBoard (xprof) and Perfetto."""

  def __init__(
      self, folder: epath.Path, *, first: int, last: int, steps: int):
    """Schedules a trace of `steps` steps after step `first`.

    Fewer steps are skipped if the run ends, at step `last`, before the trace.
    """
    check(folder)
    self._folder = folder
    self._begin = first + max(1, min(SKIPPED_STEPS, last - first - steps))
    self._end = self._begin + steps
    self._running = False

  def step(self, step: int, loss: jax.Array) -> None:
    """Starts or stops the trace after a step."""
    if step == self._begin:
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
