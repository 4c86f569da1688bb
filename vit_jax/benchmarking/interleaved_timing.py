"""Interleaved timing: alternatives take turns, so that noise affects all.

Both wall time and CPU time of this process are measured. CPU time is less
affected by other programs on the machine, but does not include accelerators.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import math
import statistics
import time

from vit_jax import console

# Runs something a given number of times and waits for the result.
Action = Callable[[int], None]

MIN_ROUND_SECS = 1.0  # If the number of repeats is not given.


@dataclasses.dataclass(frozen=True)
class Spread:
  """Median and range."""
  median: float
  lowest: float
  highest: float

  @property
  def text(self) -> str:
    """The median and, in parentheses, the range."""
    median, lowest, highest = map(
        console.format_number, dataclasses.astuple(self))
    return f'{median} ({lowest} – {highest})'


@dataclasses.dataclass(frozen=True)
class Timing:
  """Wall time and CPU time per repeat, over rounds of `repeats`."""
  secs: Spread
  cpu_secs: Spread
  repeats: int
  rounds: int


def spread(values: Iterable[float]) -> Spread:
  """Returns median, minimum and maximum."""
  found = list(values)
  return Spread(statistics.median(found), min(found), max(found))


def interleave(
    actions: Mapping[str, Action], *, rounds: int, repeats: int | None = None,
) -> dict[str, Timing]:
  """Times actions alternately, after one unmeasured run of each.

  Args:
    actions: actions by name.
    rounds: number of measurements of each action.
    repeats: repeats per round; None for at least `MIN_ROUND_SECS`.
  """
  for action in actions.values():
    action(1)  # May compile or allocate.
  counts = {
      name: repeats or math.ceil(MIN_ROUND_SECS / _time(action, 1)[0])
      for name, action in actions.items()}
  found: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
  for _ in range(rounds):
    for name, action in actions.items():
      found[name].append(_time(action, counts[name]))
  return {name: Timing(
      spread(secs for secs, _ in times), spread(cpu for _, cpu in times),
      counts[name], rounds) for name, times in found.items()}


def _time(action: Action, count: int) -> tuple[float, float]:
  start, cpu_start = time.perf_counter(), time.process_time()
  action(count)
  return ((time.perf_counter() - start) / count,
          (time.process_time() - cpu_start) / count)
