"""A data set that is drawn: any number of images, of any size, no download.

Each image holds one main shape and perhaps smaller ones, on a background. Most
kinds of shape are strokes (lines, arcs, hooks, junctions, loops, spirals):
telling them apart takes the geometry of strokes, which is also what
handwriting is made of, so a model pre-trained here has something to transfer.
Half of the images are ink (grey levels, plain ground, at times drawn coarsely
and enlarged, as small scans are); half are coloured and textured.

Stacked, an image holds two strokes instead, one joined above the other, with a
label for each and its place: what a small model learns from in minutes, since
its labels are dense and tell what is where.

An image is a pure function of (seed, index): nothing is stored.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any, Literal

from jaxtyping import Float, UInt8
import numpy as np
from PIL import Image
from PIL import ImageDraw

Points = Float[np.ndarray, 'points 2']  # x to the right, y down, in [-1, 1].

# Indices of the test split start here: the splits never share an image.
_TEST_OFFSET = 2**48
_SUPERSAMPLING = 2  # Shapes are drawn this much larger, then reduced.


@dataclasses.dataclass(frozen=True)
class ShapesConfig:
  """The section `data.shapes`.

  Attributes:
    num_examples: images in the split `train`.
    num_test_examples: images in the split `test`.
    label: 'multi' for a list of the kinds, colours and textures that
      are present; 'single' for the kind of the main shape.
    arrangement: 'scattered', a main shape with others beside it, or 'stacked',
      a stroke above another; the latter's label is 'multi'.
    max_others: smaller shapes beside the main one, at most.
    ink: share of the images without colour and texture.
    bright: always bright on dark. Where either may be the darker, no patch
      says anything by itself, and a small ViT is long in getting started.
    size: of the drawn image, one side or (height, width); default: the
      section's resolution.
    seed: of the drawing; another seed is another data set.
  """
  num_examples: int = 100_000
  num_test_examples: int = 2_000
  label: Literal['multi', 'single'] = 'multi'
  arrangement: Literal['scattered', 'stacked'] = 'scattered'
  max_others: int = 2
  ink: float = 0.5
  bright: bool = False
  size: int | tuple[int, int] | None = None
  seed: int = 0

  def __post_init__(self):
    if min(self.num_examples, self.num_test_examples) < 1:
      raise ValueError(
          'num_examples and num_test_examples must be positive; got '
          f'{self.num_examples} and {self.num_test_examples}.')
    if self.max_others < 0:
      raise ValueError(f'max_others cannot be negative; got {self.max_others}.')
    if not 0 <= self.ink <= 1:
      raise ValueError(f'ink is a share in [0, 1]; got {self.ink}.')
    if self.arrangement == 'stacked' and self.label == 'single':
      raise ValueError(
          "The two strokes of arrangement 'stacked' have no single label. Use "
          "label 'multi', or arrangement 'scattered'.")
    if self.seed < 0:
      raise ValueError(f'seed cannot be negative; got {self.seed}.')


# ---------------------------------------------------------- the kinds of shape


def _arc(
    start: float, stop: float, *, x: float = 0, y: float = 0, rx: float = 1,
    ry: float = 1, points: int = 14,
) -> list[tuple[float, float]]:
  """Returns points of an ellipse from one angle to another, in degrees.

  0 is to the right, 90 down.
  """
  angles = np.radians(np.linspace(start, stop, points))
  return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def _spiral(turns: float, points: int = 30) -> list[tuple[float, float]]:
  t = np.linspace(0.1, 1, points)
  return [(r * math.cos(2 * math.pi * turns * r),
           r * math.sin(2 * math.pi * turns * r)) for r in t]


def _wave(periods: float, height: float) -> list[tuple[float, float]]:
  return [(x, height * math.sin(math.pi * periods * x))
          for x in np.linspace(-1, 1, 18)]


def _star(inner: float) -> list[tuple[float, float]]:
  return [(r * math.sin(a), -r * math.cos(a)) for r, a in (
      (1 if i % 2 == 0 else inner, math.pi * i / 5) for i in range(11))]


_SQUARE = [(-.8, -.8), (.8, -.8), (.8, .8), (-.8, .8), (-.8, -.8)]
_TRIANGLE = [(0, -.9), (.9, .8), (-.9, .8), (0, -.9)]

# Each kind as strokes in a unit square. What differs by a quarter turn or a
# mirror image is a kind of its own where shapes are turned only a little:
# which way an arc opens is a thing to learn. No kind is a digit or stands for
# one: what is learnt here are strokes, ends, corners, junctions and loops.
STROKES: dict[str, list[list[tuple[float, float]]]] = {
    'vertical line': [[(0, -1), (0, 1)]],
    'horizontal line': [[(-1, 0), (1, 0)]],
    'rising line': [[(-.8, .9), (.8, -.9)]],
    'falling line': [[(-.8, -.9), (.8, .9)]],
    'arc open left': [_arc(-110, 110, x=-.2, rx=.9)],
    'arc open right': [_arc(70, 290, x=.2, rx=.9)],
    'arc open up': [_arc(-20, 200, y=-.2, ry=.9)],
    'arc open down': [_arc(160, 380, y=.2, ry=.9)],
    'ring': [_arc(0, 360, rx=.9, ry=.9, points=24)],
    'gapped ring': [_arc(0, 300, rx=.9, ry=.9, points=22)],
    'plus': [[(0, -1), (0, 1)], [(-1, 0), (1, 0)]],
    'diagonal cross': [[(-.8, -.9), (.8, .9)], [(-.8, .9), (.8, -.9)]],
    'tee': [[(-.8, -.9), (.8, -.9)], [(0, -.9), (0, 1)]],
    'inverted tee': [[(-.8, .9), (.8, .9)], [(0, -1), (0, .9)]],
    'right tee': [[(-.5, -1), (-.5, 1)], [(-.5, 0), (.8, 0)]],
    'left tee': [[(.5, -1), (.5, 1)], [(.5, 0), (-.8, 0)]],
    'lower left corner': [[(-.7, -1), (-.7, .9), (.8, .9)]],
    'lower right corner': [[(.7, -1), (.7, .9), (-.8, .9)]],
    'upper left corner': [[(-.7, 1), (-.7, -.9), (.8, -.9)]],
    'upper right corner': [[(.7, 1), (.7, -.9), (-.8, -.9)]],
    'lower left hook': [
        [(.5, -1), (.5, .3)] + _arc(0, 170, x=-.1, y=.3, rx=.6, ry=.6)],
    'lower right hook': [
        [(-.5, -1), (-.5, .3)] + _arc(180, 10, x=.1, y=.3, rx=.6, ry=.6)],
    'upper left hook': [
        [(.5, 1), (.5, -.3)] + _arc(0, -170, x=-.1, y=-.3, rx=.6, ry=.6)],
    'upper right hook': [
        [(-.5, 1), (-.5, -.3)] + _arc(180, 350, x=.1, y=-.3, rx=.6, ry=.6)],
    'zigzag': [[(-.8, -.9), (.8, -.9), (-.8, .9), (.8, .9)]],
    'mirrored zigzag': [[(.8, -.9), (-.8, -.9), (.8, .9), (-.8, .9)]],
    'ess': [_arc(-20, -260, y=-.48, rx=.7, ry=.48)
            + _arc(-80, 150, y=.46, rx=.72, ry=.5)],
    'mirrored ess': [_arc(200, 440, y=-.48, rx=.7, ry=.48)
                     + _arc(260, 30, y=.46, rx=.72, ry=.5)],
    'wave': [_wave(1.3, .5)],
    'spiral': [_spiral(1.8)],
    'ring with tail': [_arc(0, 360, x=-.4, rx=.5, ry=.55, points=18)
                       + [(1, .1)]],
    'two rings': [_arc(0, 360, x=-.48, rx=.46, ry=.6, points=18),
                  _arc(0, 360, x=.48, rx=.46, ry=.6, points=18)],
    'two arcs': [_arc(175, 360, x=-.48, rx=.48, ry=.75)
                 + _arc(180, 365, x=.48, rx=.48, ry=.75)],
    'crossed line': [[(-1, 0), (1, 0)], [(.2, -.6), (.2, .6)]],
    'fork': [[(-.8, -1), (0, 0), (0, 1)], [(.8, -1), (0, 0)]],
    'vee': [[(-.8, -.9), (0, .9), (.8, -.9)]],
    'caret': [[(-.8, .9), (0, -.9), (.8, .9)]],
    'comb': [[(.7, -.9), (-.7, -.9), (-.7, .9), (.7, .9)], [(-.7, 0), (.6, 0)]],
    'ladder': [[(-.7, -.9), (-.7, .9)], [(.7, -.9), (.7, .9)],
               [(-.7, 0), (.7, 0)]],
    'bars': [[(-.9, -.45), (.9, -.45)], [(-.9, .45), (.9, .45)]],
    'outlined triangle': [_TRIANGLE],
    'outlined square': [_SQUARE],
}
FILLED: dict[str, list[tuple[float, float]]] = {
    'disc': _arc(0, 360, rx=.9, ry=.9, points=24),
    'square': _SQUARE,
    'triangle': _TRIANGLE,
    'star': _star(.45),
    'half disc': _arc(180, 360, y=.4, points=14),
}
# Drawn anew each time, through random points: straight, and as a curve.
RANDOM = ('polyline', 'curve')
KINDS = (*STROKES, *FILLED, *RANDOM)

# These come at any angle; the others are turned a little only.
TURNED = frozenset({
    'ring', 'gapped ring', 'wave', 'spiral', 'ring with tail', 'two rings',
    'two arcs', 'crossed line', 'fork', 'comb', 'ladder', 'bars',
    'outlined triangle', 'outlined square', 'square', 'triangle',
    'star', 'half disc'})

COLOURS: dict[str, tuple[int, int, int]] = {
    'white': (250, 250, 250), 'black': (5, 5, 5), 'red': (225, 35, 35),
    'green': (35, 165, 60), 'blue': (45, 75, 225), 'yellow': (240, 215, 40),
    'purple': (150, 50, 190), 'orange': (245, 135, 25)}

TEXTURES = ('plain', 'gradient', 'stripes', 'checks', 'noise')

# The strokes that are stacked.
PARTS = (
    'vertical line', 'horizontal line', 'rising line', 'falling line',
    'arc open left', 'arc open right', 'arc open up', 'arc open down', 'ring',
    'plus', 'diagonal cross', 'lower left corner', 'lower right corner',
    'upper left corner', 'upper right corner')
# Upper and lower strokes whose plain forms make up a digit are never stacked.
# (Bent and slanted, some of the other pairs come to resemble one all the same;
# none is ever labelled as a whole.)
_PLAIN_DIGITS: dict[int, tuple[tuple[str, str], ...]] = {
    0: (('arc open down', 'arc open up'),),
    1: (('vertical line', 'vertical line'),),
    2: (('arc open left', 'lower left corner'),
        ('arc open down', 'lower left corner'),
        ('arc open left', 'horizontal line'),
        ('arc open down', 'horizontal line')),
    3: (('arc open left', 'arc open left'),),
    4: (('arc open up', 'vertical line'), ('lower left corner', 'plus'),
        ('lower left corner', 'vertical line')),
    5: (('upper left corner', 'arc open left'),
        ('horizontal line', 'arc open left')),
    6: (('vertical line', 'ring'), ('rising line', 'ring'),
        ('arc open right', 'ring'), ('upper left corner', 'ring')),
    7: (('horizontal line', 'rising line'),
        ('horizontal line', 'vertical line'),
        ('upper right corner', 'rising line'),
        ('upper right corner', 'vertical line')),
    8: (('ring', 'ring'),),
    9: (('ring', 'vertical line'), ('ring', 'rising line'),
        ('ring', 'arc open left'), ('ring', 'lower right corner')),
}
STACKS = tuple(
    (upper, lower) for upper in PARTS for lower in PARTS
    if not any((upper, lower) in pairs for pairs in _PLAIN_DIGITS.values()))


def _with_looks(kinds: tuple[str, ...]) -> tuple[str, ...]:
  return (*kinds, *(f'{name} shape' for name in COLOURS),
          *(f'{name} background' for name in TEXTURES))


CLASS_NAMES = _with_looks(KINDS)
STACKED_CLASS_NAMES = _with_looks((
    *(f'upper {part}' for part in PARTS), *(f'lower {part}' for part in PARTS)))


def class_names(config: ShapesConfig) -> tuple[str, ...]:
  """Returns the names of the classes that the section's labels tell."""
  if config.label == 'single':
    return KINDS
  return CLASS_NAMES if config.arrangement == 'scattered' else (
      STACKED_CLASS_NAMES)


