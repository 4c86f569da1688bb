"""Axial attention compared with full attention (D.6, figure 13).

    python main.py --config=configs/paper/figure13.py --workdir=runs/figure13

An axial layer contains two attention blocks, within rows and then within
columns, each with an MLP. The side of a patch is half that of the base config,
which gives a grid of 8 x 8 patches.

Hardware: 2 CPU cores; minutes.
Expected: configs/paper/README.md.
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
