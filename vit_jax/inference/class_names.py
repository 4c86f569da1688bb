"""Class names that a caller gives for a model, in the order of its outputs."""

from collections.abc import Sequence
import dataclasses

from vit_jax import classes
from vit_jax import console
from vit_jax.inference import model as model_lib
from vit_jax.weights import weights as weights_lib


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
  if labels == tuple(names):
    return model
  if sorted(labels) == sorted(set(names)):
    order = [labels.index(name) for name in names]
    reordered = model.with_outputs(order)
    return _named(
        reordered.with_params(reordered.read(), thresholds=tuple(
            model.thresholds[i] for i in order if model.thresholds)),
        names, f'reordered the outputs: {classes.shorten(names)}')
  if any(new != old and new in labels for old, new in zip(labels, names)):
    classes.match(
        classes.Classes('the given list', count, names),
        classes.Classes('the model', count, labels, model.origin))
  return _named(model, names, f'named by index: {classes.shorten(names)}')


def _named(
    model: model_lib.Model, names: Sequence[str], how: str) -> model_lib.Model:
  """Returns the model with these names; `how` is the last note."""
  return dataclasses.replace(
      model, notes=(*model.notes, how),
      settings={**model.settings, 'labels': weights_lib.GIVEN},
      preprocess=dataclasses.replace(model.preprocess, labels=tuple(names)))
