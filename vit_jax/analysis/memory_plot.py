"""Plot of the largest batch by image size (ViT, figure 12, right)."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from vit_jax.analysis import plots


def largest_batches(
    cells: Sequence[Mapping[str, Any]], path: epath.PathLike, *, title: str,
    unit: str,
) -> None:
  """Plots one line per model on logarithmic axes.

  A line ends where not even one image fits.
  Each cell has `model`, `resolution` and `batch`; `unit` names a device.
  """
  from matplotlib import ticker
  fig = plots.new_figure(6.4, 4.6)
  axes = fig.subplots()
  axes.set_xscale('log', base=2)
  axes.set_yscale('log', base=2)
  colours = (*plots.COLOURS, '#888888')
  for i, model in enumerate(dict.fromkeys(cell['model'] for cell in cells)):
    points = sorted((cell['resolution'], cell['batch']) for cell in cells
                    if cell['model'] == model and cell['batch'])
    # Lines often coincide; markers of decreasing size stay visible.
    axes.plot(
        *zip(*points) if points else ([], []), label=plots.drawable(model),
        linewidth=1.8, color=colours[i % len(colours)],
        marker=plots.MARKERS[i % len(plots.MARKERS)],
        markersize=9 - 0.7 * i, alpha=0.9,
        linestyle='-' if '/' in model else '--')
  axes.set_title(
      plots.drawable(title), fontsize=11, loc='left', fontweight='bold')
  axes.set_xticks(sorted({cell['resolution'] for cell in cells}))
  axes.xaxis.set_major_formatter('{x:g}')
  axes.tick_params(axis='x', labelsize=8)  # 224 is close to 256.
  axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.yaxis.set_major_formatter('{x:,.7g}')
  axes.set(xlabel='height and width of the images (pixels)',
           ylabel=f'images per {unit}')
  plots.style(axes)
  axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False,
              fontsize=9)
  plots.save(fig, path)
