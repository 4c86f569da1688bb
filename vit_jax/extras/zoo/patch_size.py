"""A model with another patch size (FlexiViT, arXiv 2212.08013, section 3.4)."""

import dataclasses
from typing import Any

from vit_jax import schema
from vit_jax.data import preprocessing
from vit_jax.extras.zoo import interpolation
from vit_jax.inference import model as model_lib
from vit_jax.weights import check
from vit_jax.weights import overrides


def resize(
    model: model_lib.Model, patch: Any, resolution: Any,
) -> model_lib.Model:
  """Resizes the patch embedding; `resolution` is None to keep that of images.

  Raises:
    ValueError: if the model has no patch embedding of images, or the images do
      not divide into patches.
  """
  given = overrides.parse({'patch': patch} | (
      {'resolution': resolution} if resolution else {}))
  config: Any = model.config
  if not config.has_patches:
    raise ValueError(f'patch={patch!r}: only a plain ViT has a patch embedding '
                     'of images that can be resized. Leave it out.')
  new = dataclasses.replace(
      config, variant='', patch=schema.convert(
          given.model['patch'], int | tuple[int, int], where='patch'))
  filters = model.params['patches']['kernel']
  preprocess = preprocessing.override(model.preprocess, given.preprocess)
  check.check_preprocess(new, preprocess)
  params = {**model.params, 'patches': {
      **model.params['patches'],
      'kernel': interpolation.resize_filters(filters, new.patch_shape)}}
  return model.with_params(
      params, config=config if config.patch_shape == new.patch_shape else new,
      # The grid of the position embeddings is the same.
      resolution=new.image_size(config.grid(model.resolution)),
      preprocess=preprocess)
