"""Training curves of one or several runs."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools
import math
from typing import Any

from etils import epath

from vit_jax import metrics as metrics_lib
from vit_jax.extras import plots

Rows = Sequence[Mapping[str, Any]]

_LOG_SCALE_RATIO = 30  # Largest to smallest loss.
_PANEL_INCHES = 2.8  # Readable when a page shrinks three panels to 800 pixels.
# Smallest range of an axis, so that noise does not fill it: of fractions, and
# of other metrics relative to their largest value.
_FRACTION_RANGE, _RELATIVE_RANGE = 0.1, 0.1
_LEARNING_RATE = metrics_lib.Metric('learning_rate', 'Learning rate')


@dataclasses.dataclass(frozen=True)
class _Series:
  """A metric of a run, from training ('train') or an evaluator."""
  run: str
  name: str
  metric: str
  steps: Sequence[float]
  values: Sequence[float]


def draw(
    runs: Mapping[str, Rows], path: epath.PathLike, *,
    declared: Iterable[metrics_lib.Metric],
) -> None:
  """Plots the metrics with a title, such as the loss, and the learning rate.

  Each run has its colour, and each evaluator its marker.

  Training is a dashed line; each evaluator is a solid line with markers.

  Args:
    runs: rows by run name; each row holds `step` and metrics such as
      'train/loss' or 'val/accuracy'.
    path: file to write; the suffix determines the format (.png, .pdf, .svg).
    declared: metrics of the runs, in the order of their panels.

  Raises:
    ValueError: if no row holds any of the metrics.
  """
  shown: dict[str, metrics_lib.Metric] = {}
  for one in (*declared, _LEARNING_RATE):
    if one.title:
      shown.setdefault(one.name, one)
  series = _collect(runs, shown)
  if not series:
    raise ValueError(
        'Nothing to draw: expected rows with a metric such as train/loss or '
        f'val/accuracy in the run(s) {", ".join(runs) or "(none)"}.')
  metrics = [m for m in shown if any(s.metric == m for s in series)]
  colours = dict(zip(runs, itertools.cycle(plots.COLOURS)))
  markers = dict(zip(dict.fromkeys(
      s.name for s in series if s.name != 'train'),
                     plots.MARKERS * len(series)))
  fig, panels = plots.new_panels(
      len(metrics), columns=3, width=_PANEL_INCHES, height=2.8)
  for axes, metric in zip(panels, metrics):
    drawn = [s for s in series if s.metric == metric]
    for s in drawn:
      axes.plot(s.steps, s.values, color=colours[s.run],
                **_line_style(s, markers))
    axes.set_xlabel('step')
    _format_panel(
        axes, shown[metric], [value for s in drawn for value in s.values])
  _draw_legend(fig, colours, series, markers)
  plots.save(fig, path)


def _collect(
    runs: Mapping[str, Rows], shown: Mapping[str, metrics_lib.Metric],
) -> list[_Series]:
  found = []
  for run, rows in runs.items():
    for key in dict.fromkeys(key for row in rows for key in row):
      name, _, metric = key.rpartition('/')
      points = [(row['step'], row[key]) for row in rows
                if name and metric in shown and key in row
                and math.isfinite(row[key])]
      if points:
        found.append(_Series(run, name, metric, *zip(*points)))
  return found


def _format_panel(
    axes: Any, metric: metrics_lib.Metric, values: Sequence[float]) -> None:
  from matplotlib import ticker
  axes.set_title(
      plots.drawable(metric.title), fontsize=12, loc='left', fontweight='bold')
  plots.style(axes)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(
      nbins=4, integer=True, min_n_ticks=1))
  axes.xaxis.set_major_formatter('{x:,.0f}')
  if metric == metrics_lib.LOSS and min(values) > 0 and (
      max(values) / min(values) > _LOG_SCALE_RATIO):
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
  low, high = axes.get_ylim()
  if metric.is_fraction:
    high = min(high, 1.005)
    least = _FRACTION_RANGE
  else:
    least = _RELATIVE_RANGE * max(map(abs, values))
  if axes.get_yscale() == 'linear':
    axes.set_ylim(min(low, high - least), high)
  if metric == _LEARNING_RATE:
    axes.set_ylim(bottom=0)
  # Complete labels instead of a factor above the axis.
  axes.yaxis.set_major_formatter('{x:.4g}')
  if metric.is_fraction:
    plots.percent(axes.yaxis)
  if metric.name == 'r2':  # Untrained, it is arbitrarily low.
    axes.set_ylim(bottom=max(-1, axes.get_ylim()[0]))


def _draw_legend(
    fig: Any, colours: Mapping[str, Any], series: Sequence[_Series],
    markers: Mapping[str, str],
) -> None:
  """Draws a legend of runs and evaluators below the panels."""
  from matplotlib import lines
  names = {s.name: s for s in series}
  handles = [
      lines.Line2D([], [], color=colour, linewidth=4,
                   label=plots.drawable(run))
      for run, colour in colours.items()]
  handles += [
      lines.Line2D([], [], color='#555555', label=plots.drawable(name), **{
          **_line_style(names[name], markers), 'markevery': 1})
      for name in ('train', *markers) if name in names]
  plots.legend(fig, handles)


def _line_style(
    series: _Series, markers: Mapping[str, str]) -> dict[str, Any]:
  count = len(series.steps)
  if series.name == 'train':
    return {'linewidth': 1.2, 'linestyle': (0, (4, 1.5))}
  return {'linewidth': 1.8, 'markersize': 4.5, 'marker': markers[series.name],
          'markevery': max(1, count // 12)}
