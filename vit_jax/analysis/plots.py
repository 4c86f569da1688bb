"""Pictures of a run: the curves of its losses, accuracy and learning rate."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

from etils import epath

Rows = Sequence[Mapping[str, Any]]

# Okabe and Ito's palette, told apart with any colour vision
# (https://jfly.uni-koeln.de/color); its yellow is too pale for a thin line.
COLOURS = (
    '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000')
MARKERS = 'osD^vP'
# Beyond the palette, as many steps of a map whose lightness rises evenly: the
# order of the runs is then what tells them apart.
MANY_COLOURS = 'viridis'
# Lines of the same learning rates that are drawn one within the other.
MAX_WITHIN = len(COLOURS) - 1
# Beyond this ratio of largest to smallest loss, a linear axis hides the end.
LOG_SCALE_RATIO = 30
# Beyond this ratio of longest to shortest run, an axis of steps hides one.
LENGTH_RATIO = 3
PANEL_INCHES = 4.2
FEW_POINTS = 25  # Up to which each is marked, in the curves of training too.


@dataclasses.dataclass(frozen=True)
class _Panel:
  metric: str
  title: str
  is_percent: bool = False


PANELS = (
    _Panel('loss', 'Loss'),
    _Panel('accuracy', 'Accuracy', is_percent=True),
    _Panel('learning_rate', 'Learning rate'),
)


def curves(runs: Mapping[str, Rows], path: epath.PathLike) -> None:
  """Draws the curves of one or several runs, a colour each.

  A panel for each of loss, accuracy and learning rate that was measured,
  against the step, or against the share of the run where the lengths of the
  runs are too unlike for one axis. Training is a thin line, with dots where it
  is short, each evaluator a line with marks.

  Args:
    runs: rows by the run's name, as `read_rows` gives them: each holds `step`
      and metrics whose names start with 'train/' or an evaluator's name.
    path: picture to write; the suffix says the format (.png, .pdf, .svg).

  Raises:
    ValueError: if no row holds any of the metrics.
  """
  # Imported here: it takes a second, and only this module needs it. The figure
  # is made without pyplot, whose global state would need a display.
  from matplotlib import figure
  from matplotlib import layout_engine

  panels = [p for p in PANELS if any(_names(rows, p) for rows in runs.values())]
  if not panels:
    raise ValueError(
        'Nothing to draw: expected rows with a metric such as train/loss or '
        f'val/accuracy in the run(s) {", ".join(runs) or "(none)"}.')
  evaluators = _evaluators(runs)
  fig = figure.Figure(
      figsize=(PANEL_INCHES * len(panels), 4.0), dpi=150,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06))
  lengths = {name: max((row['step'] for row in rows), default=0) or 1
             for name, rows in runs.items()}
  if max(lengths.values()) > LENGTH_RATIO * min(lengths.values()):
    runs = {name: [{**row, 'step': 100 * row['step'] / lengths[name]}
                   for row in rows] for name, rows in runs.items()}
    label = '% of the run'
  else:
    label = 'step'
  all_axes = fig.subplots(1, len(panels), squeeze=False)[0]
  for axes, panel in zip(all_axes, panels):
    _draw_panel(axes, panel, runs, evaluators)
    axes.set_xlabel(label)
  _draw_legend(fig, runs, evaluators)
  save(fig, path)


def plain(text: str) -> str:
  """Returns a name as it is drawn letter by letter: no `$` begins a formula."""
  return text.replace('$', r'\$')


def save(fig: Any, path: epath.PathLike) -> None:
  """Writes a Matplotlib figure, here or in a bucket.

  Args:
    fig: the figure.
    path: file to write; the suffix says the format (.png, .pdf, .svg).
  """
  path = epath.Path(path)
  with path.open('wb') as file:
    fig.savefig(file, format=path.suffix.removeprefix('.') or 'png')


def _draw_panel(
    axes: Any, panel: _Panel, runs: Mapping[str, Rows],
    evaluators: Sequence[str],
) -> None:
  """Draws one metric of every run."""
  from matplotlib import ticker

  drawn: list[float] = []
  last_step = 1.0
  for i, (colour, rows) in enumerate(zip(_colours(len(runs)), runs.values())):
    for name in _names(rows, panel):
      steps, values = _series(rows, f'{name}/{panel.metric}')
      drawn += values
      last_step = max(last_step, *steps)
      style = _line_style(name, evaluators, num_points=len(steps))
      if panel.metric == 'learning_rate':
        # Runs of the same schedule lie on one another: the later the finer.
        above = sum(
            _series(other, f'{name}/{panel.metric}') == (steps, values)
            for other in list(runs.values())[i + 1:])
        if above > MAX_WITHIN:
          continue
        style |= {'linewidth': 1.6 + 2 * above, 'alpha': 1}
      axes.plot(steps, values, color=colour, **style)
  axes.set_title(panel.title, fontsize=12, loc='left', fontweight='bold')
  axes.set_xlim(-0.03 * last_step, 1.03 * last_step)
  axes.grid(True, color='#E5E5E5', linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(
      nbins=5, integer=True, min_n_ticks=1))
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  if panel.metric == 'loss' and _needs_log_scale(drawn):
    axes.set_yscale('log')
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
  # Whole labels, 0.001 or 2e-05: no factor floating above the axis.
  axes.yaxis.set_major_formatter(
      (lambda y, _: f'{100 * y:.4g} %') if panel.is_percent
      else (lambda y, _: f'{y:.4g}'))


def _draw_legend(
    fig: Any, runs: Mapping[str, Rows], evaluators: Sequence[str],
) -> None:
  """Says below the panels, away from the data, what the lines are."""
  from matplotlib import lines

  handles = [
      lines.Line2D([], [], color=colour, linewidth=4, label=plain(run))
      for colour, run in zip(_colours(len(runs)), runs)]
  names = [n for n in ('train', *evaluators)
           if any(_names(rows, p) and n in _names(rows, p)
                  for rows in runs.values() for p in PANELS)]
  longest = {name: max(len(_series(rows, f'{name}/{p.metric}')[0])
                       for rows in runs.values() for p in PANELS)
             for name in names}
  handles += [
      lines.Line2D([], [], color='#555555', label=plain(name), **{
          **_line_style(name, evaluators, num_points=longest[name]),
          'markevery': 1})
      for name in names]
  # As many side by side as fit: a letter of 10 points is 0.09 inches wide, the
  # sample of a line with its margins 0.7.
  entry_inches = 0.7 + 0.09 * max(len(str(h.get_label())) for h in handles)
  columns = int(fig.get_figwidth() // entry_inches)
  fig.legend(
      handles=handles, loc='outside lower center', frameon=False, fontsize=10,
      ncols=min(len(handles), max(1, columns)))


def _colours(number: int) -> list[Any]:
  """Returns a colour for each run."""
  if number <= len(COLOURS):
    return list(COLOURS[:number])
  import matplotlib
  # Not to the end of the map, where its yellow is too pale.
  return [matplotlib.colormaps[MANY_COLOURS](0.9 * i / (number - 1))
          for i in range(number)]


def _line_style(
    name: str, evaluators: Sequence[str], *, num_points: int,
) -> dict[str, Any]:
  if name == 'train':
    # A line of few points says little, and of a single one nothing at all.
    return {'linewidth': 1.2, 'alpha': 0.75,
            'marker': '.' if num_points <= FEW_POINTS else ''}
  return {'linewidth': 1.8, 'markersize': 4.5,
          'marker': MARKERS[evaluators.index(name) % len(MARKERS)],
          # Few marks, however often the run was evaluated.
          'markevery': max(1, num_points // 12)}


def _names(rows: Rows, panel: _Panel) -> list[str]:
  """Returns 'train' and the evaluators that measured the panel's metric."""
  keys = dict.fromkeys(key for row in rows for key in row)
  names = [key.rsplit('/', 1)[0] for key in keys
           if '/' in key and key.rsplit('/', 1)[1] == panel.metric]
  return [n for n in names if _series(rows, f'{n}/{panel.metric}')[0]]


def _evaluators(runs: Mapping[str, Rows]) -> list[str]:
  names = dict.fromkeys(
      name for rows in runs.values() for panel in PANELS
      for name in _names(rows, panel))
  return [name for name in names if name != 'train']


def _series(rows: Rows, key: str) -> tuple[list[float], list[float]]:
  """Returns the steps and finite values of one metric."""
  points = [(row['step'], row[key]) for row in rows
            if key in row and math.isfinite(row[key])]
  return [step for step, _ in points], [value for _, value in points]


def _needs_log_scale(values: Sequence[float]) -> bool:
  return min(values) > 0 and max(values) / min(values) > LOG_SCALE_RATIO
