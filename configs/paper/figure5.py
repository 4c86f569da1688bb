"""Accuracy against pre-training compute (section 4.4, figure 5, table 6).

    python main.py --config=configs/paper/figure5.py --workdir=runs/figure5

ViTs, hybrids and BiT ResNets of three sizes are pre-trained on the same number
of drawn shapes. The figure shows 5-shot accuracy on digits against the FLOPs of
pre-training, as counted by `main.py flops`. With `dataset=tiny_imagenet_40`,
images are photographs and the accuracies those on CIFAR-10 and flowers5.

Hardware: 2 CPU cores; up to an hour.
Expected: configs/paper/README.md.
"""

from ml_collections import ConfigDict

from configs.paper import families
from configs.paper import small


def get_config(
    seeds: int = 3, steps: int = 1_000, dataset: str = 'shapes',
) -> ConfigDict:
  """Returns one stage per family, size and seed.

  Args:
    seeds: number of runs of each.
    steps: pre-training steps.
    dataset: 'shapes' or 'tiny_imagenet_40'.
  """
  config = families.base(dataset)
  config.total.steps = steps
  config.stages = small.stages({
      f'{family},{size}': {'model': families.model(family, size, dataset)}
      for family in families.FAMILIES for size in families.SIZES}, seeds)
  return config
