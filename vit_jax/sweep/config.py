"""The section `sweep` of a config file."""

import dataclasses
from typing import Any

# Fields that a sweep sets by itself.
_OWN = ('seed', 'data.split', 'evals')


@dataclasses.dataclass(frozen=True)
class SweepConfig:
  """The section `sweep` of a config file; `main.py train` does not read it.

  Attributes:
    grid: values by field, 'optimizer.learning_rate' or nested as the config is
      ({'optimizer': {'learning_rate': [0.01, 0.03]}}); several fields make all
      of their combinations.
    held_out: percent of the training split, from its end, to choose by.
    development: how the runs of the grid differ from the config instead: the
      sections `data` and `evals` ({'data': {'split': 'train800'}, 'evals':
      {'dev': {'split': 'val200'}}}). They have these evaluators alone. What
      the config itself measures under the same name on the same data was
      chosen by, too, and is left out of the final runs' statistics.
    metric: what to choose by: an evaluator of the grid's runs and its metric;
      '' is 'dev/accuracy', or what takes its place: 'dev/precision_at_1' where
      an image may have several labels, 'dev/loss' where none is learned.
    seeds: how often the best is trained on all of the data.
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
          'development says how to train, but has no section evals that says '
          'what to choose by, such as {"dev": {"split": "validation"}}.')
    for field, values in self.grid.items():
      if not values or len(set(map(repr, values))) < len(values):
        raise ValueError(
            f'grid: the values of {field} must be one or more, each once, but '
            f'are {list(values)}.')
      own = next((o for o in _OWN if f'{field}.'.startswith(f'{o}.')), None)
      if own:
        raise ValueError(
            f'grid: {field} cannot be swept, for the sweep itself sets {own}: '
            'held_out (or development) says which data the grid sees, and '
            'seeds how many seeds the final runs have.')
