"""Depth, width, MLP and patch size scaled separately (D.2, figure 8).

    python main.py --config=configs/paper/figure8.py --workdir=runs/figure8

Hardware: 2 CPU cores; minutes.
Expected: configs/paper/README.md.
"""

from ml_collections import ConfigDict

from configs.paper import small


def get_config(dataset: str = 'digits', seeds: int = 3) -> ConfigDict:
  """Returns one stage per size and seed.

  Args:
    dataset: see configs/paper/small.py.
    seeds: number of runs of each.
  """
  config = small.get_config(dataset)
  patch = config.model.patch
  cells = {
      'base,1': {},
      **{f'depth,{n}': {'depth': n, 'unroll': min(n, 4)} for n in (1, 16)},
      **{f'width,{n}': {'width': n} for n in (8, 96)},
      **{f'MLP,{n}': {'mlp_dim': n} for n in (32, 1024)},
      **{f'patch,{n}': {'patch': n} for n in (2 * patch, patch // 2)},
      'all,half': {'depth': 2, 'width': 16, 'mlp_dim': 64, 'unroll': 2},
      'all,double': {'depth': 8, 'width': 64, 'mlp_dim': 256},
  }
  config.stages = small.stages(
      {name: {'model': model} for name, model in cells.items()}, seeds)
  return config
