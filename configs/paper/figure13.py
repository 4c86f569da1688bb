"""Axial attention next to attention over the whole grid (D.6, figure 13).

    python main.py --config=configs/paper/figure13.py --workdir=runs/figure13

A layer with axial attention is twice as deep: it attends within rows, then
within columns, each with an MLP. Patches are half as long as in the base, so
that rows and columns have eight patches.

Hardware: 2 CPU cores; minutes.
Expected: docs/paper.md.
"""

from ml_collections import ConfigDict

from configs.paper import small


def get_config(dataset: str = 'digits', seeds: int = 3) -> ConfigDict:
  """Returns one stage per kind of attention, depth and seed.

  Args:
    dataset: see configs/paper/small.py.
    seeds: number of runs of each.
  """
  config = small.get_config(dataset)
  config.model.patch //= 2
  cells = {
      **{f'plain,{n}': {'depth': n, 'unroll': n} for n in (1, 2, 4)},
      **{f'axial,{n}': {'depth': n, 'unroll': n, 'axial': True}
         for n in (1, 2)},
  }
  config.stages = small.stages(
      {name: {'model': model} for name, model in cells.items()}, seeds)
  return config