@functools.cache
def _template(kind: str) -> tuple[Points, tuple[int, ...]]:
  """Returns a kind's points, all strokes in a row, and where strokes end."""
  strokes = STROKES.get(kind) or [FILLED[kind]]
  ends = np.cumsum([len(stroke) for stroke in strokes])
  return np.concatenate(strokes).astype(np.float64), tuple(ends.tolist())


@functools.cache
def _bernstein(points: int = 16) -> Float[np.ndarray, 'points 4']:
  """Returns the weights of a cubic Bezier curve's four control points."""
  t = np.linspace(0, 1, points)[:, None]
  return np.array([1, 3, 3, 1]) * t ** np.arange(4) * (1 - t) ** (
      3 - np.arange(4))


def _outline(
    kind: str, uniform: Callable[[float, float], float],
) -> tuple[Points, tuple[int, ...]]:
  """Returns the points of a kind, and where its strokes end."""
  if kind not in RANDOM:
    return _template(kind)
  # The first and last points lie apart, so that most curves fill their box.
  corners = np.array([
      (uniform(-1, 1), y + uniform(-.35, .35)) for y in (-.65, -.2, .2, .65)])
  points = corners if kind == 'polyline' else _bernstein() @ (corners * 1.4)
  return points, (len(points),)


# ------------------------------------------------------------------- one image


