"""Pictures of a model's answers: of classes, how sure it is, of numbers."""

from collections.abc import Sequence
from typing import Any

from etils import epath
from jaxtyping import Float, Int
import numpy as np

from vit_jax.analysis import plots

BLUE, ORANGE, GREY = '#0072B2', '#D55E00', '#999999'  # Okabe and Ito's.
# Classes up to which each cell shows its count, and each row its name.
MAX_COUNTS, MAX_NAMES = 20, 60
# Of a matrix, in pixels: more classes than that are pooled.
MAX_CELLS = 1_000
WORST = 12
MAX_COLUMNS = 3  # Of panels.
MAX_LETTERS = 24  # Of a name.


def confusion(
    counts: Int[np.ndarray, 'classes classes'], path: epath.PathLike, *,
    names: Sequence[str] | None = None, title: str = '',
) -> None:
  """Draws a confusion matrix, and beside it the accuracy of each class.

  Colours are shares of a row, on a scale that shows rare confusions. Where
  there are too many classes to name, the worst are.

  Args:
    counts: how often class [row] was taken for [column].
    path: picture to write; the suffix says the format (.png, .pdf, .svg).
    names: of the classes; by default their numbers.
    title: above the picture.
  """
  from matplotlib import colors  # They take a second to import.
  from matplotlib import figure
  from matplotlib import layout_engine

  classes = len(counts)
  names = [str(i) for i in range(classes)] if names is None else list(names)
  total = counts.sum(axis=1)
  share = counts / np.maximum(total, 1)[:, None]
  named = classes <= MAX_NAMES
  # A name of 8 points needs 0.16 inches, a number of four digits 0.42.
  side = max(3.6, 0.42 * classes if classes <= MAX_COUNTS else
             0.16 * classes) if named else 8.0
  fig = figure.Figure(
      figsize=(side + 4.4, side + 1.3), dpi=150,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
  matrix, bars = fig.subplots(
      1, 2, width_ratios=(side, 2.4), sharey=named)
  cells, block = _pooled(share)
  shown = matrix.imshow(
      cells, cmap='Blues', norm=colors.PowerNorm(0.5, vmin=0, vmax=1),
      interpolation='nearest', aspect='auto',
      extent=(-0.5, classes - 0.5, classes - 0.5, -0.5))
  fig.colorbar(
      shown, ax=matrix, location='bottom', shrink=0.6, aspect=40, pad=0.02,
      ticks=(0, 0.05, 0.25, 0.5, 1),
      format=lambda x, _: f'{100 * x:g} %',
      label='share of the class' + (
          f', the highest of {block} x {block} classes' if block > 1 else ''))
  matrix.set(xlabel='answer', ylabel='class')
  if named:
    _name_axes(matrix, names)
    _draw_bars(bars, share, total)
  else:
    _draw_curve(bars, share, total, names)
  if classes <= MAX_COUNTS:
    _write_counts(matrix, counts, share)
  fig.suptitle(
      f'{title}: ' * bool(title)
      + f'{100 * np.trace(counts) / max(1, counts.sum()):.2f} % of '
      f'{counts.sum():,} right', fontsize=12, fontweight='bold',
      parse_math=False)
  plots.save(fig, path)


def scatter(
    pairs: Float[np.ndarray, 'examples targets 2'], path: epath.PathLike, *,
    names: Sequence[str] | None = None, title: str = '',
) -> None:
  """Draws what was predicted against what is true, a panel for each target.

  Args:
    pairs: the label and the prediction of each example, in the label's units;
      NaN where it has no label.
    path: picture to write; the suffix says the format.
    names: of the targets; by default their numbers.
    title: above the picture.
  """
  from matplotlib import figure
  from matplotlib import layout_engine

  count = pairs.shape[1]
  names = [str(i) for i in range(count)] if names is None else list(names)
  columns = min(count, MAX_COLUMNS)
  rows = -(-count // columns)
  fig = figure.Figure(
      figsize=(3.8 * columns, 3.6 * rows + 0.4), dpi=150,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
  panels = fig.subplots(rows, columns, squeeze=False).ravel()
  for axes, name, (true, predicted) in zip(
      panels, names, np.moveaxis(pairs, 0, -1)):
    known = np.isfinite(true) & np.isfinite(predicted)
    true, predicted = true[known], predicted[known]
    if len(true):
      ends = [min(true.min(), predicted.min()),
              max(true.max(), predicted.max())]
      axes.plot(ends, ends, color=GREY, linestyle='--', linewidth=1)
    # Many dots make a cloud, whose density shows.
    axes.plot(true, predicted, 'o', color=BLUE, markersize=3, markeredgewidth=0,
              alpha=max(0.05, min(0.8, 200 / max(1, len(true)))))
    axes.set(xlabel='label', ylabel='prediction')
    axes.set_title(name, fontsize=10, parse_math=False)
    axes.spines[['top', 'right']].set_visible(False)
  for axes in panels[count:]:
    axes.set_visible(False)
  fig.suptitle(title, fontsize=12, fontweight='bold', parse_math=False)
  plots.save(fig, path)


def reliability(
    table: Float[np.ndarray, 'bins count_confidence_right'],
    path: epath.PathLike, *, title: str = '',
) -> None:
  """Draws how often answers of a confidence are right (arXiv 1706.04599).

  Args:
    table: of each bin, from 0 to 1: examples, mean confidence, share of right
      ones; the last two may be NaN where it is empty.
    path: picture to write; the suffix says the format.
    title: above the picture.
  """
  from matplotlib import figure
  from matplotlib import layout_engine

  count, confidence, right = table.T
  filled = count > 0
  edges = np.linspace(0, 1, len(table) + 1)
  fig = figure.Figure(
      figsize=(5, 5.6), dpi=150,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
  axes, below = fig.subplots(2, 1, height_ratios=(3, 1), sharex=True)
  axes.bar(edges[:-1][filled], right[filled], np.diff(edges)[filled],
           align='edge', color=BLUE, edgecolor='white', label='right')
  axes.plot([0, 1], [0, 1], color=GREY, linestyle='--', linewidth=1,
            label='calibrated')
  axes.plot(confidence[filled], right[filled], 'o', color=ORANGE,
            markersize=4, label='at the mean confidence', clip_on=False)
  axes.set(xlim=(0, 1), ylim=(0, 1), ylabel='share of right answers')
  # Away from the bars, which may be anywhere.
  fig.legend(loc='outside lower center', frameon=False, fontsize=9, ncols=3)
  below.bar(edges[:-1], count / count.sum(), np.diff(edges), align='edge',
            color=GREY, edgecolor='white')
  below.set(xlabel='confidence', ylabel='share of images')
  gaps = np.abs(right - confidence)[filled]
  error = gaps @ count[filled] / count.sum()
  for each in (axes, below):
    each.xaxis.set_major_formatter(lambda x, _: f'{100 * x:g} %')
    each.yaxis.set_major_formatter(lambda y, _: f'{100 * y:g} %')
    each.spines[['top', 'right']].set_visible(False)
  fig.suptitle(f'{title}: ' * bool(title) + f'calibration error '
               f'{100 * error:.2f} %', fontsize=12, fontweight='bold',
               parse_math=False)
  plots.save(fig, path)


def _pooled(
    share: Float[np.ndarray, 'classes classes'],
) -> tuple[Float[np.ndarray, 'rows columns'], int]:
  """Returns the largest of each block of classes, and the block's side."""
  block = -(-len(share) // MAX_CELLS)
  if block == 1:
    return share, block
  starts = np.arange(0, len(share), block)
  pooled = np.maximum.reduceat(share, starts, axis=0)
  return np.maximum.reduceat(pooled, starts, axis=1), block


def _name_axes(axes: Any, names: Sequence[str]) -> None:
  places = range(len(names))
  # A long name on its side would take more room than the matrix.
  names = [name if len(name) <= MAX_LETTERS else name[:MAX_LETTERS - 1] + '…'
           for name in names]
  # A name with dollars is no formula.
  axes.set_yticks(places, names, fontsize=8, parse_math=False)
  longest = max(map(len, names))
  axes.set_xticks(places, names, fontsize=8, parse_math=False,
                  rotation=90 if longest > 4 or len(names) > MAX_COUNTS else 0)


def _write_counts(axes: Any, counts: Any, share: Any) -> None:
  for (row, column), count in np.ndenumerate(counts):
    if count:
      axes.text(column, row, f'{count:,}', ha='center', va='center', fontsize=7,
                color='white' if share[row, column] > 0.4 else 'black')


def _draw_bars(axes: Any, share: Any, total: Any) -> None:
  accuracy = np.where(total > 0, np.diag(share), 0)
  axes.barh(np.arange(len(total)), accuracy, color=BLUE, height=0.7)
  for row, (value, count) in enumerate(zip(accuracy, total)):
    axes.text(min(value, 1) + 0.02, row, f'{100 * value:.1f}' if count else
              'no example', va='center', fontsize=7)
  _of_accuracy(axes)
  axes.set_xlim(0, 1.25)
  axes.set_xticks((0, 0.5, 1))
  axes.tick_params(labelleft=False)


def _draw_curve(axes: Any, share: Any, total: Any, names: Any) -> None:
  """Draws the classes by accuracy, and names the worst."""
  seen = np.flatnonzero(total > 0)
  accuracy = np.diag(share)[seen]
  order = np.argsort(accuracy, kind='stable')
  axes.plot(accuracy[order], np.arange(len(seen)), color=BLUE)
  axes.fill_betweenx(
      np.arange(len(seen)), accuracy[order], color=BLUE, alpha=0.15)
  axes.set(ylim=(0, max(1, len(seen) - 1)), xlim=(0, 1),
           ylabel='classes, the worst at the bottom')
  axes.yaxis.tick_right()
  axes.yaxis.set_label_position('right')
  _of_accuracy(axes)
  worst = '\n'.join(f'{100 * accuracy[i]:.0f} %  {names[seen[i]][:MAX_LETTERS]}'
                    for i in order[:WORST])
  axes.text(0.03, 0.985, f'The worst:\n{worst}', transform=axes.transAxes,
            va='top', fontsize=7, linespacing=1.4, parse_math=False)


def _of_accuracy(axes: Any) -> None:
  axes.set_xlabel('accuracy of the class')
  axes.xaxis.set_major_formatter(lambda x, _: f'{100 * x:g} %')
  axes.spines[['top', 'right']].set_visible(False)
