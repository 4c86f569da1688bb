"""Checks that parameters and preprocessing suit a model."""

from collections.abc import Mapping
import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import tree
from vit_jax.data import preprocessing
from vit_jax.models import factory
from vit_jax.models import model_config
from vit_jax.weights.formats import array_file


def check_preprocess(
    config: model_config.ModelConfig, preprocess: preprocessing.Preprocess,
) -> None:
  """Raises if preprocessing does not suit the model.

  Raises:
    ValueError: if images do not divide into patches, or the number of labels
      is not the number of classes.
  """
  config.grid(preprocess.resolution)
  labels = len(preprocess.labels)
  if labels and labels != config.num_classes:
    raise ValueError(
        f'{labels} labels, but the head has {config.num_classes} classes.')


def check_params(
    config: model_config.ModelConfig, params: Mapping[str, Any],
    resolution: tuple[int, int], *, path: str,
    theirs: Mapping[str, str] | None = None, channels: int = 3,
) -> None:
  """Checks that parameters have exactly the names and shapes of the model.

  Raises:
    ValueError: with the expected and found shapes.
  """
  expected = abstract_params(config, resolution, channels=channels)
  lines = []
  for line in tree.differences(expected, tree.unflatten(params)):
    name = (theirs or {}).get(line.split(':')[0], '')
    lines.append(f'{name} -> {line}' if name else line)
  if lines:
    raise ValueError(
        f'{path} does not contain the parameters of the model:\n'
        + array_file.indented(lines) + '\nIf the model is right, the file is '
        'incomplete. If not, override its settings: load(path, depth=..., '
        'num_classes=..., final_norm=False)' + (
            ", and position='sincos' for fixed sine-cosine embeddings, as in "
            "big_vision, or 'none' if the model adds no embeddings."
            if expected.get('positions') is not None and 'positions' not in
            params else '.'))


@functools.lru_cache(maxsize=64)  # Tracing takes half a second.
def abstract_params(
    config: model_config.ModelConfig, resolution: tuple[int, int], *,
    channels: int = 3,
) -> Any:
  """Returns the shapes of a model's parameters, as a nested dict."""
  # The shapes do not depend on kernels that only some devices support.
  model = factory.build(
      config.without_fused_kernels(), num_classes=config.num_classes)
  images = jax.ShapeDtypeStruct((1, *resolution, channels), 'float32')
  return nn.unbox(jax.eval_shape(
      lambda: factory.init(model, jax.random.key(0), images)))


def add_empty_head(
    config: model_config.ModelConfig, params: Mapping[str, Any],
) -> dict[str, Any]:
  """Adds a head with zero classes if the weights have no head."""
  if any(name.startswith('head/') for name in params):
    return dict(params)
  heads = factory.CLASSIFIERS[:1 + config.distill_token]
  return {**params, **{
      f'{head}{end}': np.zeros(shape, np.float32) for head in heads
      for end, shape in (('kernel', (config.output_width, 0)), ('bias', (0,)))}}


def check_num_heads(variant: str, declared: int) -> None:
  """Compares the heads of a variant with those that weights declare.

  Arrays without an axis of heads fit any number, but compute other outputs.

  Raises:
    ValueError: if the numbers differ.
  """
  heads = getattr(factory.parse({'variant': variant}), 'num_heads', 0)
  if heads and declared and heads != declared:
    raise ValueError(
        f'The variant {variant} has num_heads={heads}, but the weights declare '
        f'num_heads={declared}. Leave out the variant, or set num_heads, too.')
