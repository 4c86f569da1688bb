"""Small ViTs, hybrids and BiT ResNets in three sizes, shared by figures.

    python main.py --config=configs/paper/families.py:family=hybrid \
        --workdir=runs/hybrid

Pre-trains one model on drawn shapes, or with `dataset=tiny_imagenet_40` on
photographs. The metric is the 5-shot accuracy of its frozen representation on
other datasets. Models of the same size have similar FLOPs.

Hardware: 2 CPU cores; a minute.
"""

from typing import Any

from ml_collections import ConfigDict

from configs.paper import small

SIZES = ('small', 'medium', 'large')
# About 1, 3 and 10 million multiply-adds at 16 x 16 pixels, 4 times that at 32.
ENCODERS = {
    'small': {'width': 32, 'depth': 4, 'mlp_dim': 128},
    'medium': {'width': 64, 'depth': 4, 'mlp_dim': 256},
    'large': {'width': 96, 'depth': 6, 'mlp_dim': 384, 'unroll': 6}}
RESNETS = {
    'small': {'depths': (1, 1), 'width': 32},
    'medium': {'depths': (4, 5), 'width': 32},
    'large': {'depths': (4, 4), 'width': 64}}
FAMILIES = ('ViT', 'hybrid', 'ResNet')
# Datasets of the 5-shot accuracy: test images per batch.
TRANSFER = {'shapes': {'digits': 120},
            'tiny_imagenet_40': {'cifar10': 125, 'flowers5': 83}}


def model(
    family: str, size: str, dataset: str = 'shapes') -> dict[str, Any]:
  """Returns the section `model`."""
  base = small.get_config(dataset).model.to_dict()
  if family == 'ResNet':
    # As in BiT.
    norms = {'preactivation': True, 'group_norm_epsilon': 1e-5,
             'std_epsilon': 0.0, 'variance_epsilon': 1e-10}
    return {'name': 'resnet', 'head_bias': base['head_bias'], 'unroll': 99,
            'backbone': {**RESNETS[size], **norms}}
  encoder = ENCODERS[size]
  if family == 'hybrid':
    # A ResNet root and one unit (stride 4) replace one layer.
    depth = encoder['depth'] - 1
    return {**base, **encoder, 'depth': depth, 'unroll': depth, 'patch': 1,
            'backbone': {'depths': (1,), 'width': 32}}
  return {**base, **encoder}


def get_config(
    family: str = 'ViT', size: str = 'medium', dataset: str = 'shapes',
) -> ConfigDict:
  """Returns the config that pre-trains one model.

  Args:
    family: 'ViT', 'hybrid' or 'ResNet'.
    size: 'small', 'medium' or 'large'.
    dataset: 'shapes' or 'tiny_imagenet_40'.
  """
  config = base(dataset)
  config.model = model(family, size, dataset)
  return config


def base(dataset: str = 'shapes') -> ConfigDict:
  """Returns the pre-training config without the section `model`."""
  config = small.get_config(dataset)
  del config.model
  if dataset != 'shapes':
    config.batch_size = 128
    config.evals.test.split = 'validation'
  config.evals.update({
      name: {'name': 'fewshot', 'source': name, 'split': 'test', 'shots': [5],
             'batch_size': batch}
      for name, batch in TRANSFER[dataset].items()})
  return config
