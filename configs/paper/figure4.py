"""Accuracy against number of images (section 4.3, figures 3 and 4).

    python main.py --config=configs/paper/figure4.py --workdir=runs/figure4

A ViT, a hybrid and a BiT ResNet of similar FLOPs are pre-trained on nested
subsets of drawn shapes with early stopping. Each is evaluated by 5-shot
accuracy on digits (figure 4), and fine-tuned on all digits (figure 3). With
`dataset=tiny_imagenet_40`, images are photographs, and the other datasets are
CIFAR-10 and flowers5.

Hardware: 2 CPU cores; up to 45 minutes.
Expected: configs/paper/README.md.
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
