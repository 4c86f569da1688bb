"""Turns of several actions, and what they took: medians, and how far apart.

What is compared takes turns, so that what else the machine does strikes all
alike. Each turn is timed twice: by the clock, and by the seconds of processors
that this process took, which others on the machine change less. Where an
accelerator does the work, only the clock tells of it.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import math
import statistics
import time

# Does a thing so many times, and returns when it is done.
Action = Callable[[int], None]

TURN_SECS = 1.0  # Where nobody says how often: at the least.


@dataclasses.dataclass(frozen=True)
class Spread:
  """Repeated measurements of one thing."""
  median: float
  lowest: float
  highest: float


@dataclasses.dataclass(frozen=True)
class Timed:
  """What doing a thing once took.

  Attributes:
    secs: by the clock.
    core_secs: of processors.
    repeats: of it in a turn.
    turns: measured.
  """
  secs: Spread
  core_secs: Spread
  repeats: int
  turns: int


def spread(values: Iterable[float]) -> Spread:
  """Returns the median, the lowest and the highest."""
  found = list(values)
  return Spread(statistics.median(found), min(found), max(found))


def alternate(
    actions: Mapping[str, Action], *, turns: int, repeats: int | None = None,
) -> dict[str, Timed]:
  """Times actions that take turns; each is done once before, unmeasured.

  Args:
    actions: by name.
    turns: of each.
    repeats: of each in a turn; None for as many as take `TURN_SECS`.
  """
  for action in actions.values():
    action(1)  # May compile, or touch memory for the first time.
  counts = {name: repeats or _repeats(action)
            for name, action in actions.items()}
  found: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
  for _ in range(turns):
    for name, action in actions.items():
      found[name].append(_time(action, counts[name]))
  return {name: Timed(
      spread(secs for secs, _ in taken), spread(core for _, core in taken),
      counts[name], turns) for name, taken in found.items()}


def _repeats(action: Action) -> int:
  secs, _ = _time(action, 1)
  return max(1, math.ceil(TURN_SECS / secs))


def _time(action: Action, count: int) -> tuple[float, float]:
  start, core_start = time.perf_counter(), time.process_time()
  action(count)
  return ((time.perf_counter() - start) / count,
          (time.process_time() - core_start) / count)