@dataclasses.dataclass(frozen=True)
class Shapes:
  """The split as a source: `self[i]` draws example i.

  Attributes:
    config: the section.
    size: height and width of the images.
    length: number of examples.
    offset: index of the first in the numbering of the drawing.
  """
  config: ShapesConfig
  size: tuple[int, int]
  length: int
  offset: int

  def __len__(self) -> int:
    return self.length

  def __getitem__(self, index: int) -> dict[str, Any]:
    image, present, kind = draw(
        self.config, self.offset + index, size=self.size)
    if self.config.label == 'single':
      return {'image': image, 'label': kind}
    return {'image': image, 'label': present}

  def label(self, index: int) -> Any:
    return self[index]['label']

  def key(self, index: int) -> str:
    return f'drawing {self.offset + index} of seed {self.config.seed}'

  @property
  def numbering(self) -> tuple[str, int]:
    return f'drawing of seed {self.config.seed}', self.offset


def splits(config: ShapesConfig, *, size: tuple[int, int]) -> dict[str, Shapes]:
  """Returns the sources by split."""
  return {
      'train': Shapes(config, size, config.num_examples, 0),
      'test': Shapes(config, size, config.num_test_examples, _TEST_OFFSET)}


def draw(
    config: ShapesConfig, index: int, *, size: tuple[int, int],
) -> tuple[UInt8[np.ndarray, 'height width 3'], list[int], int]:
  """Draws image `index`.

  Returns:
    The pixels; the entries of `CLASS_NAMES`, or of `STACKED_CLASS_NAMES`, that
    are present; and the first of them: scattered, it is the kind of the main
    shape, an entry of `KINDS`.
  """
  rng = np.random.Generator(np.random.Philox(key=[config.seed, index]))
  # One call for all numbers: a call for each would take half of the time.
  numbers = iter(rng.random(32 + 32 * (1 + config.max_others)).tolist())

  def uniform(low: float, high: float) -> float:
    return low + (high - low) * next(numbers)

  def choose(count: int) -> int:
    return int(count * next(numbers))

  ink = next(numbers) < config.ink
  texture = 0 if ink else choose(len(TEXTURES))
  colours = [i for i, name in enumerate(COLOURS)
             if not (config.bright and name == 'black')]
  if ink:
    colours = [i for i in colours if tuple(COLOURS)[i] in ('white', 'black')]
  colour = colours[choose(len(colours))]
  paint = _vary(tuple(COLOURS.values())[colour], uniform)
  ground = _contrast(
      tuple(uniform(0, 255) for _ in range(3)), paint, grey=ink,
      bright=config.bright)
  image = _textured(ground, TEXTURES[texture], size, uniform, rng)
  compose = _scatter if config.arrangement == 'scattered' else _stack
  image, kinds, num_kinds = compose(
      image, paint, uniform, max_others=config.max_others)
  present = {*kinds, num_kinds + colour, num_kinds + len(COLOURS) + texture}
  return np.clip(image, 0, 255).astype(np.uint8), sorted(present), kinds[0]


