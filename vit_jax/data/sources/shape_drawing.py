"""One drawn image of `shapes`, a pure function of (seed, index).

Every number of it comes from one stream, so the order in which they are drawn
is what an image is: another order is another data set.
"""

import dataclasses
from typing import Literal

from jaxtyping import Float, UInt8
import numpy as np

from vit_jax.data.sources import shape_kinds
from vit_jax.data.sources import shape_looks
from vit_jax.data.sources import shape_masks

Arrangement = Literal['scattered', 'stacked']


@dataclasses.dataclass(frozen=True, eq=False)
class Drawing:
  """An image, and what is on it.

  Attributes:
    image: the pixels.
    kinds: scattered, entries of `shape_kinds.KINDS`, that of the main shape
      first; stacked, two entries of `shape_kinds.STACKED_KINDS`.
    colour: of the shapes, an entry of `shape_looks.COLOURS`.
    texture: of the ground, an entry of `shape_looks.TEXTURES`.
  """
  image: UInt8[np.ndarray, 'height width 3']
  kinds: tuple[int, ...]
  colour: int
  texture: int


def draw(
    seed: int, index: int, *, size: tuple[int, int], arrangement: Arrangement,
    max_others: int, ink: float, bright: bool,
) -> Drawing:
  """Draws an image.

  Args:
    seed: of the data set.
    index: of the image.
    size: its height and width.
    arrangement: these and the others are of `shapes.ShapesConfig`.
    max_others: smaller shapes beside the main one, at most.
    ink: share of the images without colour and texture.
    bright: whether shapes are always bright on dark.
  """
  rng = np.random.Generator(np.random.Philox(key=[seed, index]))
  # One call for all numbers: a call for each would take half of the time.
  numbers = iter(rng.random(32 + 32 * (1 + max_others)).tolist())

  def uniform(low: float, high: float) -> float:
    return low + (high - low) * next(numbers)

  def choose(count: int) -> int:
    return int(count * next(numbers))

  inked = next(numbers) < ink
  texture = 0 if inked else choose(len(shape_looks.TEXTURES))
  colours = [i for i, name in enumerate(shape_looks.COLOURS)
             if (not (bright and name == 'black')
                 and (not inked or name in ('white', 'black')))]
  colour = colours[choose(len(colours))]
  paint = shape_looks.vary(
      tuple(shape_looks.COLOURS.values())[colour], uniform)
  ground = shape_looks.contrast(
      tuple(uniform(0, 255) for _ in range(3)), paint, grey=inked,
      bright=bright)
  image = shape_looks.textured(
      ground, shape_looks.TEXTURES[texture], size, uniform, rng)
  if arrangement == 'scattered':
    image, kinds = _scatter(image, paint, uniform, max_others=max_others)
  else:
    image, kinds = _stack(image, paint, uniform)
  return Drawing(
      np.clip(image, 0, 255).astype(np.uint8), kinds, colour, texture)


def _scatter(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    uniform: shape_kinds.Uniform, *, max_others: int,
) -> tuple[Float[np.ndarray, 'height width 3'], tuple[int, ...]]:
  """Paints a main shape and perhaps others; returns their kinds as well."""
  size, names = image.shape[:2], shape_kinds.KINDS
  kind = int(uniform(0, len(names)))
  kinds = [kind]
  # Small ones first: the main shape lies on top.
  crowded = uniform(0, 1) < 0.4
  num_others = int(uniform(0, max_others + 1)) if crowded else 0
  for _ in range(num_others):
    other = int(uniform(0, len(names)))
    mask = shape_masks.of_kind(
        names[other], size, uniform, scale=uniform(0.2, 0.45), spread=0.65)
    image = _paste(image, paint, mask)
    kinds.append(other)
  mask = shape_masks.of_kind(
      names[kind], size, uniform,
      scale=uniform(0.6, 0.95) if num_others == 0 else uniform(0.5, 0.7),
      spread=0.15)
  return _paste(image, paint, mask), tuple(kinds)


def _stack(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    uniform: shape_kinds.Uniform,
) -> tuple[Float[np.ndarray, 'height width 3'], tuple[int, ...]]:
  """Paints a stroke above another; returns which ones as well."""
  upper, lower = shape_kinds.STACKS[int(uniform(0, len(shape_kinds.STACKS)))]
  mask = shape_masks.of_stack((upper, lower), image.shape[:2], uniform)
  kinds = (shape_kinds.STACKED_KINDS.index(f'upper {upper}'),
           shape_kinds.STACKED_KINDS.index(f'lower {lower}'))
  return _paste(image, paint, mask), kinds


def _paste(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    mask: Float[np.ndarray, 'height width 1'],
) -> Float[np.ndarray, 'height width 3']:
  return image + mask * (paint - image)
