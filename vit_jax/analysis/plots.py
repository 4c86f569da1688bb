"""Training curves of one or several runs, and the style of all plots."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

from etils import epath

Rows = Sequence[Mapping[str, Any]]

# Colour-blind safe palette of Okabe and Ito (https://jfly.uni-koeln.de/color)
# without yellow, which is too pale for a thin line.
COLOURS = (
    '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000')
MARKERS = 'osD^vP'
_DPI = 150
_LOG_SCALE_RATIO = 30  # Largest to smallest loss.
_LENGTH_RATIO = 3  # Longest to shortest run that share an axis of steps.
_PANEL_INCHES = 4.2
_FEW_POINTS = 25  # Training curves of up to this many points have markers.


@dataclasses.dataclass(frozen=True)
class _Panel:
  metric: str
  title: str
  is_percent: bool = False


_PANELS = (
    _Panel('loss', 'Loss'),
    _Panel('accuracy', 'Accuracy', is_percent=True),
    _Panel('learning_rate', 'Learning rate'),
)


def curves(runs: Mapping[str, Rows], path: epath.PathLike) -> None:
  """Plots loss, accuracy and learning rate of runs, one colour per run.

  Runs of very different lengths share an axis in percent. Training is a thin
  line; each evaluator is a line with markers.

  Args:
    runs: rows by run name; each row holds `step` and metrics such as
      'train/loss' or 'val/accuracy'.
    path: file to write; the suffix determines the format (.png, .pdf, .svg).

  Raises:
    ValueError: if no row holds any of the metrics.
  """
  panels = [p for p in _PANELS
            if any(_names(rows, p) for rows in runs.values())]
  if not panels:
    raise ValueError(
        'Nothing to draw: expected rows with a metric such as train/loss or '
        f'val/accuracy in the run(s) {", ".join(runs) or "(none)"}.')
  evaluators = _evaluators(runs)
  fig = new_figure(_PANEL_INCHES * len(panels), 4.0, w_pad=0.12)
  label, scaled = _scale_steps(runs)
  for axes, panel in zip(fig.subplots(1, len(panels), squeeze=False)[0],
                         panels):
    _draw_panel(axes, panel, scaled, evaluators)
    axes.set_xlabel(label)
  _draw_legend(fig, runs, evaluators)
  save(fig, path)


def new_figure(width: float, height: float, *, w_pad: float = 0.06) -> Any:
  """Returns a Matplotlib figure of a size in inches.

  Matplotlib takes a second to import, hence the import inside. pyplot is
  avoided because its global state needs a display.
  """
  from matplotlib import figure
  from matplotlib import layout_engine
  return figure.Figure(
      figsize=(width, height), dpi=_DPI,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=w_pad, h_pad=0.06))


def style(axes: Any, *, grid: bool = True) -> None:
  """Applies the common style: no frame, and a pale grid behind the data."""
  axes.spines[['top', 'right']].set_visible(False)
  if grid:
    axes.grid(True, color='#E5E5E5', linewidth=0.8)
    axes.set_axisbelow(True)


def escape(text: str) -> str:
  """Escapes dollar signs, which would begin a formula."""
  return text.replace('$', r'\$')


def save(fig: Any, path: epath.PathLike) -> None:
  """Writes a figure, also to a bucket; the suffix determines the format."""
  path = epath.Path(path)
  with path.open('wb') as file:
    fig.savefig(file, format=path.suffix.removeprefix('.') or 'png')


def _scale_steps(runs: Mapping[str, Rows]) -> tuple[str, Mapping[str, Rows]]:
  """Returns the axis label, and runs in percent if their lengths differ."""
  lengths = {name: max((row['step'] for row in rows), default=0) or 1
             for name, rows in runs.items()}
  if max(lengths.values()) <= _LENGTH_RATIO * min(lengths.values()):
    return 'step', runs
  return '% of the run', {
      name: [{**row, 'step': 100 * row['step'] / lengths[name]}
             for row in rows] for name, rows in runs.items()}


def _draw_panel(
    axes: Any, panel: _Panel, runs: Mapping[str, Rows],
    evaluators: Sequence[str],
) -> None:
  drawn: list[float] = []
  last_step = 1.0
  for colour, rows in zip(_colours(len(runs)), runs.values()):
    for name in _names(rows, panel):
      steps, values = _series(rows, f'{name}/{panel.metric}')
      drawn += values
      last_step = max(last_step, *steps)
      line = _line_style(name, evaluators, num_points=len(steps))
      axes.plot(steps, values, color=colour, **line)
  _format_panel(axes, panel, drawn, last_step)


def _format_panel(
    axes: Any, panel: _Panel, values: Sequence[float], last_step: float,
) -> None:
  from matplotlib import ticker
  axes.set_title(panel.title, fontsize=12, loc='left', fontweight='bold')
  axes.set_xlim(-0.03 * last_step, 1.03 * last_step)
  style(axes)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(
      nbins=5, integer=True, min_n_ticks=1))
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  if panel.metric == 'loss' and min(values) > 0 and (
      max(values) / min(values) > _LOG_SCALE_RATIO):
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
  # Complete labels instead of a factor above the axis.
  axes.yaxis.set_major_formatter(
      (lambda y, _: f'{100 * y:.4g} %') if panel.is_percent
      else (lambda y, _: f'{y:.4g}'))


def _draw_legend(
    fig: Any, runs: Mapping[str, Rows], evaluators: Sequence[str],
) -> None:
  """Draws a legend of runs and evaluators below the panels."""
  from matplotlib import lines

  handles = [
      lines.Line2D([], [], color=colour, linewidth=4, label=escape(run))
      for colour, run in zip(_colours(len(runs)), runs)]
  for name in ('train', *evaluators):
    num_points = max(len(_series(rows, f'{name}/{panel.metric}')[0])
                     for rows in runs.values() for panel in _PANELS)
    if num_points:
      handles.append(lines.Line2D(
          [], [], color='#555555', label=escape(name), **{
              **_line_style(name, evaluators, num_points=num_points),
              'markevery': 1}))
  # At 10 points a letter is 0.09 inches wide, and a line sample 0.7.
  entry_inches = 0.7 + 0.09 * max(len(str(h.get_label())) for h in handles)
  columns = int(fig.get_figwidth() // entry_inches)
  fig.legend(
      handles=handles, loc='outside lower center', frameon=False, fontsize=10,
      ncols=min(len(handles), max(1, columns)))


def _colours(number: int) -> list[Any]:
  """Returns a colour per run; beyond the palette, steps of viridis."""
  if number <= len(COLOURS):
    return list(COLOURS[:number])
  import matplotlib
  # The yellow end of the map is too pale.
  return [matplotlib.colormaps['viridis'](0.9 * i / (number - 1))
          for i in range(number)]


def _line_style(
    name: str, evaluators: Sequence[str], *, num_points: int,
) -> dict[str, Any]:
  if name == 'train':
    return {'linewidth': 1.2, 'alpha': 0.75,
            'marker': '.' if num_points <= _FEW_POINTS else ''}
  return {'linewidth': 1.8, 'markersize': 4.5,
          'marker': MARKERS[evaluators.index(name) % len(MARKERS)],
          'markevery': max(1, num_points // 12)}


def _names(rows: Rows, panel: _Panel) -> list[str]:
  """Returns 'train' and the evaluators that have the panel's metric."""
  keys = dict.fromkeys(key for row in rows for key in row)
  names = [key.rsplit('/', 1)[0] for key in keys
           if '/' in key and key.rsplit('/', 1)[1] == panel.metric]
  return [n for n in names if _series(rows, f'{n}/{panel.metric}')[0]]


def _evaluators(runs: Mapping[str, Rows]) -> list[str]:
  names = dict.fromkeys(
      name for rows in runs.values() for panel in _PANELS
      for name in _names(rows, panel))
  return [name for name in names if name != 'train']


def _series(rows: Rows, key: str) -> tuple[list[float], list[float]]:
  """Returns the steps and finite values of a metric."""
  points = [(row['step'], row[key]) for row in rows
            if key in row and math.isfinite(row[key])]
  return [step for step, _ in points], [value for _, value in points]
