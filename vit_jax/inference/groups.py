"""Groups of images of the same size, if a model keeps their aspect ratio."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
import numpy as np

# Rows of images of one size, and their padded batch.
Group = tuple[list[int], Float[np.ndarray, 'batch height width channels']]


def by_size(arrays: Sequence[np.ndarray], *, size: int) -> list[Group]:
  """Groups images [height, width, channels] of the same height and width.

  A group is padded with zeros to `size` images, or, if there are several, to a
  power of two, so that few shapes are compiled.
  """
  groups: dict[tuple[int, ...], list[int]] = {}
  for row, array in enumerate(arrays):
    groups.setdefault(array.shape, []).append(row)

  def batch(rows: list[int]) -> np.ndarray:
    length = size if len(groups) == 1 else 1 << (len(rows) - 1).bit_length()
    padding = ((0, length - len(rows)), (0, 0), (0, 0), (0, 0))
    return np.pad(np.stack([arrays[row] for row in rows]), padding)

  return [(rows, batch(rows)) for rows in groups.values()]


def in_order(
    groups: Sequence[tuple[Sequence[int], dict[str, Any]]],
) -> dict[str, Any]:
  """Returns outputs of groups of rows in the order of the rows.

  Outputs [batch, ...] become an array of objects if their shapes differ between
  groups.
  """
  if len(groups) == 1:
    return groups[0][1]
  order = np.argsort([row for rows, _ in groups for row in rows])
  result = {}
  for name in groups[0][1]:
    values = [value for rows, outputs in groups
              for value in outputs[name][:len(rows)]]
    same = len({value.shape for value in values}) == 1
    result[name] = (np.stack(values) if same else
                    np.fromiter(values, object, len(values)))[order]
  return result