def _scatter(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    uniform: Callable[[float, float], float], *, max_others: int,
) -> tuple[Float[np.ndarray, 'height width 3'], list[int], int]:
  """Paints a main shape and perhaps others; returns their kinds, of how many.
  """
  size = image.shape[:2]
  kind = int(uniform(0, len(KINDS)))
  kinds = [kind]
  # Small ones first: the main shape lies on top.
  crowded = uniform(0, 1) < 0.4
  num_others = int(uniform(0, max_others + 1)) if crowded else 0
  for _ in range(num_others):
    other = int(uniform(0, len(KINDS)))
    mask = _mask(KINDS[other], size, uniform, scale=uniform(0.2, 0.45),
                 spread=0.65)
    image = _paste(image, paint, mask)
    kinds.append(other)
  mask = _mask(
      KINDS[kind], size, uniform,
      scale=uniform(0.6, 0.95) if num_others == 0 else uniform(0.5, 0.7),
      spread=0.15)
  return _paste(image, paint, mask), kinds, len(KINDS)


def _stack(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    uniform: Callable[[float, float], float], *, max_others: int,
) -> tuple[Float[np.ndarray, 'height width 3'], list[int], int]:
  """Paints a stroke above another; returns which ones, of how many."""
  del max_others
  size = image.shape[:2]
  height, width = (side * _SUPERSAMPLING for side in size)
  half = min(height, width) / 2
  pair = STACKS[int(uniform(0, len(STACKS)))]
  scale, joint = half * uniform(.65, .95), uniform(-.2, .2)
  strokes = []
  for part, top, bottom in zip(pair, (-1, joint), (joint, 1)):
    points, ends = _template(part)
    points = _bend(points, uniform) * (uniform(.55, 1), (bottom - top) / 2)
    points = points + (uniform(-.1, .1), (bottom + top) / 2)
    strokes += np.split(points, ends[:-1])
  # Placed as one: what belongs together is turned and slanted together.
  placed = _place(np.concatenate(strokes), uniform, scale=scale, turn=0.2)
  placed += (width / 2 + half * uniform(-.12, .12),
             height / 2 + half * uniform(-.12, .12))
  canvas = Image.new('L', (width, height))
  pen = ImageDraw.Draw(canvas)
  thickness = max(0.09 * half, uniform(.14, .4) * scale)
  for points in np.split(placed, np.cumsum([len(p) for p in strokes[:-1]])):
    _stroke(pen, points.ravel().tolist(), thickness)
  image = _paste(image, paint, _develop(canvas, size, uniform))
  kinds = [PARTS.index(pair[0]), len(PARTS) + PARTS.index(pair[1])]
  return image, kinds, 2 * len(PARTS)


