"""Plot of the mean and range of a metric over several runs."""

from collections.abc import Mapping, Sequence

from etils import epath
import numpy as np

from vit_jax.analysis import plots

_LOG_SCALE_RATIO = 8  # Largest to smallest x.
_FEW_VALUES = 6  # Up to this many x values each have a tick.


def ranges(
    series: Mapping[str, Mapping[float, Sequence[float]]],
    path: epath.PathLike, *, xlabel: str, ylabel: str,
) -> None:
  """Plots the mean of the values at each x, with a bar for their range.

  Args:
    series: values by x, for each line label.
    path: file to write; the suffix determines the format (.png, .pdf, .svg).
    xlabel: label of x, which is logarithmic if it spans decades.
    ylabel: label of the values.
  """
  from matplotlib import ticker
  fig = plots.new_figure(6.4, 4.4)
  axes = fig.subplots()
  for i, (label, points) in enumerate(series.items()):
    x, values = zip(*sorted(points.items()))
    mean = np.array([np.mean(v) for v in values])
    axes.errorbar(
        x, mean, capsize=4, linewidth=1.6, markersize=6,
        yerr=[mean - [min(v) for v in values], [max(v) for v in values] - mean],
        fmt=f'{plots.MARKERS[i % len(plots.MARKERS)]}-',
        color=plots.COLOURS[i % len(plots.COLOURS)],
        label=plots.drawable(label))
  every_x = sorted({x for points in series.values() for x in points})
  if every_x[0] > 0 and every_x[-1] / every_x[0] >= _LOG_SCALE_RATIO:
    axes.set_xscale('log')
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter('{x:,.4g}')
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
  if len(every_x) <= _FEW_VALUES:
    axes.set_xticks(every_x, [f'{x:,.4g}' for x in every_x], minor=False)
    axes.minorticks_off()
  axes.set(
      xlabel=plots.drawable(xlabel), ylabel=plots.drawable(ylabel))
  plots.style(axes)
  fig.legend(loc='outside lower center', frameon=False, fontsize=10, ncols=3)
  plots.save(fig, path)
