"""Labels that are numbers: what they are learned as, and how that is measured.

A network learns a number best where it is about as large as its weights. Each
target is therefore learned as (label - mean) / std of the training split, and
what a model answers is brought back to the label's own unit.
"""

from collections.abc import Sequence
import math
from typing import Any

from jaxtyping import Float32, Float64
import numpy as np

from vit_jax.data.sources import protocol


def check_scale(mean: Sequence[float], std: Sequence[float]) -> None:
  """Raises where what targets are standardised by cannot be.

  Raises:
    ValueError: for one without the other, or a std that divides by nothing.
  """
  if len(mean) != len(std):
    raise ValueError(
        f'target_mean and target_std are a number for each target, but are '
        f'{len(mean)} and {len(std)}. Leave both out to measure them.')
  if not all(math.isfinite(m) for m in mean) or not all(
      0 < s < math.inf for s in std):
    raise ValueError(
        'target_mean must be finite and target_std positive, but are '
        f'{tuple(mean)} and {tuple(std)}.')


def standardise(
    label: Any, targets: Sequence[str], *, mean: Sequence[float],
    std: Sequence[float],
) -> Float32[np.ndarray, 'targets']:
  """Returns (label - mean) / std; NaN, which is not known, stays NaN.

  In float64 until it is small: of a year in seconds, float32 loses minutes.

  Raises:
    ValueError: if there are not as many numbers as targets.
  """
  if len(mean) != len(targets):
    raise ValueError(
        f'data.target_mean is {tuple(mean)}, but the labels are '
        f'{len(targets)} numbers ({", ".join(targets)}). Give one for each, or '
        'leave target_mean and target_std out to measure them.')
  values = _vector(label, targets)
  return ((values - np.asarray(mean)) / np.asarray(std)).astype(np.float32)


def measure(
    source: protocol.Source, targets: Sequence[str], *, name: str,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns mean and standard deviation of each target; reads every label.

  Args:
    source: examples of the training split.
    targets: names of what labels hold.
    name: of the split, for messages.

  Raises:
    ValueError: for a target that is nowhere known, or everywhere the same:
      there is nothing to learn of it.
  """
  values = np.empty((len(source), len(targets)))
  for index in range(len(source)):
    try:
      values[index] = _vector(source.label(index), targets)
    except ValueError as error:
      raise ValueError(
          f'Example {index} of {name} ({source.key(index)}): {error}'
      ) from error
  known = ~np.isnan(values)
  for target, column, is_known in zip(targets, values.T, known.T):
    if not is_known.any():
      raise ValueError(
          f'The target {target!r} is not known of any example of {name}. Leave '
          'it out, or add its values.')
    if np.ptp(column[is_known]) == 0:
      raise ValueError(
          f'The target {target!r} is {column[is_known][0]:g} in all of {name}: '
          'there is nothing to learn. Leave it out, or give '
          'data.target_mean and data.target_std.')
  return (tuple(map(float, np.nanmean(values, axis=0))),
          tuple(map(float, np.nanstd(values, axis=0))))


def _vector(
    label: Any, targets: Sequence[str]) -> Float64[np.ndarray, 'targets']:
  values = np.asarray(label, np.float64)
  if values.shape != (len(targets),):
    raise ValueError(
        f'its label has the shape {values.shape}, but there are '
        f'{len(targets)} targets: {", ".join(targets)}.')
  if np.isinf(values).any():
    raise ValueError(
        f'its label is {values.tolist()}, which is not finite. Write NaN, or '
        'leave it empty, where a value is not known.')
  return values
