"""Class names that a caller gives for a model, in the order of its outputs."""

from collections.abc import Sequence
import dataclasses

import jax
import numpy as np

from vit_jax import classes
from vit_jax import console
from vit_jax.inference import model as model_lib
from vit_jax.models import factory
from vit_jax.weights import weights as weights_lib


def in_order(
    model: model_lib.Model, names: Sequence[str],
) -> model_lib.Model:
  """Returns the model with its classes in this order, if it has the same."""
  labels = model.preprocess.labels
  if labels == tuple(names) or sorted(labels) != sorted(set(names)):
    return model
  order = np.array([labels.index(name) for name in names])
  head = {name: jax.tree.map(lambda array: array[..., order], layer)
          if name in factory.CLASSIFIERS else layer
          for name, layer in model.params['head'].items()}
  reordered = model.with_params(
      {**model.params, 'head': head}, thresholds=tuple(
          model.thresholds[i] for i in order if model.thresholds))
  return _named(
      reordered, names, f'reordered the outputs: {classes.shorten(names)}')


def rename(
    model: model_lib.Model, names: Sequence[str],
) -> model_lib.Model:
  """Returns the model with these class names.

  The same names in another order reorder the outputs. New names are given to
  the outputs by their index.

  Raises:
    ValueError: if there are not as many names as classes, or a name
      belongs to a class with another index.
  """
  labels, count = model.preprocess.labels, model.config.num_classes
  if len(names) != count:
    raise ValueError(
        f'labels holds {console.format_count(len(names), "name")} (one a line),'
        f' but the model has {count:,} classes.')
  if sorted(labels) == sorted(set(names)):
    return in_order(model, names)
  if any(new != old and new in labels for old, new in zip(labels, names)):
    classes.match(
        classes.Classes('the given list', count, names),
        classes.Classes('the model', count, labels, model.origin),
        remedy='Give the same names in any order, which reorders the outputs, '
        'or a name for each class, in the order of the outputs.')
  return _named(model, names, f'named by index: {classes.shorten(names)}')


def _named(
    model: model_lib.Model, names: Sequence[str], how: str) -> model_lib.Model:
  """Returns the model with these names; `how` is the last note."""
  return dataclasses.replace(
      model, notes=(*model.notes, how),
      settings={**model.settings, 'labels': weights_lib.GIVEN},
      preprocess=dataclasses.replace(model.preprocess, labels=tuple(names)))
