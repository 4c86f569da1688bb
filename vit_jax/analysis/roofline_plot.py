"""The picture of a step's parts: how near each is to what it could be."""

from collections.abc import Sequence
import dataclasses

from etils import epath
import numpy as np

from vit_jax.analysis import plots


@dataclasses.dataclass(frozen=True)
class Point:
  """A part of a step.

  Attributes:
    name: of the part.
    flops: that it takes.
    num_bytes: that it must read and write.
    secs: that it took.
    bound_secs: the least that it could.
  """
  name: str
  flops: float
  num_bytes: float
  secs: float
  bound_secs: float


def roofline(
    points: Sequence[Point], path: epath.PathLike, *, title: str,
    flops_per_sec: float, bytes_per_sec: float,
) -> None:
  """Draws the parts under their roofs, and beside it the time of each.

  Parts without matrix products have no place under the roofs: they are in the
  right half alone.

  Args:
    points: the parts, in the order of a step.
    path: picture to write; the suffix says the format (.png, .pdf, .svg).
    title: of the picture.
    flops_per_sec: of the flat roof.
    bytes_per_sec: of the slope.
  """
  from matplotlib import figure

  fig = figure.Figure(figsize=(10.5, 4.2), dpi=150, layout='constrained')
  roofs, bars = fig.subplots(1, 2, width_ratios=(1.15, 1))
  fig.suptitle(title, fontsize=11, x=0.01, ha='left', fontweight='bold')
  _draw_roofs(roofs, points, flops_per_sec, bytes_per_sec)
  _draw_bars(bars, points)
  for axes in (roofs, bars):
    axes.grid(True, color='#E5E5E5', linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)
  plots.save(fig, path)


def _draw_roofs(
    axes, points: Sequence[Point], flops_per_sec: float,
    bytes_per_sec: float,
) -> None:
  dots = [p for p in points if p.flops]
  intensities = np.array([p.flops / p.num_bytes for p in dots])
  speeds = np.array([p.flops / p.secs for p in dots])
  ridge = flops_per_sec / bytes_per_sec
  low = min(ridge, intensities.min()) / 3
  high = max(ridge, intensities.max()) * 3
  x = np.geomspace(low, high, 200)
  axes.loglog(
      x, np.minimum(flops_per_sec, x * bytes_per_sec) / 1e9, color='#000000',
      linewidth=1.8)
  for i, (point, intensity, speed) in enumerate(
      zip(dots, intensities, speeds)):
    axes.loglog(
        intensity, speed / 1e9, linestyle='none', markersize=8,
        marker=plots.MARKERS[i % len(plots.MARKERS)], label=point.name,
        color=plots.COLOURS[i % len(plots.COLOURS)])
  axes.set_xlabel('operations a byte that must be moved')
  axes.set_ylabel('GFLOP/s')
  axes.set_xlim(low, high)
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_formatter(lambda value, _: f'{value:,g}')
  axes.legend(frameon=False, fontsize=8, loc='lower right')


def _draw_bars(axes, points: Sequence[Point]) -> None:
  y = np.arange(len(points))
  axes.barh(y, [1e3 * p.secs for p in points], color=plots.COLOURS[4],
            height=0.6, label='taken')
  axes.barh(y, [1e3 * p.bound_secs for p in points], color=plots.COLOURS[0],
            height=0.6, label='the least it could')
  for place, point in zip(y, points):
    axes.annotate(
        f'{point.bound_secs / point.secs:.0%}',
        (1e3 * max(point.secs, point.bound_secs), place),
        xytext=(4, 0), textcoords='offset points', va='center', fontsize=8)
  axes.set_yticks(y, [p.name for p in points], fontsize=8)
  axes.invert_yaxis()
  axes.margins(x=0.12)
  axes.set_xlabel('ms of a step')
  axes.legend(frameon=False, fontsize=8, loc='lower right')
