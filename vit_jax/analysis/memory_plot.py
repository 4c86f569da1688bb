"""The picture of what fits: the largest batch by the size of the images."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from vit_jax.analysis import plots


def largest_batches(
    cells: Sequence[Mapping[str, Any]], path: epath.PathLike, *, title: str,
    unit: str,
) -> None:
  """Draws the right half of the paper's Figure 12, a line for each model.

  Both axes are of powers: an image of twice the side has four times the tokens.
  Where not even one image fits, a line ends.

  Args:
    cells: each with `model`, `resolution` and `batch`.
    path: picture to write; the suffix says the format (.png, .pdf, .svg).
    title: of the picture.
    unit: what a device is: 'core', 'chip'.
  """
  from matplotlib import figure
  from matplotlib import ticker

  fig = figure.Figure(figsize=(6.4, 4.6), dpi=150, layout='constrained')
  axes = fig.subplots()
  axes.set_xscale('log', base=2)
  axes.set_yscale('log', base=2)
  colours = (*plots.COLOURS, '#888888')
  for i, model in enumerate(dict.fromkeys(cell['model'] for cell in cells)):
    points = sorted((cell['resolution'], cell['batch']) for cell in cells
                    if cell['model'] == model and cell['batch'])
    # Lines of powers of two lie on one another: told apart by their marks.
    axes.plot(
        *zip(*points) if points else ([], []), label=plots.plain(model),
        linewidth=1.8, color=colours[i % len(colours)],
        marker=plots.MARKERS[i % len(plots.MARKERS)],
        markersize=9 - 0.7 * i, alpha=0.9,
        linestyle='-' if '/' in model else '--')
  axes.set_title(
      plots.plain(title), fontsize=11, loc='left', fontweight='bold')
  axes.set_xticks(sorted({cell['resolution'] for cell in cells}))
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:g}')
  axes.tick_params(axis='x', labelsize=8)  # 224 is close to 256.
  axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.yaxis.set_major_formatter(
      lambda y, _: f'{y:,.0f}' if y >= 1 else f'{y:.4g}')
  axes.set_xlabel('height and width of the images (pixels)')
  axes.set_ylabel(f'images on a {unit}')
  axes.grid(True, color='#E5E5E5', linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  # Beside the axes, below the title, which is longer than they are wide where
  # the device's name is.
  axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False,
              fontsize=9)
  plots.save(fig, path)
