"""Axial attention compared with full attention (D.6, figure 13).

    python main.py --config=configs/paper/figure13.py --workdir=runs/figure13

An axial layer contains two attention blocks, within rows and then within
columns, each with an MLP. The side of a patch is half that of the base config,
which gives a grid of 8 x 8 patches.

Hardware: 2 CPU cores; minutes.
Measured accuracy in %, mean and range of seeds 0, 1 and 2 after 300 steps on
digits (2026-11-23, a shared 2-core Xeon), training GFLOP, and images/s of two
runs of seed 0 on an otherwise idle machine:

    plain, 1 layer   93.6 (92.5 - 95.0)  122  3,884 and 4,403
    plain, 2 layers  93.7 (93.6 - 93.9)  242  2,137 and 2,396
    plain, 4 layers  91.8 (91.4 - 91.9)  484  1,120 and 1,286
    axial, 1 layer   96.6 (96.1 - 96.9)  189  2,734 and 3,181
    axial, 2 layers  96.8 (96.4 - 97.2)  378  1,517 and 1,740

`:dataset=cifar10` was not run.
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
