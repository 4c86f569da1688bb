"""Section `sweep` of a config file."""

import dataclasses
from typing import Any

# Fields that the sweep sets.
_RESERVED = ('seed', 'data.split', 'evals')


@dataclasses.dataclass(frozen=True)
class SweepConfig:
  """Section `sweep` of a config file; `main.py train` ignores it.

  Attributes:
    grid: values by field, with dotted keys ('optimizer.learning_rate') or
      nested as in the config; several fields give all combinations.
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
  """
  grid: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
  held_out: int = 10
  development: dict[str, Any] = dataclasses.field(default_factory=dict)
  metric: str = ''
  seeds: int = 3

  def __post_init__(self):
    if not 0 < self.held_out < 100:
      raise ValueError(
          'held_out is a whole percentage of the training split, from 1 to 99, '
          f'but is {self.held_out}.')
    if self.seeds < 1:
      raise ValueError(f'seeds must be at least 1, but is {self.seeds}.')
    if self.development and 'evals' not in self.development:
      raise ValueError(
          'development needs a section evals for the selection, such as '
          '{"dev": {"split": "validation"}}.')
    for field, values in self.grid.items():
      if not values or len(set(map(repr, values))) < len(values):
        raise ValueError(
            f'grid: the values of {field} must be one or more, each once, but '
            f'are {list(values)}.')
      reserved = next(
          (name for name in _RESERVED if f'{field}.'.startswith(f'{name}.')),
          None)
      if reserved:
        raise ValueError(
            f'grid: {field} cannot be swept, since the sweep sets {reserved}. '
            'Use held_out or development for the data of the grid, and seeds '
            'for the final runs.')
