"""Saves a model in our own format or another codebase's."""

import os

import numpy as np

from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax.exceptions import UserError
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file

ORBAX = 'orbax'
FORMATS = tuple(registry.WEIGHT_FORMATS)
DTYPES = ('float32', 'float16', 'bfloat16')


def save(
    target: str | os.PathLike, form: str, model: weights_lib.Weights, *,
    dtype: str = 'float32',
) -> list[str]:
  """Saves a model; `vit_jax.load` reads it back exactly.

  Args:
    target: a path, local or at gs://, that does not exist. npz: a file, next to
      which a .json is written; timm and orbax: a folder.
    form: one of `FORMATS`.
    model: the model.
    dtype: one of `DTYPES`; the type of the arrays in the file. Half precision
      rounds the parameters.

  Returns:
    Notes on settings for which the format's library computes differently.

  Raises:
    UserError: if `target` exists, the format cannot represent the model, or a
      parameter is not an array of finite floats.
  """
  schema.check_name(
      form, registry.available(registry.WEIGHT_FORMATS), what='format')
  schema.check_name(dtype, DTYPES, what='dtype')
  for name, array in tree.flatten(model.read()).items():
    array_file.to_float32(
        np.asarray(array), name=name, path='The model', stored_as=dtype)
  if form != ORBAX and model.preprocess.channels != 3:
    raise UserError(
        f'The model has {model.preprocess.channels} input channels, but the '
        f'format {form} supports three. Save it as orbax.')
  return registry.load(registry.WEIGHT_FORMATS[form])(
      target, model, dtype=dtype)
