"""Figures of predictions: confusion matrix, reliability, regression scatter."""

from collections.abc import Mapping, Sequence

from etils import epath
from jaxtyping import Float, Int, UInt8
import numpy as np

from vit_jax import console
from vit_jax import metrics
from vit_jax import registry
from vit_jax.extras import pictures
from vit_jax.extras import plots
from vit_jax.extras.figures import model_figures

BLUE, ORANGE, GREY = plots.COLOURS[0], plots.COLOURS[1], '#999999'
_MAX_COUNTS = 20  # Classes up to which each cell shows its count.
_MAX_NAMES = 60  # Classes up to which the axes show names.
_MAX_LETTERS = 24  # Letters of a class name.


def confusion(
    counts: Int[np.ndarray, 'classes classes'], path: epath.PathLike, *,
    names: Sequence[str] | None = None, title: str = '',
) -> None:
  """Draws a confusion matrix; its title has the accuracy.

  Colours are shares of a row on a square-root scale, which shows rare
  confusions. `counts` are examples of class [row] predicted as [column].
  """
  from matplotlib import colors
  classes = len(counts)
  # A long rotated name would take more space than the matrix.
  names = [plots.drawable(console.shorten(name, _MAX_LETTERS))
           for name in (names or map(str, range(classes)))]
  share = counts / np.maximum(counts.sum(axis=1), 1)[:, None]
  named, counted = classes <= _MAX_NAMES, classes <= _MAX_COUNTS
  # A line of 8-point text needs 0.16 inches, a 4-digit count 0.42.
  side = max(3.6, (0.42 if counted else 0.16) * classes) if named else 8.0
  fig = plots.new_figure(side + 1.4, side + 1.3, w_pad=0.08)
  matrix = fig.subplots()
  drawn = matrix.imshow(
      share, cmap='Blues', norm=colors.PowerNorm(0.5, vmin=0, vmax=1),
      interpolation='nearest' if named else 'antialiased', aspect='auto')
  fig.colorbar(
      drawn, ax=matrix, location='bottom', shrink=0.6, aspect=40, pad=0.02,
      ticks=(0, 0.05, 0.25, 0.5, 1), format=lambda x, _: f'{100 * x:g} %',
      label='share of the class')
  matrix.set(xlabel='prediction', ylabel='label')
  if named:
    rotate = max(map(len, names)) > 4 or not counted
    matrix.set_yticks(range(classes), names, fontsize=8)
    matrix.set_xticks(range(classes), names, fontsize=8,
                      rotation=90 if rotate else 0)
  if counted:
    for (row, column), count in np.ndenumerate(counts):
      matrix.text(column, row, f'{count:,}' if count else '', ha='center',
                  va='center', fontsize=float(np.clip(40 / classes, 7, 16)),
                  color='white' if share[row, column] > 0.4 else 'black')
  accuracy = np.trace(counts) / max(1, counts.sum())
  plots.title(fig, f'{title}: ' * bool(title)
              + f'{100 * accuracy:.2f} % of {counts.sum():,} correct')
  plots.save(fig, path)


def mistakes(
    images: Sequence[np.ndarray], titles: Sequence[str],
    path: epath.PathLike, *, columns: int = 6, title: str = '',
) -> None:
  """Draws a sheet of images [height, width, channels], each with a title."""
  fig, panels = plots.new_panels(
      len(images), columns=columns, width=2.0, height=2.5, title_inches=0.4,
      w_pad=0.05)
  for axes, image, text in zip(panels, images, titles):
    axes.set_axis_off()
    axes.imshow(pictures.fractions(image), cmap='gray', vmin=0, vmax=1)
    axes.set_title(plots.drawable(text), fontsize=8)
  plots.title(fig, f'{title}: ' * bool(title) + 'most confident mistakes')
  plots.save(fig, path)


def segmentation(
    images: Sequence[np.ndarray],
    classes: Mapping[str, Sequence[UInt8[np.ndarray, '...']]],
    path: epath.PathLike, *, names: Sequence[str], titles: Sequence[str] = (),
    iou: Float[np.ndarray, 'classes'] | None = None, title: str = '',
) -> None:
  """Draws images next to the classes of their pixels.

  `classes` [height, width] are columns, such as labels and predictions. Pixels
  with none of the `names` are grey. The legend has the `iou` of the classes.
  """
  colours = registry.load(registry.SEGMENTATION).colours(len(names)) / 255
  found = np.unique(np.concatenate(
      [values.ravel() for column in classes.values() for values in column]))
  if iou is not None:
    title += f': mean IoU {100 * np.nanmean(iou):.2f} %'
  model_figures.pictures(
      {'image': list(map(pictures.fractions, images)), **{
          name: [colours[values] for values in column]
          for name, column in classes.items()}}, path, title=title,
      titles=titles, legend={
          names[i] + (f' (IoU {100 * iou[i]:.1f} %)' if iou is not None else '')
          : colours[i] for i in found if i < len(names)})


