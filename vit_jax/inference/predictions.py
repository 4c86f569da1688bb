"""What a model's logits say of a picture: its likeliest classes, or numbers."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from vit_jax import schema

ACTIVATIONS = {'softmax': jax.nn.softmax, 'sigmoid': jax.nn.sigmoid}


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The likeliest classes of a picture, the likeliest first.

  Attributes:
    names: of the classes; 'class 3' where the weights came without names.
    probabilities: of the classes.
    classes: their indices.
  """
  names: tuple[str, ...]
  probabilities: tuple[float, ...]
  classes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
  """The numbers that a model predicts of a picture.

  Attributes:
    names: of the targets; 'target 0' where the weights came without names.
    values: in the units of the labels that were learned.
  """
  names: tuple[str, ...]
  values: tuple[float, ...]


def likeliest(
    logits: Float[Any, 'batch classes'], *, labels: Sequence[str],
    activation: str, top_k: int,
) -> list[Prediction]:
  """Returns the likeliest classes of each picture.

  Args:
    logits: of the classes.
    labels: names of the classes, as far as known.
    activation: one of `ACTIVATIONS`.
    top_k: classes of each; all, where there are fewer.

  Raises:
    ValueError: if there is no such activation, or no class is asked for.
  """
  if top_k < 1:
    raise ValueError(f'top_k must be at least 1, but is {top_k}.')
  schema.check_name(activation, list(ACTIVATIONS), what='activation')
  probabilities = ACTIVATIONS[activation](jnp.asarray(logits, jnp.float32))
  values, classes = jax.device_get(jax.lax.top_k(
      probabilities, min(top_k, probabilities.shape[-1])))
  return [Prediction(
      names=tuple(_name(labels, int(i)) for i in row),
      probabilities=tuple(map(float, value)), classes=tuple(map(int, row)))
      for row, value in zip(classes, values)]


def estimates(
    outputs: Float[Any, 'batch targets'], *, labels: Sequence[str],
) -> list[Estimate]:
  """Returns the numbers of each picture, with the names of the targets."""
  values = np.asarray(outputs, np.float64)
  names = tuple(labels) or tuple(
      f'target {i}' for i in range(values.shape[-1]))
  return [Estimate(names, tuple(map(float, row))) for row in values]


def _name(labels: Sequence[str], index: int) -> str:
  return labels[index] if index < len(labels) else f'class {index}'
