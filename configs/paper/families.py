"""Small ViTs, hybrids and BiT ResNets in three sizes, shared by figures.

    python main.py --config=configs/paper/families.py:family=hybrid \
        --workdir=runs/hybrid

Pre-trains one model on drawn shapes. The metric is the 5-shot accuracy of its
frozen representation on digits. Models of the same size have similar FLOPs.

Hardware: 2 CPU cores; a minute.
"""

from typing import Any

from ml_collections import ConfigDict

from configs.paper import small

SIZES = ('small', 'medium', 'large')
# About 1, 3 and 10 million multiply-adds per image of 16 x 16 pixels.
ENCODERS = {
    'small': {'width': 32, 'depth': 4, 'mlp_dim': 128},
    'medium': {'width': 64, 'depth': 4, 'mlp_dim': 256},
    'large': {'width': 96, 'depth': 6, 'mlp_dim': 384, 'unroll': 6}}
RESNETS = {
    'small': {'depths': (1, 1), 'width': 32},
    'medium': {'depths': (4, 5), 'width': 32},
    'large': {'depths': (4, 4), 'width': 64}}
FAMILIES = ('ViT', 'hybrid', 'ResNet')


def model(family: str, size: str) -> dict[str, Any]:
  """Returns the section `model`."""
  if family == 'ResNet':
    # Norms as in BiT.
    return {'name': 'resnet', 'head_bias': -2.5, 'unroll': 99, 'backbone': {
        **RESNETS[size], 'preactivation': True, 'group_norm_epsilon': 1e-5,
        'std_epsilon': 0.0, 'variance_epsilon': 1e-10}}
  base = small.get_config('shapes').model.to_dict()
  encoder = ENCODERS[size]
  if family == 'hybrid':
    # A ResNet root and one unit (stride 4) replace one layer.
    depth = encoder['depth'] - 1
    return {**base, **encoder, 'depth': depth, 'unroll': depth, 'patch': 1,
            'backbone': {'depths': (1,), 'width': 32}}
  return {**base, **encoder}


def get_config(family: str = 'ViT', size: str = 'medium') -> ConfigDict:
  """Returns the config that pre-trains one model on drawn shapes.

  Args:
    family: 'ViT', 'hybrid' or 'ResNet'.
    size: 'small', 'medium' or 'large'.
  """
  config = base()
  config.model = model(family, size)
  return config


def base() -> ConfigDict:
  """Returns the pre-training config without the section `model`."""
  config = small.get_config('shapes')
  del config.model
  config.evals.fewshot = {
      'name': 'fewshot', 'source': 'digits', 'split': 'test', 'shots': [5],
      'batch_size': 120}
  return config
