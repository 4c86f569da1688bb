"""Accuracy against pre-training compute (section 4.4, figure 5, table 6).

    python main.py --config=configs/paper/figure5.py --workdir=runs/figure5

ViTs, hybrids and BiT ResNets of three sizes are pre-trained on the same number
of drawn shapes. The figure shows 5-shot accuracy on digits against the FLOPs of
pre-training, as counted by `main.py flops`. With `dataset=tiny_imagenet_40`,
images are photographs and the accuracies those on CIFAR-10 and flowers5.

Hardware: 2 CPU cores; up to an hour.
Measured 5-shot accuracy in %, mean and range of seeds 0, 1 and 2 (2026-11-23, a
shared 2-core Xeon), by training GFLOP; photographs are in docs/paper.md:

    about          400               1,200               4,000
    ViT     80.4 (78.1 - 83.5)  85.0 (83.7 - 87.0)  86.5 (86.1 - 86.9)
    hybrid  79.0 (77.0 - 81.3)  84.6 (83.0 - 85.9)  84.7 (82.5 - 87.3)
    ResNet  88.8 (87.9 - 89.7)  87.5 (86.8 - 88.1)  87.5 (86.0 - 89.5)
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
