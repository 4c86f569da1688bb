"""Class token or mean of the patches, by learning rate (D.3, figure 9).

    python main.py --config=configs/paper/figure9.py --workdir=runs/figure9

Hardware: 2 CPU cores; minutes.
Expected: configs/paper/README.md.
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
