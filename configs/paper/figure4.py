"""Accuracy against number of images (section 4.3, figures 3 and 4).

    python main.py --config=configs/paper/figure4.py --workdir=runs/figure4

A ViT, a hybrid and a BiT ResNet of similar FLOPs are pre-trained on nested
subsets of drawn shapes with early stopping. Each is evaluated by 5-shot
accuracy on digits (figure 4), and fine-tuned on all digits (figure 3), or with
`dataset=tiny_imagenet_40` on photographs, CIFAR-10 and flowers5.

Hardware: 2 CPU cores; up to 45 minutes.
Measured accuracy in %, mean and range of seeds 0, 1 and 2 (2026-11-23, a shared
2-core Xeon), after pre-training on N images; photographs are in docs/paper.md:

    N                      500                 4,000               32,000
    ViT, 5-shot      32.5 (31.0 - 33.6)  75.9 (72.5 - 78.1)  81.8 (79.1 - 83.8)
    hybrid           57.8 (53.1 - 61.2)  77.4 (75.5 - 79.2)  82.1 (78.9 - 84.5)
    ResNet           77.2 (76.2 - 78.5)  84.4 (82.9 - 85.3)  88.9 (88.3 - 89.4)
    ViT, fine-tuned  93.8 (93.3 - 94.4)  98.2 (97.8 - 98.9)  98.1 (97.5 - 98.9)
    hybrid           97.2 (96.9 - 97.5)  98.1 (97.5 - 98.6)  98.2 (97.8 - 98.6)
    ResNet           98.1 (97.8 - 98.6)  98.7 (98.6 - 98.9)  98.9 (98.6 - 99.2)
"""

from ml_collections import ConfigDict

from configs.paper import families
from configs.paper import small

# Model size, numbers of images, metric of early stopping.
STUDIES = {
    'shapes': ('small', (500, 4_000, 32_000), 'test/mean_average_precision'),
    'tiny_imagenet_40': ('medium', (4_000, 20_000, 100_000), 'test/accuracy'),
}
# Steps, and changes of the data.
CROPS = [{'op': 'inception_crop', 'area': [0.35, 1.0]}, {'op': 'flip'}]
FINE_TUNING = {
    'digits': (100, {'resolution': 16, 'train_ops': [{'op': 'resize'}]}),
    'cifar10': (300, {'train_ops': CROPS}),
    'flowers5': (100, {'train_ops': CROPS}),
}


def get_config(
    seeds: int = 3, steps: int = 0, dataset: str = 'shapes') -> ConfigDict:
  """Returns a stage per family, number of images and seed, and its fine-tuning.

  Args:
    seeds: number of runs of each.
    steps: maximum number of pre-training steps, before early stopping; 0 uses
      2,000 on drawn shapes and 1,000 (of twice as many images) on photographs.
    dataset: 'shapes' or 'tiny_imagenet_40'.
  """
  size, numbers, metric = STUDIES[dataset]
  config = families.base(dataset)
  config.total.steps = steps or (2_000 if dataset == 'shapes' else 1_000)
  evals = {name: {**section, 'every': {'percent': 10}}
           for name, section in config.evals.to_dict().items()}
  del config.evals  # Fine-tuned models have others.
  cells = {}
  for family in families.FAMILIES:
    for images in numbers:
      cells[f'{family},{images}'] = {
          'model': families.model(family, size, dataset),
          'data': {'num_examples': images},
          'evals': evals,
          'checkpoint': {
              'every': {'percent': 10}, 'best': metric,
              'patience': {'percent': 30}}}
  pretrained = small.stages(cells, seeds)
  for name in list(pretrained):
    family, images, seed = name.split(',')
    for target in families.TRANSFER[dataset]:
      count, data = FINE_TUNING[target]
      pretrained[f'{family} on {target},{images},{seed}'] = {
          'init': {'stage': name, 'which': 'best'}, 'seed': int(seed),
          'total': {'steps': count}, 'model': {'head_bias': 0.0},
          'objective': {'loss': 'softmax'},
          'data': {'source': target, **data},
          'evals': {target: {'split': 'test'}}}
  config.stages = pretrained
  return config
