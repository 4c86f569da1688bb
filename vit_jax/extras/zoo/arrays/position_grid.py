"""Grid of the position embeddings in a file."""

import math
from typing import Any

from vit_jax.exceptions import UserError


def position_grid(
    config: Any, count: int, *, num_prefix: int,
    embeds_prefix: bool | None,
    declared: tuple[int, int] | None, stored: tuple[int, int] | None,
    requested: tuple[int, int] | None, offsets: bool = False,
) -> tuple[tuple[int, int], int]:
  """Returns the grid of position embeddings, and the embeddings before it.

  Args:
    config: the ViT.
    count: number of position embeddings, or of offsets.
    num_prefix: position embeddings of tokens before the patches, if there are
      any.
    embeds_prefix: whether there are any; None if unknown.
    declared: image size of the position embeddings, if a config declares it.
    stored: image size of the weights, which the embeddings may belong to; if
      not, the grid is square if it can be.
    requested: image size of the caller, which decides in other cases. It is not
      first: 576 embeddings are 24 x 24, but also fit images of 288 x 512.
    offsets: whether there is one for each offset in rows and columns.

  Raises:
    UserError: if no grid fits, or two do.
  """
  prefixes = dict.fromkeys(
      prefix for prefix, possible in (
          (num_prefix, embeds_prefix is not False),
          (0, not embeds_prefix)) if possible)
  registers = getattr(config, 'registers', 0)
  tokens = (f'(class tokens: {config.num_prefix - registers}, registers: '
            f'{registers})')

  def fit(resolution: tuple[int, int]) -> tuple[tuple[int, int], int] | None:
    try:
      rows, columns = config.grid(resolution)
    except UserError:
      return None
    prefix = count - ((2 * rows - 1) * (2 * columns - 1) if offsets
                      else rows * columns)
    return ((rows, columns), prefix) if prefix in prefixes else None

  for resolution in filter(None, (declared, stored)):
    if found := fit(resolution):
      return found
  if declared:
    raise UserError(
        f'{count} position embeddings {tokens} do not belong to images of '
        f'{declared[0]}x{declared[1]}.')
  squares = {prefix: math.isqrt(count - prefix) for prefix in prefixes
             if count > prefix
             and math.isqrt(count - prefix) ** 2 == count - prefix}
  if len(squares) != 1:
    if requested and (found := fit(requested)):
      return found
    grids = ' or '.join(f'{n}x{n}' for n in squares.values()) or 'not square'
    raise UserError(
        f'The grid of {count} position embeddings {tokens} is {grids}. Set the '
        'image size that they are for: resolution=(height, width).')
  (prefix, side), = squares.items()
  side = (side + 1) // 2 if offsets else side
  return (side, side), prefix
