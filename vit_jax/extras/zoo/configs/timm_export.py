"""config.json that timm builds an exported model from."""

import math
from typing import Any

from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config as vit_config
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import resize_and_crop
from vit_jax.extras.zoo.configs import timm_architectures
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.weights import weights as weights_lib


def config_json(model: weights_lib.Weights) -> dict[str, Any]:
  """Returns the content of config.json.

  Raises:
    UserError: if timm has no architecture for the model.
  """
  config, preprocess = model.config, model.preprocess
  result: dict[str, Any] = {
      'num_classes': config.num_classes,
      'pretrained_cfg': {
          'num_classes': config.num_classes,
          'input_size': [3, *preprocess.resolution],
          'mean': list(preprocess.mean), 'std': list(preprocess.std),
          **_resize_and_crop(preprocess)}}
  if problem := huggingface.PROBLEM_TYPES.get(preprocess.activation):
    result['problem_type'] = problem  # For Transformers, which opens it, too.
  if preprocess.labels:
    result['label_names'] = list(preprocess.labels)
  if not isinstance(config, vit_config.BackboneConfig):
    return {**result, 'architecture': timm_architectures.find_resnet(config)}
  name, kind = timm_architectures.find(model)
  return {
      **result, 'architecture': name, 'num_features': config.width,
      'global_pool': timm_arguments.POOLING.get(config.pooling),
      # The arguments override the settings of this architecture.
      'model_args': timm_arguments.arguments(model, kind)}


def _resize_and_crop(preprocess: preprocessing.Preprocess) -> dict[str, Any]:
  """Returns the resize and crop in pretrained_cfg.

  Raises:
    UserError: if timm cannot express the operations.
  """
  resize = resize_and_crop.check(preprocess, 'timm')
  before = resize.least
  resolution = preprocess.resolution
  # timm resizes to int(side / crop_pct), which may round down to a pixel less.
  fraction = min(1.0, resolution[0] / before[0])
  while fraction and int(resolution[0] / fraction) < before[0]:
    fraction = math.nextafter(fraction, 0)
  sizes = tuple(int(side / fraction) for side in resolution)
  square = resolution[0] == resolution[1]
  if sizes != before or (resize.shorter and not square):
    raise UserError(
        f'timm cannot express the operations {preprocess.sections}: its '
        'central crop keeps the same fraction of both sides. Save the model as '
        'orbax or npz.')
  return {'crop_pct': fraction,
          'crop_mode': 'squash' if resize.size else 'center',
          'interpolation': resize.method}