def scatter(
    pairs: Float[np.ndarray, 'examples targets 2'], path: epath.PathLike, *,
    names: Sequence[str] | None = None, title: str = '',
) -> None:
  """Draws predictions against labels, one panel per regression target.

  `pairs` are in the label's units; labels may be NaN. Both axes have the same
  limits; the title of a panel has R² and the mean absolute error.
  """
  count = pairs.shape[1]
  names = list(map(plots.drawable, names or map(str, range(count))))
  fig, panels = plots.new_panels(
      count, columns=3, width=3.8, height=3.6, title_inches=0.4, w_pad=0.08)
  errors = metrics.errors(pairs[..., 1], pairs[..., 0])
  for axes, name, values, error, r2 in zip(
      panels, names, pairs.swapaxes(0, 1), errors['mean_absolute_error'],
      errors['r2']):
    values = values[np.isfinite(values).all(axis=1)]
    text = f'{name}: no labels'
    if len(values):
      text = (f'{name}: n = {len(values):,}, R² = {r2:.3f}\nmean absolute '
              f'error {error:.4g}')
      margin = 0.03 * np.ptp(values) or 1
      ends = values.min() - margin, values.max() + margin
      axes.plot(ends, ends, color=GREY, linestyle='--', linewidth=1)
      axes.set(xlim=ends, ylim=ends, aspect='equal')
    # Transparency shows the density of many points.
    axes.plot(*values.T, 'o', color=BLUE, markersize=3, markeredgewidth=0,
              alpha=np.clip(200 / max(1, len(values)), 0.05, 0.8))
    axes.set(xlabel='label', ylabel='prediction')
    axes.set_title(text, fontsize=9)
    plots.style(axes, grid=False)
  plots.title(fig, title)
  plots.save(fig, path)


def reliability(
    table: Float[np.ndarray, 'bins count_confidence_accuracy'],
    path: epath.PathLike, *, title: str = '',
) -> None:
  """Draws a reliability diagram (Guo et al., arXiv:1706.04599, figure 1).

  The bins divide [0, 1] evenly; empty bins may have NaN.
  """
  count, confidence, accuracy = table.T
  filled = count > 0
  width = 1 / len(table)
  left = np.arange(len(table)) * width
  fig = plots.new_figure(5, 5.6, w_pad=0.08)
  axes, below = fig.subplots(2, 1, height_ratios=(3, 1), sharex=True)
  axes.bar(left[filled], accuracy[filled], width, align='edge', color=BLUE,
           edgecolor='white', label='accuracy')
  axes.plot([0, 1], [0, 1], color=GREY, linestyle='--', linewidth=1,
            label='perfect calibration')
  axes.plot(confidence[filled], accuracy[filled], 'o', color=ORANGE,
            markersize=4, label='mean confidence', clip_on=False)
  axes.set(xlim=(0, 1), ylim=(0, 1), ylabel='accuracy')
  plots.legend(fig)
  below.bar(left, count / count.sum(), width, align='edge', color=GREY,
            edgecolor='white')
  below.set(xlabel='confidence', ylabel='share of images')
  for each in (axes, below):
    plots.percent(each.xaxis)
    plots.percent(each.yaxis)
    plots.style(each, grid=False)
  gaps = np.abs(accuracy - confidence)[filled]
  error = gaps @ count[filled] / count.sum()
  plots.title(fig, f'{title}: ' * bool(title)
              + f'calibration error {100 * error:.2f} %')
  plots.save(fig, path)


def curves(
    values: Float[np.ndarray, 'classes 2 points'], path: epath.PathLike, *,
    areas: tuple[Float[np.ndarray, 'classes'], Float[np.ndarray, 'classes']],
    names: Sequence[str], title: str = '',
) -> None:
  """Draws ROC and precision-recall curves, with the areas below them.

  More classes than colours are grey.

  Args:
    values: true-positive rate by false-positive rate, and precision by recall,
      at evenly spaced points.
    path: figure to write.
    areas: area under the ROC curve and average precision of each class.
    names: names of the classes.
    title: title of the figure.
  """
  fig = plots.new_figure(9, 5.2, w_pad=0.08)
  x = np.linspace(0, 1, values.shape[-1])
  named = len(values) <= len(plots.COLOURS)
  for j, (axes, labels) in enumerate(zip(fig.subplots(1, 2), (
      ('false-positive rate', 'true-positive rate'), ('recall', 'precision')))):
    for i, curve in enumerate(values[:, j]):
      name = plots.drawable(console.shorten(names[i], _MAX_LETTERS))
      axes.plot(
          x, curve, color=plots.COLOURS[i] if named else GREY, linewidth=1.4,
          alpha=1 if named else 0.5,
          label=f'{name}: area {areas[j][i]:.3f}' if (
              named and np.isfinite(areas[j][i])) else None)
    if not j:
      axes.plot([0, 1], [0, 1], color=GREY, linestyle='--', linewidth=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel=labels[0], ylabel=labels[1])
    plots.style(axes)
    if named:
      axes.legend(loc='lower right' if not j else 'lower left', fontsize=9)
  plots.title(fig, title)
  plots.save(fig, path)
