"""A model out, whole or not at all: in our own format or another codebase's."""

import os

import numpy as np

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.weights import files
from vit_jax.weights import orbax_runs
from vit_jax.weights import write as write_lib
from vit_jax.weights.configs import preprocessing as preprocessing_lib

ORBAX = 'orbax'
FORMATS = (*write_lib.FORMATS, ORBAX)


def write(
    target: str | os.PathLike,
    form: str,
    config: models.ModelConfig,
    params: types.Params,
    *,
    resolution: tuple[int, int],
    preprocess: preprocessing_lib.Preprocess,
    positions: str,
    origin: str,
) -> list[str]:
  """Writes a model.

  Args:
    target: a file or folder that does not exist, here or at gs://.
    form: one of `FORMATS`.
    config: of the model.
    params: nested dict of arrays.
    resolution: height and width that the positions are for.
    preprocess: what images go through.
    positions: how positions are resized: 'linear' or 'cubic'.
    origin: where the weights are from.

  Returns:
    Lines on what must be given to read it back, and on what the format's own
    library does otherwise.

  Raises:
    FileExistsError: if there is something at `target`.
    ValueError: if the format has no place for a part of the model, or a
      parameter is no array of finite floats.
  """
  schema.check_name(form, FORMATS, what='format')
  if form != ORBAX and preprocess.channels != 3:
    raise ValueError(
        f'The model takes images of {preprocess.channels} channels, and '
        f'{form} is of three. Save it as {ORBAX}.')
  for name, array in tree.flatten(params).items():
    files.to_float32(np.asarray(array), name=name, path='The model')
  if form == ORBAX:
    orbax_runs.write(
        target, config, params, resolution=resolution, preprocess=preprocess,
        positions=positions, origin=origin)
    return []
  return write_lib.write(
      target, form, config, params,  # type: ignore[arg-type]
      resolution=resolution, preprocess=preprocess, positions=positions)
