"""Interleaved timing: alternatives take turns, so that noise affects all."""

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


def spread(values: Iterable[float]) -> Spread:
  """Returns median, minimum and maximum."""
  found = list(values)
  return Spread(statistics.median(found), min(found), max(found))


def interleave(
    actions: Mapping[str, Action], *, rounds: int, repeats: int | None = None,
) -> dict[str, Spread]:
  """Returns seconds per repeat of each action, after one unmeasured run.

  Args:
    actions: actions by name.
    rounds: number of measurements of each action.
    repeats: repeats per round; None for at least `MIN_ROUND_SECS`.
  """
  for action in actions.values():
    action(1)  # May compile or allocate.
  counts = {name: repeats or math.ceil(MIN_ROUND_SECS / secs(action))
            for name, action in actions.items()}
  found: dict[str, list[float]] = {name: [] for name in actions}
  for _ in range(rounds):
    for name, action in actions.items():
      found[name].append(secs(action, counts[name]))
  return {name: spread(times) for name, times in found.items()}


def secs(action: Action, count: int = 1) -> float:
  """Returns the mean wall time of `count` repeats."""
  start = time.perf_counter()
  action(count)
  return (time.perf_counter() - start) / count
