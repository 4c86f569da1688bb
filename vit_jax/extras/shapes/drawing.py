"""Procedurally drawn strokes: a labelled dataset that needs no files.

An image is a pure function of (seed, index): one stroke or two stacked ones.
Pixels are a soft threshold of the distance to points along the strokes.
"""

import dataclasses
import functools
import math
from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax.data import config as data_config
from vit_jax.data.sources import protocol
from vit_jax.data.sources import shapes as shapes_lib

TEST_OFFSET = 2**48  # The first index of `test`, so splits are disjoint.

COLOURS = {  # The ink colours come first.
    'black': (5, 5, 5), 'white': (250, 250, 250), 'red': (225, 35, 35),
    'green': (35, 165, 60), 'blue': (45, 75, 225), 'yellow': (240, 215, 40),
    'purple': (150, 50, 190), 'orange': (245, 135, 25)}
TEXTURES = ('plain', 'gradient', 'stripes')


def _arc(start: float, stop: float) -> list[tuple[float, float]]:
  """Returns points of a circle; 0 degrees is right, 90 is down."""
  return [(.9 * math.cos(a), .9 * math.sin(a))
          for a in np.radians(np.linspace(start, stop, 14))]


# Polylines in [-1, 1], x right and y down. Only the first 15 are stacked.
_STROKES: dict[str, list[list[tuple[float, float]]]] = {
    'vertical line': [[(0, -1), (0, 1)]],
    'horizontal line': [[(-1, 0), (1, 0)]],
    'rising line': [[(-.8, .9), (.8, -.9)]],
    'falling line': [[(-.8, -.9), (.8, .9)]],
    'arc open left': [_arc(-110, 110)], 'arc open right': [_arc(70, 290)],
    'arc open up': [_arc(-20, 200)], 'arc open down': [_arc(160, 380)],
    'ring': [_arc(0, 360)], 'plus': [[(0, -1), (0, 1)], [(-1, 0), (1, 0)]],
    'diagonal cross': [[(-.8, -.9), (.8, .9)], [(-.8, .9), (.8, -.9)]],
    'lower left corner': [[(-.7, -1), (-.7, .9), (.8, .9)]],
    'lower right corner': [[(.7, -1), (.7, .9), (-.8, .9)]],
    'upper left corner': [[(-.7, 1), (-.7, -.9), (.8, -.9)]],
    'upper right corner': [[(.7, 1), (.7, -.9), (-.8, -.9)]],
    'vee': [[(-.8, -.9), (0, .9), (.8, -.9)]],
    'square': [[(-.8, -.8), (.8, -.8), (.8, .8), (-.8, .8), (-.8, -.8)]],
}
KINDS, PARTS = tuple(_STROKES), tuple(_STROKES)[:15]
# Lower stroke -> upper strokes that would form a digit and are never stacked.
_DIGITS = {
    'arc open up': {'arc open down'}, 'plus': {'lower left corner'},
    'lower right corner': {'ring'},
    'vertical line': {'vertical line', 'arc open up', 'lower left corner',
                      'horizontal line', 'upper right corner', 'ring'},
    'lower left corner': {'arc open left', 'arc open down'},
    'horizontal line': {'arc open left', 'arc open down'},
    'arc open left': {'arc open left', 'upper left corner', 'horizontal line',
                      'ring'},
    'ring': {'vertical line', 'rising line', 'arc open right',
             'upper left corner', 'ring'},
    'rising line': {'horizontal line', 'upper right corner', 'ring'}}
STACKS = tuple(
    (i, j) for i, upper in enumerate(PARTS) for j, lower in enumerate(PARTS)
    if upper not in _DIGITS.get(lower, ()))


def class_names(config: shapes_lib.ShapesConfig) -> tuple[str, ...]:
  """Returns the names of the classes in the order of their indices."""
  if config.label == 'single':
    return KINDS
  return (*(f'{place} {part}' for place in ('upper', 'lower')
            for part in PARTS), *(f'{name} shape' for name in COLOURS),
          *(f'{name} background' for name in TEXTURES))


