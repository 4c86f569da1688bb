"""Small models of random weights, for what does not depend on what they are."""

import jax
import numpy as np

from vit_jax import model as model_lib
from vit_jax import models
from vit_jax.checkpoints import formats
from vit_jax.interop import preprocess as preprocess_lib


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
      formats.abstract_params(
          config, (side, side), channels=preprocess.get('channels', 3)))
  return model_lib.Model(
      config=config, params=params, resolution=(side, side),
      preprocess=preprocess_lib.Preprocess(
          resolution=(side, side), **preprocess))
