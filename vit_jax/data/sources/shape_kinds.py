"""The kinds of shape that `shapes` draws, each as the points of its strokes.

`STROKES` are lines, `FILLED` are outlines of areas, and `RANDOM` go through
points that are drawn anew each time. `STACKS` are the pairs of strokes that may
be joined, one above the other.
"""

from collections.abc import Callable
import functools
import math

from jaxtyping import Float
import numpy as np

Points = Float[np.ndarray, 'points 2']  # x to the right, y down, in [-1, 1].
Uniform = Callable[[float, float], float]  # Draws a number between two.


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

# The strokes that are stacked.
PARTS = (
    'vertical line', 'horizontal line', 'rising line', 'falling line',
    'arc open left', 'arc open right', 'arc open up', 'arc open down', 'ring',
    'plus', 'diagonal cross', 'lower left corner', 'lower right corner',
    'upper left corner', 'upper right corner')
STACKED_KINDS = (
    *(f'upper {part}' for part in PARTS), *(f'lower {part}' for part in PARTS))
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


def outline(kind: str, uniform: Uniform) -> tuple[Points, tuple[int, ...]]:
  """Returns the points of a kind, and where its strokes end."""
  if kind not in RANDOM:
    return template(kind)
  # The first and last points lie apart, so that most curves fill their box.
  corners = np.array([
      (uniform(-1, 1), y + uniform(-.35, .35)) for y in (-.65, -.2, .2, .65)])
  points = corners if kind == 'polyline' else _bernstein() @ (corners * 1.4)
  return points, (len(points),)


@functools.cache
def template(kind: str) -> tuple[Points, tuple[int, ...]]:
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
