"""Class token or mean of the patches, by learning rate (D.3, figure 9).

    python main.py --config=configs/paper/figure9.py --workdir=runs/figure9

Both kinds of pooling with four learning rates, 300 steps on digits.

Hardware: 2 CPU cores; minutes.
Measured accuracy in %, mean and range of seeds 0, 1 and 2 (2026-11-23, a shared
2-core Xeon):

    learning rate  class token         mean of the patches
    0.001          76.2 (73.9 - 78.1)  78.9 (76.9 - 81.7)
    0.003          92.5 (90.6 - 94.4)  94.9 (93.9 - 95.6)
    0.01           96.4 (95.0 - 97.8)  96.7 (95.6 - 97.8)
    0.03           96.9 (95.8 - 98.6)  96.7 (96.1 - 96.9)

The rates were extended upwards once, because the largest was best.
`:dataset=cifar10` was not run.
"""

from ml_collections import ConfigDict

from configs.paper import small

RATES = (1e-3, 3e-3, 1e-2, 3e-2)


def get_config(dataset: str = 'digits', seeds: int = 3) -> ConfigDict:
  """Returns one stage per pooling, learning rate and seed.

  Args:
    dataset: see configs/paper/small.py.
    seeds: number of runs of each.
  """
  config = small.get_config(dataset)
  config.stages = small.stages({
      f'{name},{rate:.0e}': {'model': {'pooling': pooling},
                             'optimizer': {'learning_rate': rate}}
      for name, pooling in (('class token', 'cls'),
                            ('mean of patches', 'average'))
      for rate in RATES}, seeds)
  return config
