"""Section `sweep` of a config file."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from vit_jax import fields
from vit_jax.exceptions import UserError

# Fields that the sweep sets.
_RESERVED = ('seed', 'data.split', 'evals')


def expand(value: Any) -> list[Any]:
  """Returns the values of 'log:LOW:HIGH:COUNT', or a list of the value."""
  if not (isinstance(value, str) and value.startswith('log:')):
    return [value]
  try:
    low, high, count = map(float, value.split(':')[1:])
    if not (0 < low < high < math.inf and 2 <= count <= 1000
            and count == int(count)):
      raise ValueError
  except ValueError as error:
    raise UserError(
        f'grid: a log-spaced range is log:LOW:HIGH:COUNT with 0 < LOW < HIGH '
        f'and a COUNT of at least 2, such as log:0.001:0.1:3; got {value!r}.'
    ) from error
  # Three digits: the values become names of runs.
  return [float(f'{x:.3g}') for x in np.geomspace(low, high, int(count))]


@dataclasses.dataclass(frozen=True)
class SweepConfig:
  """Section `sweep` of a config file; `main.py train` ignores it.

  Attributes:
    grid: values by field, with dotted keys ('optimizer.learning_rate') or
      nested as in the config; several fields give all combinations. A value
      'log:0.001:0.1:3' stands for 3 log-spaced values from 0.001 to 0.1.
    held_out: percentage of the training split, from its end, that the grid runs
      are evaluated on.
    development: overrides of the grid runs in place of `held_out`: the sections
      `data` and `evals` ({'data': {'split': 'train800'}, 'evals': {'dev':
      {'split': 'val200'}}}). Grid runs have only these evaluators. Evaluators
      of the config that read the same data under the same name are left out
      of the statistics of the final runs.
    metric: selection criterion, an evaluator of the grid runs and its metric;
      '' is the default metric of the evaluator 'dev', such as 'dev/accuracy'.
    seeds: number of final runs of the best point.
    tasks: separate sweeps, such as of several datasets: overrides of the config
      by name of the task. Each has its own selection and final runs. A key
      `sweep` overrides this section; with an empty grid, nothing is selected.
    report: for tasks: metrics of the final runs by their cell in the table of
      all tasks, 'PANEL/ROW/COLUMN', such as {'flowers/fine-tuned/5':
      'test/accuracy'}.
    columns: for tasks: heading of the columns of the table.
    soup: which runs of the grid are averaged (arXiv 2203.05482): 'none',
      'uniform' for all, or 'greedy' for those that improve the metric.
  """
  grid: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
  held_out: int = 10
  development: dict[str, Any] = dataclasses.field(default_factory=dict)
  metric: str = ''
  seeds: int = 3
  tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
  report: dict[str, str] = dataclasses.field(default_factory=dict)
  columns: str = ''
  soup: Literal['none', 'uniform', 'greedy'] = 'none'

  def __post_init__(self):
    fields.check_range(self, 'held_out', low=1, end=100)
    fields.check_range(self, 'seeds', low=1)
    if self.tasks and self.soup != 'none':
      raise UserError(
          f"soup is {self.soup!r}, but different tasks have different "
          "parameters, which have no mean. Use 'none'.")
    if wrong := [label for label in self.report if label.count('/') != 2]:
      raise UserError(
          f'report: {wrong[0]!r} must have the form PANEL/ROW/COLUMN.')
    if self.development and 'evals' not in self.development:
      raise UserError(
          'development needs a section evals for the selection, such as '
          '{"dev": {"split": "validation"}}.')
    expanded = {field: tuple(value for one in values for value in expand(one))
                for field, values in self.grid.items()}
    object.__setattr__(self, 'grid', expanded)
    for field, values in self.grid.items():
      if not values or len(set(map(repr, values))) < len(values):
        raise UserError(
            f'grid: the values of {field} must be one or more, each once, but '
            f'are {list(values)}.')
      reserved = next(
          (name for name in _RESERVED if f'{field}.'.startswith(f'{name}.')),
          None)
      if reserved:
        raise UserError(
            f'grid: {field} cannot be swept, since the sweep sets {reserved}. '
            'Use held_out or development for the data of the grid, and seeds '
            'for the final runs.')
