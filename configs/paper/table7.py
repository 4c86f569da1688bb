"""Adam or SGD for the pre-training of a ResNet (D.1, table 7).

    python main.py --config=configs/paper/table7.py --workdir=runs/table7

Both optimizers with five learning rates each; the metric is the 5-shot
accuracy on digits.

Hardware: 2 CPU cores; minutes.
Expected: configs/paper/README.md.
"""

from ml_collections import ConfigDict

from configs.paper import families
from configs.paper import small

RATES = {'adam': (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
         'sgd': (1e-2, 3e-2, 1e-1, 3e-1, 1.0)}
# Multiplied by the learning rate, so the effective decay is similar.
WEIGHT_DECAY = {'adam': 0.03, 'sgd': 0.001}


def get_config(seeds: int = 3, steps: int = 300) -> ConfigDict:
  """Returns one stage per optimizer, learning rate and seed.

  Args:
    seeds: number of runs of each.
    steps: pre-training steps.
  """
  config = families.base()
  config.total.steps = steps
  config.model = families.model('ResNet', 'small')
  config.stages = small.stages({
      f'{name},{rate:.0e}': {'optimizer': {
          **config.optimizer.to_dict(), 'name': name, 'learning_rate': rate,
          'weight_decay': WEIGHT_DECAY[name]}}
      for name, rates in RATES.items() for rate in rates}, seeds)
  return config
