"""Ablation of position embeddings (table 8 of the paper).

    python main.py --config=configs/position_ablation.py \
        --workdir=runs/positions

Trains eight small models that differ in their position embeddings, one stage
each, and prints a table of accuracies. `:seeds=3` trains each three times;
`:dataset=cifar10` uses the model and data of configs/cifar10.py.

Hardware: 2 CPU cores; 10 s of training per stage.
Measured accuracy in % on digits, mean and range of `:seeds=3` (2026-11-24, a
2-core EPYC; on a Xeon, means differ by up to 0.7 points):

                      at the stem         every layer         shared by layers
    none              76.1 (75.0 - 77.2)
    1-D               94.1 (92.8 - 94.7)  95.0 (93.9 - 96.1)  94.4 (93.9 - 94.7)
    2-D               89.3 (88.1 - 90.6)  90.8 (90.0 - 91.9)  92.9 (92.5 - 93.6)
    relative          83.0 (82.2 - 83.6)
"""

from typing import Any

from ml_collections import ConfigDict

# Cells of table 8; comments give its 5-shot accuracy of ViT-B/16 on ImageNet.
CELLS = {
    'none': {'position': 'none'},  # 61.4 %
    '1d-stem': {'position': 'learned', 'position_at': 'stem'},  # 64.2
    '1d-layers': {'position': 'learned', 'position_at': 'layers'},  # 64.0
    '1d-shared': {'position': 'learned', 'position_at': 'shared'},  # 64.3
    '2d-stem': {'position': '2d', 'position_at': 'stem'},  # 64.0
    '2d-layers': {'position': '2d', 'position_at': 'layers'},  # 64.0
    '2d-shared': {'position': '2d', 'position_at': 'shared'},  # 64.0
    'relative': {'position': 'relative'},  # 64.0
}
# Settings by dataset. Digits have 8 x 8 pixels.
DATASETS: dict[str, dict[str, Any]] = {
    'digits': {
        'total': {'epochs': 20}, 'batch_size': 64, 'resolution': 8, 'patch': 2,
        'train_ops': [{'op': 'resize'}]},
    'cifar10': {
        'total': {'epochs': 20}, 'batch_size': 256, 'resolution': 32,
        'patch': 4, 'train_ops': [
            {'op': 'inception_crop', 'area': [0.8, 1.0]}, {'op': 'flip'}]},
}


def get_config(dataset: str = 'digits', seeds: int = 1) -> ConfigDict:
  """Returns one stage per cell and seed.

  Args:
    dataset: 'digits' or 'cifar10'.
    seeds: number of runs per cell.
  """
  if dataset not in DATASETS:
    raise ValueError(
        f'dataset must be one of {", ".join(DATASETS)}, but is {dataset!r}.')
  row = DATASETS[dataset]
  return ConfigDict({
      'total': row['total'],
      'batch_size': row['batch_size'],
      'model': {
          'width': 48, 'depth': 4, 'num_heads': 4, 'mlp_dim': 192,
          'patch': row['patch'], 'pooling': 'average',
          # Faster than a loop on CPUs.
          'unroll': 4,
      },
      'data': {
          'source': dataset, 'split': 'train', 'resolution': row['resolution'],
          'train_ops': row['train_ops'],
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': 3e-3, 'weight_decay': 0.03,
          'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 10}},
      },
      'log': {'every': {'percent': 10}},
      'evals': {'test': {'split': 'test'}},
      'checkpoint': {'every': {'percent': 50}},
      # A plain dict would be sorted by name.
      'stages': ConfigDict({
          cell if seeds == 1 else ','.join([
              settings['position'], settings.get('position_at', 'stem'),
              str(seed)]): {'model': settings, 'seed': seed}
          for cell, settings in CELLS.items() for seed in range(seeds)
      }, sort_keys=False),
  }, sort_keys=False)
