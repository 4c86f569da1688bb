"""Small models of random weights, for what does not depend on what they are."""

import dataclasses

import jax
import numpy as np

from vit_jax import models
from vit_jax.inference import model as model_lib
from vit_jax.weights import convert
from vit_jax.weights.configs import preprocessing as preprocessing_lib

TINY = {'width': 12, 'depth': 2, 'mlp_dim': 20, 'num_heads': 2, 'patch': 8,
        'num_classes': 5}
HYBRID = {'backbone': {'depths': (1, 2)}, 'patch': 1}
RESNET = {'name': 'resnet', 'num_classes': 5, 'backbone': {
    'depths': (1, 2), 'width': 32, 'preactivation': True}}


def make(settings, *, side, **preprocess):
  """Returns a model.

  Args:
    settings: the section `model`.
    side: height and width of its images.
    **preprocess: more of what is done to them.
  """
  config = models.parse(settings)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
      lambda s: rng.normal(size=s.shape).astype(np.float32),
      convert.abstract_params(
          config, (side, side), channels=preprocess.get('channels', 3)))
  return model_lib.Model(
      config=config, params=params, resolution=(side, side),
      preprocess=preprocessing_lib.Preprocess(
          resolution=(side, side), **preprocess))


def make_tiny(**settings):
  """Returns a tiny model of which all is said that a file may say."""
  settings = settings if 'name' in settings else {**TINY, **settings}
  model = make(
      settings, side=32, mean=preprocessing_lib.IMAGENET_MEAN,
      std=preprocessing_lib.IMAGENET_STD, keep_aspect=True, crop=0.8,
      interpolation='bicubic',
      labels=tuple('abcde')[:settings.get('num_classes')])
  return dataclasses.replace(model, positions='cubic')
