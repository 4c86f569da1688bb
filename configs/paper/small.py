"""Base of the small experiments: a ViT that trains in seconds.

    python main.py --config=configs/paper/small.py --workdir=runs/small

The other configs in this folder vary it, with one stage per setting and seed,
called SETTING,SEED. `benchmarks/paper.py` (`make paper`) runs them and plots
the mean and range over seeds.

Hardware: 2 CPU cores; seconds per stage on digits.
"""

from typing import Any

from ml_collections import ConfigDict

# 16 patches: digits of 8 x 8 pixels, drawn shapes of 16 x 16 and CIFAR-10 of
# 32 x 32; 64 patches: Tiny ImageNet of 32 x 32.
DATASETS: dict[str, dict[str, Any]] = {
    'digits': {'total': {'steps': 300}, 'resolution': 8, 'patch': 2,
               'train_ops': [{'op': 'resize'}]},
    'shapes': {'total': {'steps': 500}, 'resolution': 16, 'patch': 4,
               'train_ops': []},
    'cifar10': {'total': {'steps': 4000}, 'resolution': 32, 'patch': 8,
                'train_ops': [{'op': 'pad_crop'}, {'op': 'flip'}]},
    'tiny_imagenet_40': {
        'total': {'steps': 1000}, 'resolution': 32, 'patch': 4,
        'train_ops': [{'op': 'inception_crop', 'area': [0.35, 1.0]},
                      {'op': 'flip'}]},
}


def get_config(dataset: str = 'digits') -> ConfigDict:
  """Returns the base config.

  Args:
    dataset: 'digits', 'shapes' (drawn, with several labels), 'cifar10' or
      'tiny_imagenet_40' (docs/paper.md says how it is made).
  """
  if dataset not in DATASETS:
    raise ValueError(
        f'dataset must be one of {", ".join(DATASETS)}, but is {dataset!r}.')
  row = DATASETS[dataset]
  multi_label = dataset == 'shapes'
  return ConfigDict({
      'total': row['total'],
      'batch_size': 64,
      'model': {
          'width': 32, 'depth': 4, 'num_heads': 4, 'mlp_dim': 128,
          'patch': row['patch'], 'pooling': 'average', 'unroll': 4,
          # Close to the logit of the label frequency: saves training steps.
          'head_bias': -2.5 if multi_label else 0.0,
      },
      'data': {
          'source': dataset, 'split': 'train', 'resolution': row['resolution'],
          'train_ops': row['train_ops'], 'cache_mib': 256,  # All images.
          'shapes': {'num_examples': 64_000, 'ink': 0.7, 'bright': True},
      },
      'objective': {'loss': 'sigmoid' if multi_label else 'softmax'},
      'optimizer': {
          # With Adam, deep models and small patches need far more steps.
          'name': 'muon', 'learning_rate': 8e-3, 'weight_decay': 0.03,
          'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 10}},
      },
      'log': {'every': {'percent': 20}},
      'evals': {'test': {'split': 'test'}},
      'checkpoint': {'every': {'percent': 100}},
  }, sort_keys=False)


def stages(cells: dict[str, dict[str, Any]], seeds: int) -> ConfigDict:
  """Returns one stage per cell (named settings) and seed."""
  # A plain dict would be sorted by name.
  return ConfigDict({
      f'{cell},{seed}': {**settings, 'seed': seed}
      for seed in range(seeds) for cell, settings in cells.items()
  }, sort_keys=False)
