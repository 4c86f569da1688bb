"""Fine-tuning as in the paper: Table 4's values by data set.

    python main.py --config=configs/finetune.py:dataset=cifar10 \
        --workdir=runs/cifar10 --config.init.checkpoint=runs/b16 \
        --config.data.data_dir=$HOME/tensorflow_datasets

The table's own protocol, four learning rates on a part of the training split,
the best of them three times on all of it (seven runs):

    python main.py sweep --config=configs/finetune.py:dataset=cifar10 ...

Your own images, in folders by class:

    python main.py --config=configs/finetune.py:dataset=/my/images \
        --workdir=runs/mine --config.init.checkpoint=runs/b16

Table 2's ImageNet: `:dataset=imagenet2012,resolution=512` for L/16 and
resolution=518 for H/14, with the parameters averaged by 0.9999. The accuracy on
ReaL's labels:

    python main.py evaluate --workdir=runs/l16 --evaluators=classification \
        --config.evals.classification.real_labels=real.json

Hardware: a TPU v3-8 for B/16 at 384; fewer devices compute a batch in parts.
Expected: ViT-B/16 from ImageNet-21k on CIFAR-10: 98.95 % (cited: arXiv
2010.11929, Table 5). L/16 from ImageNet-21k on ImageNet at 512: 85.30 +- 0.02 %
(cited: Table 2). Not measured here.

A single run takes the third of the four learning rates. A data set that is not
in the table gets 20 epochs and CIFAR's learning rates.
"""

from ml_collections import ConfigDict

from configs import pretrain

# arXiv 2010.11929, Table 4: (length, learning rates, percent of the training
# split that they are chosen on, training split).
CIFAR_RATES = (0.001, 0.003, 0.01, 0.03)
TABLE_4 = {
    'imagenet2012': (
        {'steps': 20_000}, (0.003, 0.01, 0.03, 0.06), 1, 'train'),
    'cifar100': ({'steps': 10_000}, CIFAR_RATES, 2, 'train'),
    'cifar10': ({'steps': 10_000}, CIFAR_RATES, 2, 'train'),
    'oxford_iiit_pet': ({'steps': 500}, CIFAR_RATES, 10, 'train'),
    'oxford_flowers102': (
        {'steps': 500}, CIFAR_RATES, 10, 'train+validation'),
}
OTHERS = ({'epochs': 20}, CIFAR_RATES, 10, 'train')

# What is trained: all; the head alone, on the frozen representation; or all,
# each layer at 0.75 of the learning rate of the one above (arXiv 2106.08254).
METHODS = {
    'full': {},
    'probe': {'frozen': [r'(?!head/).*']},
    'layer_decay': {'layer_decay': 0.75},
}


def get_config(
    model: str = '', dataset: str = 'cifar10', resolution: int = 0,
    batch_size: int = 512, method: str = 'full',
) -> ConfigDict:
  """Returns the fine-tuning of a model on a data set.

  Args:
    model: a variant, such as 'L/16'; '' is the checkpoint's.
    dataset: of the table, any TFDS name, or a path to your own (docs/data.md).
    resolution: of the images, in pixels; position embeddings are interpolated.
      0 is 384 or, of the model that is named here, the next that its patches
      divide: 392 for 'H/14'.
    batch_size: global.
    method: 'full', 'probe' or 'layer_decay'.
  """
  if method not in METHODS:
    raise ValueError(
        f'Unknown method {method!r}. Known: {", ".join(METHODS)}.')
  resolution = resolution or usual_resolution(model)
  name = pretrain.without_version(dataset)
  total, rates, held_out, split = TABLE_4.get(name, OTHERS)
  # Table 2, at 512 and 518 pixels: Polyak averaging with factor 0.9999.
  averaged = name == 'imagenet2012' and resolution >= 512
  return ConfigDict({
      'total': total,
      'batch_size': batch_size,
      'averaging': 0.9999 if averaged else None,
      'model': {'variant': model, 'dtype': 'bfloat16', 'remat': 'attention'},
      'data': {
          'source': dataset, 'split': split, 'resolution': resolution,
          'train_ops': [{'op': 'inception_crop'}, {'op': 'flip'}],
          'eval_ops': [{'op': 'resize'}],
      },
      'optimizer': {
          'name': 'sgd', 'momentum': 0.9, 'momentum_dtype': 'bfloat16',
          'learning_rate': rates[2], 'clip_norm': 1.0,
          'schedule': {'name': 'cosine', 'warmup': {'percent': 5}},
          **METHODS[method],
      },
      'evals': {'test': {'every': {'percent': 10}}},
      'checkpoint': {'every': {'percent': 10}},
      'sweep': {
          'grid': {'optimizer': {'learning_rate': list(rates)}},
          'held_out': held_out, 'seeds': 3,
      },
  })


def usual_resolution(model: str) -> int:
  """Returns 384, or the next above that divides into the model's patches."""
  patch = model.rpartition('/')[2]
  side = int(patch) if patch.isdigit() else 1
  return -(-384 // side) * side
