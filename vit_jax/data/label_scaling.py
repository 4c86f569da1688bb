"""Standardisation of regression targets.

Targets are learned as (label - mean) / std of the training split; predictions
are scaled back to the label's unit. Missing targets are NaN.
"""

from collections.abc import Sequence
import math
from typing import Any

from jaxtyping import Float32, Float64
import numpy as np


def check_scale(mean: Sequence[float], std: Sequence[float]) -> None:
  """Raises ValueError for different lengths, or a std that is not positive."""
  if len(mean) != len(std) or not all(
      math.isfinite(m) and 0 < s < math.inf for m, s in zip(mean, std)):
    raise ValueError(
        'target_mean must have one finite number per target and target_std '
        f'positive ones, but they are {tuple(mean)} and {tuple(std)}. Remove '
        'both to measure them.')


def standardise(
    label: Any, targets: Sequence[str], *, mean: Sequence[float],
    std: Sequence[float],
) -> Float32[np.ndarray, 'targets']:
  """Returns (label - mean) / std; NaN (missing) stays NaN.

  Computed in float64: float32 would round Unix times to minutes.

  Raises:
    ValueError: if the number of targets differs.
  """
  if len(mean) != len(targets):
    raise ValueError(
        f'data.target_mean has {len(mean)} numbers, but there are '
        f'{len(targets)} targets: {", ".join(targets)}. Remove target_mean and '
        'target_std to measure them.')
  values = to_vector(label, targets)
  return ((values - np.asarray(mean)) / np.asarray(std)).astype(np.float32)


def to_vector(
    label: Any, targets: Sequence[str]) -> Float64[np.ndarray, 'targets']:
  """Returns a label as a vector; raises ValueError if it is invalid."""
  values = np.asarray(label, np.float64)
  if values.shape != (len(targets),):
    raise ValueError(
        f'its label has the shape {values.shape}, but there are '
        f'{len(targets)} targets: {", ".join(targets)}.')
  if np.isinf(values).any():
    raise ValueError(
        f'its label {values.tolist()} is not finite. Use NaN or an empty cell '
        'for a missing value.')
  return values