def _vary(
    colour: tuple[int, ...], uniform: Callable[[float, float], float],
) -> np.ndarray:
  shift = uniform(-25, 25)
  return np.array([c + shift + uniform(-15, 15) for c in colour], np.float32)


def _contrast(
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


@functools.cache
def _coordinates(size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
  """Returns y [height, 1] and x [1, width], in [-1, 1]."""
  height, width = size
  return (np.linspace(-1, 1, height, dtype=np.float32)[:, None],
          np.linspace(-1, 1, width, dtype=np.float32)[None, :])


def _textured(
    colour: np.ndarray, texture: str, size: tuple[int, int],
    uniform: Callable[[float, float], float], rng: np.random.Generator,
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


def _mask(
    kind: str, size: tuple[int, int],
    uniform: Callable[[float, float], float], *, scale: float, spread: float,
) -> Float[np.ndarray, 'height width 1']:
  """Returns the coverage of each pixel by one shape, in [0, 1].

  Args:
    kind: the shape.
    size: height and width of the image.
    uniform: draws a number.
    scale: half of the shape's extent, of half of the image's shorter side.
    spread: how far the centre may lie from the middle, in the same unit.
  """
  height, width = (side * _SUPERSAMPLING for side in size)
  half = min(height, width) / 2
  points, ends = _outline(kind, uniform)
  points = _place(
      _bend(points, uniform), uniform, scale=scale * half,
      turn=math.pi if kind in TURNED or kind in RANDOM else 0.3)
  points += (width / 2 + half * uniform(-spread, spread),
             height / 2 + half * uniform(-spread, spread))
  canvas = Image.new('L', (width, height))
  pen = ImageDraw.Draw(canvas)
  thickness = half * max(0.09, uniform(0.12, 0.42) * scale)
  if kind in FILLED:
    pen.polygon(points.ravel().tolist(), fill=255)
  else:
    first = 0
    for last in ends:
      _stroke(pen, points[first:last].ravel().tolist(), thickness)
      first = last
  return _develop(canvas, size, uniform)


def _bend(points: Points, uniform: Callable[[float, float], float]) -> Points:
  """Bends a shape within its bounds, so that its proportions vary.

  A parabola shifts the middle against the ends (a large loop over a short
  tail, or a small one over a long), a sine makes straight strokes curved.
  """
  shift = np.array([uniform(-.25, .25), uniform(-.25, .25)])
  sway = np.array([uniform(-.12, .12), uniform(-.12, .12)])
  phase = uniform(0, 2 * math.pi)
  return (points + shift * (1 - points**2)
          + sway * np.sin(2 * points[:, ::-1] + phase))


def _place(
    points: Points, uniform: Callable[[float, float], float], *, scale: float,
    turn: float,
) -> Points:
  """Stretches and slants a shape a little, turns it, and scales it.

  Args:
    points: of the shape.
    uniform: draws a number.
    scale: factor.
    turn: the largest angle, in radians.
  """
  angle, slant = uniform(-turn, turn), uniform(-.3, .3)
  stretch_x, stretch_y = uniform(.6, 1.1), uniform(.8, 1.05)
  cos, sin = math.cos(angle), math.sin(angle)
  rotate = np.array([[cos, sin], [-sin, cos]])
  stretch = np.array([[stretch_x, 0], [-slant * stretch_x, stretch_y]])
  return points @ (stretch @ rotate * scale)


def _stroke(
    pen: ImageDraw.ImageDraw, points: list[float], thickness: float,
) -> None:
  """Draws a line with round joints and round ends."""
  pen.line(points, fill=255, width=round(thickness),
           joint='curve' if thickness > 3 else None)
  radius = thickness / 2
  for x, y in ((points[0], points[1]), (points[-2], points[-1])):
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)


def _develop(
    canvas: Image.Image, size: tuple[int, int],
    uniform: Callable[[float, float], float],
) -> Float[np.ndarray, 'height width 1']:
  """Reduces the canvas to the image's size, half of the time over a detour.

  The detour is a grid down to half of the size: the look of a small scan
  that was enlarged, and of things out of focus.
  """
  height, width = size
  detour = uniform(0, 1) < 0.5
  coarseness = uniform(0.5, 1)
  if detour:
    canvas = canvas.resize(
        (max(4, round(width * coarseness)), max(4, round(height * coarseness))),
        Image.Resampling.BOX)
    canvas = canvas.resize((width, height), Image.Resampling.BILINEAR)
  else:
    canvas = canvas.reduce(_SUPERSAMPLING)
  return np.asarray(canvas, np.float32)[..., None] / 255


def _paste(
    image: Float[np.ndarray, 'height width 3'], paint: np.ndarray,
    mask: Float[np.ndarray, 'height width 1'],
) -> Float[np.ndarray, 'height width 3']:
  return image + mask * (paint - image)
