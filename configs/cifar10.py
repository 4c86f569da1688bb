"""A small ViT on CIFAR-10, from scratch.

    python main.py --config=configs/cifar10.py --workdir=runs/cifar10 \
        --config.data.data_dir=$HOME/tensorflow_datasets

The model and the settings of the page "Implementing Vision Transformer from
scratch" (width 48, 4 layers, 4 heads, patch 4; AdamW, constant learning rate
0.01, batch 256, 100 epochs).
"""

from ml_collections import ConfigDict


def get_config(epochs: int = 100) -> ConfigDict:
  """Returns the training of the small model.

  Args:
    epochs: over the 50,000 training images.
  """
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': 256,
      'model': {
          'width': 48, 'depth': 4, 'num_heads': 4, 'mlp_dim': 192, 'patch': 4,
          # Side by side rather than in a loop: faster on a CPU.
          'unroll': 4,
      },
      'data': {
          'source': 'cifar10', 'split': 'train', 'resolution': 32,
          'train_ops': [
              {'op': 'inception_crop', 'area': [0.8, 1.0]}, {'op': 'flip'},
          ],
          'eval_ops': [],
      },
      'optimizer': {
          'name': 'adam', 'learning_rate': 0.01, 'weight_decay': 0.01,
          'schedule': {'name': 'constant'},
      },
      'evals': {'test': {'split': 'test', 'every': {'epochs': 1}}},
      'checkpoint': {'every': {'epochs': 1}},
  })
