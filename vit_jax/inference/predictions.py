"""Converts model outputs to named classes or named numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Integer
import numpy as np

from vit_jax import registry
from vit_jax import schema
from vit_jax.exceptions import UserError

ACTIVATIONS = {'softmax': jax.nn.softmax, 'sigmoid': jax.nn.sigmoid}


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The most probable classes of an image, in descending order.

  Attributes:
    names: 'class 3' and so on if the model has no class names.
    probabilities: their probabilities.
    classes: their indices.
    decision: names of the predicted classes: those that reach the thresholds of
      the run, or the most probable one.
  """
  names: tuple[str, ...]
  probabilities: tuple[float, ...]
  classes: tuple[int, ...]
  decision: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
  """The regression targets predicted for an image.

  `names` are 'target 0' and so on if the model has no target names. `values`
  are in the units of the training labels.
  """
  names: tuple[str, ...]
  values: tuple[float, ...]


Result = Prediction | Estimate


def finite(
    outputs: Mapping[str, Any], sources: Sequence[Any], *, dtype: str,
    on_error: Callable[[Any, Exception], None] | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """Returns images whose outputs are finite, and these; reports the others.

  Args:
    outputs: outputs [batch, ...] by name; `layers` are not checked.
    sources: the images, without padding.
    dtype: of the model, for the message.
    on_error: called with each other image; None raises a `UserError` instead.
  """
  wrong = {row: name for row in range(len(sources))
           for name, value in outputs.items()
           if name != 'layers' and not np.isfinite(value[row]).all()}
  for row, name in wrong.items():
    error = UserError(
        f'the {name} of the model are not finite (NaN or infinity) for this '
        f'image. The weights are damaged, or overflow in {dtype}.')
    if on_error is None:
      raise error
    on_error(sources[row], error)
  rows = [row for row in range(len(sources)) if row not in wrong]
  # A slice without padding copies nothing.
  kept = slice(len(rows)) if len(rows) == len(sources) else rows
  return tuple(sources[row] for row in rows), {
      name: jax.tree.map(lambda x: x[:, kept], value) if name == 'layers'
      else value[kept] for name, value in outputs.items()}


def top_classes(
    logits: Float[Any, 'batch classes'], *, labels: Sequence[str],
    activation: str, top_k: int, thresholds: Sequence[float] = (),
) -> list[Prediction]:
  """Returns the most probable classes of each image.

  `thresholds` are those of the classes; () decides for the most probable one.

  Raises a `UserError` for an unknown activation or top_k < 1.
  """
  if top_k < 1:
    raise UserError(f'top_k must be at least 1, but is {top_k}.')
  schema.check_name(activation, list(ACTIVATIONS), what='activation')
  probabilities = ACTIVATIONS[activation](jnp.asarray(logits, jnp.float32))
  values, classes = jax.device_get(jax.lax.top_k(
      probabilities, min(top_k, probabilities.shape[-1])))
  decided = registry.load(registry.THRESHOLDS).decide(
      np.asarray(probabilities), thresholds) if thresholds else classes[:, :1]
  return named(values, classes, labels, decided)


def named(
    values: Float[np.ndarray, 'batch top'],
    classes: Integer[np.ndarray, 'batch top'], labels: Sequence[str],
    decided: Iterable[Integer[np.ndarray, '_']],
) -> list[Prediction]:
  """Returns the predictions of images by name; `decided` are indices."""
  def names(indices: Integer[np.ndarray, '_']) -> tuple[str, ...]:
    return tuple(labels[i] if i < len(labels) else f'class {i}'
                 for i in indices)

  return [Prediction(
      names=names(row), probabilities=tuple(map(float, value)),
      classes=tuple(map(int, row)), decision=names(chosen))
      for row, value, chosen in zip(classes, values, decided)]


def estimates(
    outputs: Float[Any, 'batch targets'], *, labels: Sequence[str],
) -> list[Estimate]:
  """Returns the predicted numbers of each image with their names."""
  values = np.asarray(outputs, np.float64)
  names = tuple(labels) or tuple(f'target {i}' for i in range(values.shape[-1]))
  return [Estimate(names, tuple(map(float, row))) for row in values]
