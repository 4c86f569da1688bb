"""How the shapes of `shapes` and their ground look: colours and textures."""

import functools
import math

from jaxtyping import Float
import numpy as np

from vit_jax.data.sources import shape_kinds

COLOURS: dict[str, tuple[int, int, int]] = {
    'white': (250, 250, 250), 'black': (5, 5, 5), 'red': (225, 35, 35),
    'green': (35, 165, 60), 'blue': (45, 75, 225), 'yellow': (240, 215, 40),
    'purple': (150, 50, 190), 'orange': (245, 135, 25)}

TEXTURES = ('plain', 'gradient', 'stripes', 'checks', 'noise')


def vary(colour: tuple[int, ...], uniform: shape_kinds.Uniform) -> np.ndarray:
  """Returns a colour near this one."""
  shift = uniform(-25, 25)
  return np.array([c + shift + uniform(-15, 15) for c in colour], np.float32)


def contrast(
    colour: tuple[float, ...], other: np.ndarray, *, grey: bool, bright: bool,
) -> np.ndarray:
  """Returns the colour made dark beside a bright one, bright beside a dark.

  Where all shapes are `bright`, it is made dark beside any.
  """
  red, green, blue = other.tolist()
  brightness = 0.3 * red + 0.59 * green + 0.11 * blue
  if grey:  # Paper is mostly near white or near black.
    colour = (0.5 * colour[0],) * 3
  # Of the range that the ground may take, away from the paint.
  share = 0.2 if bright else 0.4
  if bright or brightness > 110:
    return np.array([c * share for c in colour], np.float32)
  return np.array([255 - c * share for c in colour], np.float32)


def textured(
    colour: np.ndarray, texture: str, size: tuple[int, int],
    uniform: shape_kinds.Uniform, rng: np.random.Generator,
) -> Float[np.ndarray, 'height width 3']:
  """Returns an image of the colour with a pattern of light and dark on it."""
  angle, frequency = uniform(0, math.pi), uniform(5, 12)
  strength, phase = uniform(25, 50), uniform(0, 6)
  if texture == 'plain':
    return np.broadcast_to(colour, (*size, 3))
  if texture == 'noise':
    # At half the resolution: grains that survive a blur.
    coarse = rng.random(
        ((size[0] + 1) // 2, (size[1] + 1) // 2), dtype=np.float32) * 2 - 1
    grains = coarse.repeat(2, 0).repeat(2, 1)[:size[0], :size[1]]
    return colour + (strength * grains)[..., None]
  y, x = _coordinates(size)
  along = math.cos(angle) * x + math.sin(angle) * y
  if texture == 'gradient':
    pattern = along
  elif texture == 'stripes':
    pattern = np.sin(frequency * along + phase)
  else:
    assert texture == 'checks', texture
    across = math.cos(angle) * y - math.sin(angle) * x
    pattern = np.sign(np.sin(frequency * along + phase)
                      * np.sin(frequency * across))
  return colour + (strength * pattern)[..., None]


@functools.cache
def _coordinates(size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
  """Returns y [height, 1] and x [1, width], in [-1, 1]."""
  height, width = size
  return (np.linspace(-1, 1, height, dtype=np.float32)[:, None],
          np.linspace(-1, 1, width, dtype=np.float32)[None, :])
