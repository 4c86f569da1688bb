"""Depth, width, MLP and patch size scaled separately (D.2, figure 8).

    python main.py --config=configs/paper/figure8.py --workdir=runs/figure8

300 steps on digits; one dimension at a time, or depth, width and MLP together.

Hardware: 2 CPU cores; minutes.
Measured accuracy in %, mean and range of seeds 0, 1 and 2 (2026-11-23, a shared
2-core Xeon). The base model has 96.6 (96.4 - 96.7):

    depth 1; 16       96.3 (95.3 - 97.8)  95.9 (95.3 - 96.4)
    width 8; 96       79.8 (76.4 - 81.9)  96.8 (96.4 - 97.2)
    MLP 32; 1,024     95.6 (94.2 - 96.9)  96.5 (95.8 - 97.5)
    patch side 4; 1   98.2 (98.1 - 98.3)  91.8 (91.4 - 91.9)
    all half; double  93.5 (92.8 - 94.7)  97.6 (97.2 - 98.1)

Patches of 1 or 2 pixels contain little, which may be why larger ones are better
here. `:dataset=cifar10` was not run.
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
