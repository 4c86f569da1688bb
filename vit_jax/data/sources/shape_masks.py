"""How much of each pixel a shape of `shapes` covers.

A kind's points are bent, placed and drawn with a pen, larger than the image,
which is then reduced.
"""

import math

from jaxtyping import Float
import numpy as np
from PIL import Image
from PIL import ImageDraw

from vit_jax.data.sources import shape_kinds

_SUPERSAMPLING = 2  # Shapes are drawn this much larger, then reduced.


def of_kind(
    kind: str, size: tuple[int, int], uniform: shape_kinds.Uniform, *,
    scale: float, spread: float,
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
  points, ends = shape_kinds.outline(kind, uniform)
  turned = kind in shape_kinds.TURNED or kind in shape_kinds.RANDOM
  points = _place(
      _bend(points, uniform), uniform, scale=scale * half,
      turn=math.pi if turned else 0.3)
  points += (width / 2 + half * uniform(-spread, spread),
             height / 2 + half * uniform(-spread, spread))
  canvas = Image.new('L', (width, height))
  pen = ImageDraw.Draw(canvas)
  thickness = half * max(0.09, uniform(0.12, 0.42) * scale)
  if kind in shape_kinds.FILLED:
    pen.polygon(points.ravel().tolist(), fill=255)
  else:
    first = 0
    for last in ends:
      _stroke(pen, points[first:last].ravel().tolist(), thickness)
      first = last
  return _develop(canvas, size, uniform)


def of_stack(
    pair: tuple[str, str], size: tuple[int, int],
    uniform: shape_kinds.Uniform,
) -> Float[np.ndarray, 'height width 1']:
  """Returns the coverage of each pixel by a stroke above another."""
  height, width = (side * _SUPERSAMPLING for side in size)
  half = min(height, width) / 2
  scale, joint = half * uniform(.65, .95), uniform(-.2, .2)
  strokes = []
  for part, top, bottom in zip(pair, (-1, joint), (joint, 1)):
    points, ends = shape_kinds.template(part)
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
  return _develop(canvas, size, uniform)


def _bend(
    points: shape_kinds.Points, uniform: shape_kinds.Uniform,
) -> shape_kinds.Points:
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
    points: shape_kinds.Points, uniform: shape_kinds.Uniform, *, scale: float,
    turn: float,
) -> shape_kinds.Points:
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
    canvas: Image.Image, size: tuple[int, int], uniform: shape_kinds.Uniform,
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
