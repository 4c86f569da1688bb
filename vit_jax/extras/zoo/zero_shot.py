"""Zero-shot classification with text embeddings of CLIP or SigLIP.

  logits = scale * cosine(image embedding, text embedding) + bias

arXiv 2103.00020, section 3.1.2; 2303.15343, equation 1. The text embeddings
become the head of the model, so that all commands can use it. They are computed
elsewhere: docs/inference.md shows how.
"""

import dataclasses
import os
from typing import Any

import numpy as np

from vit_jax.exceptions import UserError
from vit_jax.extras.zoo import backbone_config
from vit_jax.inference import model as model_lib
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import npz

_KEYS = 'embeddings [classes, width] and labels [classes]'
_SCALE = 100.0  # Logit scale of the published CLIP models.


def attach(
    model: model_lib.Model, path: str | os.PathLike,
) -> model_lib.Model:
  """Returns a classifier whose head is the text embeddings of an .npz file.

  Args:
    model: an image tower; its head, if any, is the projection.
    path: file with `embeddings` [classes, width], `labels` [classes],
      and optionally the scalars `scale` (default: 100) and `bias`. With a bias,
      probabilities are sigmoids (SigLIP), otherwise a softmax.

  Raises:
    UserError: if the file is not of this form, or does not fit the model.
  """
  try:
    file = npz.open_file(os.fspath(path))
    arrays = {name: file.load(name) for name in file.shapes}
    texts = arrays['embeddings'].astype(np.float32)
    labels = tuple(map(str, arrays['labels'].tolist()))
    scale, bias = (float(arrays.get(key, default)) for key, default in (
        ('scale', _SCALE), ('bias', 0.0)))
    if texts.ndim != 2 or len(set(labels)) != len(texts):
      raise UserError(
          f'embeddings is {list(texts.shape)}, but there are '
          f'{len(set(labels))} different labels')
    lengths = np.linalg.norm(texts, axis=1, keepdims=True)
    if not (np.isfinite([scale, bias]).all() and (lengths > 0).all()
            and np.isfinite(lengths).all()):
      raise UserError('a value is not finite, or an embedding is zero')
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(
        f'Cannot read the text embeddings {os.fspath(path)}: '
        f'{str(error).removeprefix(f"{os.fspath(path)}: ")}. Expected '
        f'an .npz file with {_KEYS}, and optionally scale and bias.') from error
  config: Any = backbone_config.general(model.config)
  if not hasattr(config, 'cosine_head') or config.cosine_head:
    raise UserError(
        f'{model.origin} cannot use text embeddings: expected the ViT image '
        'tower of CLIP or SigLIP.')
  head = model.params['head']['dense']
  width = config.num_classes or head['kernel'].shape[0]
  if texts.shape[1] != width:
    raise UserError(
        f'The text embeddings {os.fspath(path)} have width {texts.shape[1]}, '
        f'but the image embeddings of {model.origin} have width {width}. Use '
        'the text tower of the same model.')
  params = {**model.params, 'head': {'dense': {
      'kernel': scale * (texts / lengths).T,
      'bias': np.full(len(texts), bias, np.float32)}}}
  if config.num_classes:
    params['projection'] = head
  return model.with_params(
      params, thresholds=(), config=dataclasses.replace(
          config, num_classes=len(texts), projection=config.num_classes,
          cosine_head=True),
      settings={**model.settings, 'labels': weights_lib.GIVEN},
      preprocess=dataclasses.replace(
          model.preprocess, labels=labels,
          activation='sigmoid' if 'bias' in arrays else 'softmax'))
