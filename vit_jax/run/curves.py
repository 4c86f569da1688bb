"""Training curves of one or several runs, and the style of all plots."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import io
import itertools
import math
import re
from typing import Any

from etils import epath

from vit_jax import atomic_files
from vit_jax import metrics as metrics_lib

Rows = Sequence[Mapping[str, Any]]

# Colour-blind safe palette of Okabe and Ito (https://jfly.uni-koeln.de/color)
# with a dark red instead of yellow, which is too pale for a thin line.
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00',
           '#000000', '#882255')
MARKERS = 'osD^vP'
_FONT = 'DejaVu Sans'  # Part of Matplotlib.
_DPI = 150
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


def curves(
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
  colours = dict(zip(runs, itertools.cycle(COLOURS)))
  markers = dict(zip(dict.fromkeys(
      s.name for s in series if s.name != 'train'), MARKERS * len(series)))
  fig, panels = new_panels(
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
  save(fig, path)


def new_figure(width: float, height: float, *, w_pad: float = 0.06) -> Any:
  """Returns a Matplotlib figure of a size in inches.

  Imported here, because importing Matplotlib takes a second. pyplot is
  avoided because its global state needs a display.
  """
  from matplotlib import figure
  from matplotlib import layout_engine
  return figure.Figure(
      figsize=(width, height), dpi=_DPI,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=w_pad, h_pad=0.06))


def new_panels(
    count: int, *, columns: int, width: float, height: float,
    title_inches: float = 0.0, w_pad: float = 0.06,
) -> tuple[Any, list[Any]]:
  """Returns a figure and its `count` panels, in rows of at most `columns`."""
  columns = min(columns, count)
  rows = -(-count // columns)
  fig = new_figure(
      width * columns, height * rows + title_inches, w_pad=w_pad)
  panels = list(fig.subplots(rows, columns, squeeze=False).flat)
  for axes in panels[count:]:
    axes.remove()
  return fig, panels[:count]


@functools.cache
def _find_font(character: str) -> str:
  """Returns the name of an installed font with a character, or ''."""
  from matplotlib import font_manager
  # These contain only boxes, or bitmaps that Matplotlib cannot draw.
  fonts = {font.fname: font.name for font in font_manager.fontManager.ttflist
           if not re.match('Last Resort|.*Color Emoji', font.name)}
  for path, name in sorted(
      fonts.items(), key=lambda font: (font[1] != _FONT, font[1])):
    if font_manager.get_font(path).get_char_index(ord(character)):
      return name
  return ''


def style(axes: Any, *, grid: bool = True) -> None:
  """Applies the common style: no frame, and a pale grid behind the data."""
  axes.spines[['top', 'right']].set_visible(False)
  if grid:
    axes.grid(True, color='#E5E5E5', linewidth=0.8)
    axes.set_axisbelow(True)


def percent(axis: Any) -> None:
  """Shows the fractions of an axis in percent."""
  axis.set_major_formatter(lambda value, _: f'{100 * value:.4g} %')


def title(fig: Any, text: str) -> None:
  """Writes a title above all panels, and widens the figure if it is cut."""
  # At 12 points, a bold letter is 0.1 inches wide.
  fig.set_figwidth(max(fig.get_figwidth(), 0.11 * len(text)))
  fig.suptitle(drawable(text), fontsize=12, fontweight='bold')


def legend(fig: Any, handles: Sequence[Any] = ()) -> None:
  """Draws a legend below all panels, in as many columns as fit."""
  handles = handles or [handle for axes in fig.axes for handle in
                        axes.get_legend_handles_labels()[0]]
  # At 9 points a letter is 0.08 inches wide, and a sample 0.65.
  entry_inches = 0.65 + 0.08 * max(len(str(h.get_label())) for h in handles)
  columns = int(fig.get_figwidth() // entry_inches)
  fig.legend(
      handles=handles, loc='outside lower center', frameon=False, fontsize=9,
      ncols=min(len(handles), max(1, columns)))


def drawable(text: str) -> str:
  """Returns a text that Matplotlib can draw.

  Characters that Matplotlib's font lacks are taken from other fonts; those that
  no font has become codes such as \\u99ac. Dollar signs are escaped, since they
  would start a formula.
  """
  import matplotlib
  shown = ''
  for character in text:
    font = _FONT if character == '\n' else _find_font(character)
    shown += character if font else character.encode(
        'ascii', 'backslashreplace').decode()
    if font and font not in matplotlib.rcParams['font.family']:
      matplotlib.rcParams['font.family'] = [
          *matplotlib.rcParams['font.family'], font]
  return shown.replace('$', r'\$')


def save(fig: Any, path: epath.PathLike) -> None:
  """Writes a figure, also to a bucket; the suffix determines the format.

  A copy of a .png file is written in Matplotlib's `savefig.format`, which users
  set in a file `matplotlibrc`, so that all figures can be vector graphics.
  """
  import matplotlib
  path, buffer = epath.Path(path), io.BytesIO()
  fig.savefig(buffer, format=path.suffix.removeprefix('.') or 'png')
  atomic_files.write_bytes(path, buffer.getvalue())
  also = f'.{matplotlib.rcParams["savefig.format"]}'
  if path.suffix == '.png' != also:
    save(fig, path.with_suffix(also))


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
      drawable(metric.title), fontsize=12, loc='left', fontweight='bold')
  style(axes)
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
    percent(axes.yaxis)
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
      lines.Line2D([], [], color=colour, linewidth=4, label=drawable(run))
      for run, colour in colours.items()]
  handles += [
      lines.Line2D([], [], color='#555555', label=drawable(name), **{
          **_line_style(names[name], markers), 'markevery': 1})
      for name in ('train', *markers) if name in names]
  legend(fig, handles)


def _line_style(
    series: _Series, markers: Mapping[str, str]) -> dict[str, Any]:
  count = len(series.steps)
  if series.name == 'train':
    return {'linewidth': 1.2, 'linestyle': (0, (4, 1.5))}
  return {'linewidth': 1.8, 'markersize': 4.5, 'marker': markers[series.name],
          'markevery': max(1, count // 12)}