def open_source(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Opens the source 'shapes', with images of the size of the batch."""
  del name
  section, names = config.shapes, class_names(config.shapes)
  return protocol.DatasetSplits(
      {'train': Shapes(section, config.size, section.num_examples, 0),
       'test': Shapes(
           section, config.size, section.num_test_examples, TEST_OFFSET)},
      num_classes=len(names), class_names=names,
      multi_label=section.label == 'multi')


@dataclasses.dataclass(frozen=True)
class Shapes(protocol.Source):
  """A split that begins at index `offset` of the dataset."""
  config: shapes_lib.ShapesConfig
  size: tuple[int, int]
  length: int
  offset: int

  def __len__(self) -> int:
    return self.length

  def __getitem__(self, index: int) -> dict[str, Any]:
    return draw(self.config, self.offset + index, self.size)

  def key(self, index: int) -> str:
    return f'drawing {self.offset + index} of seed {self.config.seed}'

  @property
  def numbering(self) -> tuple[str, int]:
    return f'drawing of seed {self.config.seed}', self.offset


def draw(
    config: shapes_lib.ShapesConfig, index: int, size: tuple[int, int],
) -> dict[str, Any]:
  """Returns {'image': uint8 [height, width, 3], 'label': int or list}.

  `segmentation` is bool [height, width]: True on strokes.
  """
  u = np.random.Generator(np.random.Philox(key=[config.seed, index])).random(
      40, np.float32)
  single = config.label == 'single'
  options = [(i,) for i in range(len(KINDS))] if single else STACKS
  kinds: tuple[int, ...] = options[int(u[0] * len(options))]
  inked = u[1] < config.ink
  colour = int(_between(config.bright, 2 if inked else len(COLOURS), u[2]))
  texture = 0 if inked else int(u[3] * len(TEXTURES))
  paint = [*COLOURS.values()][colour] + 80 * u[4:7] - 40
  ground = 255 * (.2 if config.bright else .4) * (
      u[7:8] / 2 if inked else u[7:10])
  if not config.bright and paint.mean() <= 110:
    ground = 255 - ground
  y, x = (((2 * np.arange(side) + 1 - side) / min(size)).astype(np.float32)
          for side in size)  # In halves of the shorter side.
  if texture:
    pattern = math.cos(3 * u[36]) * x + math.sin(3 * u[36]) * y[:, None]
    if TEXTURES[texture] == 'stripes':
      pattern = np.sin(_between(5, 12, u[37]) * pattern + 6 * u[38])
    ground = ground + _between(25, 50, u[39]) * pattern[..., None]
  points = _place(kinds, u[10:34])
  distance = np.sqrt((np.square(y - points[:, 1:])[:, :, None]
                      + np.square(x - points[:, :1])[:, None]).min(0))
  # Half of the images are blurred, like small scans after enlargement.
  softness = max(1, 4 * u[34] - 1) * 2 / min(size)
  mask = (_between(.06, .17, u[35]) - distance) / softness + .5
  mask = np.minimum(np.maximum(mask, 0), 1)[..., None]
  image = np.minimum(np.maximum(ground + mask * (paint - ground), 0), 255)
  label = kinds[0] if single else [
      kinds[0], len(PARTS) + kinds[1], 2 * len(PARTS) + colour,
      2 * len(PARTS) + len(COLOURS) + texture]
  return {'image': image.astype(np.uint8), 'label': label,
          'segmentation': mask[..., 0] > .5}


def _between(low: Any, high: Any, u: Any) -> Any:
  return low + (high - low) * u


@functools.cache
def _templates(count: int) -> Float[np.ndarray, 'kinds points 4']:
  """Returns p = (x, y) at equal distances along each kind, and 1 - p**2."""
  kinds = []
  for lines in _STROKES.values():
    ends = np.concatenate(
        [np.stack([line[:-1], line[1:]], 1) for line in lines])
    lengths = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    along = np.linspace(0, lengths.sum() * (1 - 1e-9), count)
    part = np.searchsorted(np.cumsum(lengths), along, side='right')
    share = (along - np.cumsum(lengths)[part]) / lengths[part] + 1
    kinds.append(_between(ends[part, 0], ends[part, 1], share[:, None]))
  return np.concatenate([np.array(kinds), 1 - np.square(kinds)], -1)


def _place(
    kinds: tuple[int, ...], u: Float[np.ndarray, '24'],
) -> Float[np.ndarray, 'points 2']:
  """Bends strokes, stacks them, then rotates, scales and moves the whole."""
  scale, angle, slant, width, height, joint, *move = (u[:8] - .5).tolist()
  width, height = .85 + .5 * width, .925 + .25 * height
  cos, sin = math.cos(.4 * angle), math.sin(.4 * angle)
  affine = (.8 + .3 * scale) * np.array(
      [[width, 0], [-.6 * slant * width, height]]) @ [[cos, sin], [-sin, cos]]
  edges = (-1, 1) if len(kinds) == 1 else (-1, .4 * joint, 1)
  points = []
  for kind, low, high, v in zip(kinds, edges, edges[1:], u[8:].reshape(2, 8)):
    # Parabolas vary proportions and bend straight strokes.
    bend = np.concatenate([np.eye(2), (v[:4] - .5).reshape(2, 2) / 2])
    points.append(
        _templates(48 // len(kinds))[kind] @ bend
        * (_between(.55, 1, v[4]), (high - low) / 2)
        + (_between(-.1, .1, v[5]), (high + low) / 2))
  return (np.concatenate(points) @ affine + .24 * np.array(move)).astype(
      np.float32)
