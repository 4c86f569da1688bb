"""Adam or SGD for the pre-training of a ResNet (D.1, table 7).

    python main.py --config=configs/paper/table7.py --workdir=runs/table7

Both optimizers with five learning rates each; the metric is the 5-shot
accuracy on digits.

Hardware: 2 CPU cores; minutes.
Measured 5-shot accuracy in % after 300 steps, mean and range of three seeds
(2026-11-23, a shared 2-core Xeon):

    Adam 0.0003  71.5 (70.8 - 72.5)    SGD 0.01  77.1 (75.8 - 78.1)
         0.001   73.8 (70.6 - 76.5)        0.03  78.0 (76.0 - 79.9)
         0.003   81.7 (80.6 - 83.4)        0.1   82.9 (81.9 - 83.5)
         0.01    85.3 (83.1 - 86.9)        0.3   84.5 (84.0 - 85.1)
         0.03    85.6 (84.4 - 86.7)        1     84.7 (84.4 - 84.8)

Both are best at the largest rate, so the optimum may be higher. The paper
compares them after fine-tuning.
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
