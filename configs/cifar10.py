"""Training of a small ViT on CIFAR-10 from scratch.

    python main.py --config=configs/cifar10.py --workdir=runs/cifar10 \
        --config.data.data_dir=$HOME/tensorflow_datasets

`:recipe=page` (default) has the settings of the page "Implementing Vision
Transformer from scratch": AdamW, constant learning rate of 0.01, batch size
256, 100 epochs. `:recipe=best` trains a model of the same size (width 48, 4
layers, 4 heads, patch 4) for the same number of epochs with Muon, a cosine
schedule, batch size 128 and average pooling. `:recipe=resnet` trains a BiT
ResNet with 747,594 parameters. `:recipe=photos,epochs=16` fine-tunes the model
`photos` of this package. `:recipe=gpu,epochs=300` trains a ViT with 3,721,738
parameters: the dimensions of ViT-Lite-7/4 and the augmentations of CCT-7/3x1
(arXiv 2104.05704, github.com/SHI-Labs/Compact-Transformers), with Muon.

Hardware: one CPU core, 2 hours with --config.accumulation=16, which nearly
halves the time of a ViT because the activations of a microbatch fit into the
cache. `resnet` needs 7 minutes per epoch on two cores, with the environment
variable JAX_NUM_CPU_DEVICES=2 and without accumulation. `gpu` needs a GPU: 300
epochs take 22 PFLOP.
Expected test accuracy of `page`: 75.5 % (cited: the page), or 79.4 % with
--config.averaging=0.9995; of `best`: 84.3 %; of `photos,epochs=16`: 91.7 %; of
`resnet,epochs=20`, on 98 % of the training images: 90.2 % (measured:
docs/results.md). `gpu` has not been run; ViT-Lite-7/4 reaches 91.38 % in 200
epochs (cited: the repository above).
"""

from typing import Any

from ml_collections import ConfigDict

_VIT = {'width': 48, 'depth': 4, 'num_heads': 4, 'mlp_dim': 192, 'patch': 4,
        'unroll': 4}  # Faster than a loop on CPUs.


def _muon(learning_rate: float, *, warmup_percent: int) -> dict[str, Any]:
  return {
      'name': 'muon', 'learning_rate': learning_rate, 'weight_decay': 0.05,
      'clip_norm': 1.0,
      'schedule': {'name': 'cosine', 'warmup': {'percent': warmup_percent}}}


RECIPES: dict[str, dict[str, Any]] = {
    'page': {
        'batch_size': 256, 'resolution': 32,
        # The page has no norm after the last layer.
        'model': {**_VIT, 'pooling': 'cls', 'final_norm': False,
                  'layer_norm_epsilon': 1e-5},
        'train_ops': [{'op': 'inception_crop', 'area': [0.8, 1.0]},
                      {'op': 'flip'}],
        'optimizer': {
            'name': 'adam', 'learning_rate': 0.01, 'weight_decay': 0.01,
            'schedule': {'name': 'constant'}},
    },
    'best': {
        'batch_size': 128, 'resolution': 32,
        'model': {**_VIT, 'pooling': 'average'},
        'train_ops': [{'op': 'pad_crop'}, {'op': 'flip'}],
        'optimizer': _muon(0.01, warmup_percent=5),
    },
    'resnet': {
        # The root has stride 4, so images are enlarged.
        'batch_size': 128, 'resolution': 64,
        'model': {'name': 'resnet', 'unroll': 99, 'backbone': {
            # With width 32, the first group norms have one channel per group,
            # and accuracy after one epoch is 59 % instead of 71 %.
            'depths': [1, 2], 'width': 64,
            # Norms as in BiT.
            'preactivation': True, 'group_norm_epsilon': 1e-5,
            'std_epsilon': 0.0, 'variance_epsilon': 1e-10}},
        'train_ops': [{'op': 'pad_crop'}, {'op': 'resize'}, {'op': 'flip'}],
        'label_smoothing': 0.1,
        'optimizer': _muon(0.02, warmup_percent=10),
    },
    'photos': {
        'batch_size': 128, 'resolution': 32, 'accumulation': 8,
        'init': {'checkpoint': 'photos', 'new': ['head/.*']},
        'model': {'unroll': 7, 'remat': 'none'},
        'train_ops': [{'op': 'pad_crop'}, {'op': 'flip'}],
        'label_smoothing': 0.1,
        'optimizer': _muon(0.005, warmup_percent=5),
    },
    'gpu': {
        'batch_size': 512, 'resolution': 32,
        'model': {'width': 256, 'depth': 7, 'num_heads': 4, 'mlp_dim': 512,
                  'patch': 4, 'unroll': 7, 'pooling': 'average',
                  'stochastic_depth': 0.1, 'dtype': 'auto'},
        'train_ops': [
            {'op': 'inception_crop', 'area': [0.8, 1.0]}, {'op': 'flip'},
            {'op': 'randaugment', 'num_layers': 2, 'magnitude': 9}],
        'mixup': 0.8, 'cutmix': 1.0, 'label_smoothing': 0.1,
        'optimizer': _muon(0.004, warmup_percent=5),
    },
}


def get_config(epochs: int = 100, recipe: str = 'page') -> ConfigDict:
  """Returns the training config.

  Args:
    epochs: passes over the 50,000 training images.
    recipe: 'page', 'best', 'resnet', 'photos' or 'gpu'.
  """
  if recipe not in RECIPES:
    raise ValueError(
        f'recipe must be one of {", ".join(RECIPES)}, but is {recipe!r}.')
  row = RECIPES[recipe]
  return ConfigDict({
      'total': {'epochs': epochs},
      'batch_size': row['batch_size'],
      'accumulation': row.get('accumulation', 1),
      'init': row.get('init', {}),
      'model': row['model'],
      'data': {
          'source': 'cifar10', 'split': 'train',
          'resolution': row['resolution'], 'train_ops': row['train_ops'],
          'mixup': row.get('mixup', 0.0), 'cutmix': row.get('cutmix', 0.0),
          'cache_mib': 256,  # All 60,000 images.
      },
      'objective': {'label_smoothing': row.get('label_smoothing', 0.0)},
      'optimizer': row['optimizer'],
      'evals': {'test': {'split': 'test', 'every': {'epochs': 1}}},
      'checkpoint': {'every': {'epochs': 1}},
  })
