"""Fine-tuning as in the paper: Table 4's values by data set.

    python main.py --config=configs/finetune.py:dataset=cifar10 \
        --workdir=runs/cifar10 --config.init.checkpoint=runs/b16 \
        --config.data.data_dir=$HOME/tensorflow_datasets

Your own images, in folders by class:

    python main.py --config=configs/finetune.py:dataset=/my/images \
        --workdir=runs/mine --config.init.checkpoint=runs/b16

Hardware: a TPU v3-8 for B/16 at 384; fewer devices set --config.accumulation.
Expected: ViT-B/16 from ImageNet-21k on CIFAR-10: 98.95 % (cited: arXiv
2010.11929, Table 5). Not measured here.

Table 4 lists four learning rates for each data set, to be chosen from on a
development split; the one here is the third of the four. A data set that is
not in the table gets 20 epochs.
"""

from ml_collections import ConfigDict

# arXiv 2010.11929, Table 4: (length, learning rate, training split).
TABLE_4 = {
    'imagenet2012': ({'steps': 20_000}, 0.03, 'train'),
    'cifar100': ({'steps': 10_000}, 0.01, 'train'),
    'cifar10': ({'steps': 10_000}, 0.01, 'train'),
    'oxford_iiit_pet': ({'steps': 500}, 0.01, 'train'),
    'oxford_flowers102': ({'steps': 500}, 0.01, 'train+validation'),
}
OTHERS = ({'epochs': 20}, 0.01, 'train')


def get_config(
    model: str = '', dataset: str = 'cifar10', resolution: int = 384,
    batch_size: int = 512,
) -> ConfigDict:
  """Returns the fine-tuning of a model on a data set.

  Args:
    model: a variant, such as 'L/16'; '' is the checkpoint's.
    dataset: of the table, any TFDS name, or a folder of images.
    resolution: of the images, in pixels; position embeddings are interpolated.
    batch_size: global.
  """
  total, learning_rate, split = TABLE_4.get(dataset, OTHERS)
  return ConfigDict({
      'total': total,
      'batch_size': batch_size,
      'model': {'variant': model, 'dtype': 'bfloat16', 'remat': 'dots'},
      'data': {
          'source': dataset, 'split': split, 'resolution': resolution,
          'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
          'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'sgd', 'momentum': 0.9, 'momentum_dtype': 'bfloat16',
          'learning_rate': learning_rate, 'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
      },
      'evals': {'test': {'every': {'percent': 10}}},
      'checkpoint': {'every': {'percent': 10}},
  })
