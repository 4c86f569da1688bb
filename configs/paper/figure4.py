"""Accuracy against number of images (section 4.3, figures 3 and 4).

    python main.py --config=configs/paper/figure4.py --workdir=runs/figure4

A ViT, a hybrid and a BiT ResNet of similar FLOPs are pre-trained on
nested subsets of drawn shapes with early stopping. Each is evaluated by 5-shot
accuracy on digits (figure 4), and fine-tuned on all digits (figure 3).

Hardware: 2 CPU cores; up to 45 minutes.
Expected: configs/paper/README.md.
"""

from ml_collections import ConfigDict

from configs.paper import families
from configs.paper import small

IMAGES = (500, 4_000, 32_000)


def get_config(seeds: int = 3, steps: int = 2_000) -> ConfigDict:
  """Returns two stages per family, number of images and seed.

  Args:
    seeds: number of runs of each.
    steps: maximum number of pre-training steps, before early stopping.
  """
  config = families.base()
  config.total.steps = steps
  evals = {name: {**section, 'every': {'percent': 10}}
           for name, section in config.evals.to_dict().items()}
  del config.evals  # Fine-tuned models have others.
  cells = {}
  for family in families.FAMILIES:
    for images in IMAGES:
      cells[f'{family},{images}'] = {
          'model': families.model(family, 'small'),
          'data': {'num_examples': images},
          'evals': evals,
          'checkpoint': {
              'every': {'percent': 10}, 'best': 'test/mean_average_precision',
              'patience': {'percent': 30}}}
  pretrained = small.stages(cells, seeds)
  digits = small.get_config('digits')
  for name in list(pretrained):
    family, images, seed = name.split(',')
    pretrained[f'{family} fine-tuned,{images},{seed}'] = {
        'init': {'stage': name, 'which': 'best'}, 'seed': int(seed),
        'total': {'steps': 100}, 'model': {'head_bias': 0.0},
        'data': {'source': 'digits', 'resolution': 16,
                 'train_ops': [{'op': 'resize'}]},
        'objective': {'loss': 'softmax'},
        'evals': digits.evals.to_dict()}
  config.stages = pretrained
  return config
