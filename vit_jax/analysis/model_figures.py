"""Pictures of what a ViT learned: figures 6, 7, 10 and 14 of the paper.

Each draws one array that `attention` or `embeddings` computed, onto white, in
colours whose lightness rises evenly (viridis), which any eye can order.
"""

from collections.abc import Sequence
from typing import Any

from etils import epath
from jaxtyping import Float, UInt8
import numpy as np

from vit_jax.analysis import plots

COLUMNS = 7  # Of the grid of components, as in figure 7.
_INCH = 150  # Dots.


def filters(
    components: Float[np.ndarray, 'filters height width channels'],
    path: epath.PathLike, *, columns: int = COLUMNS,
) -> None:
  """Draws filters of pixels, each on its own scale; grey is zero (figure 7,
  left)."""
  count = len(components)
  columns = min(columns, count)
  fig, axes = _grid(-(-count // columns), columns, cell=1.05)
  for ax, component in zip(axes.flat, components):
    colours = component.shape[-1] >= 3
    shown = component[..., :3] if colours else component[..., 0]
    shown = 0.5 + 0.5 * shown / max(1e-12, np.abs(shown).max())
    ax.imshow(shown, cmap='gray', vmin=0, vmax=1, interpolation='nearest')
    ax.set_visible(True)
  plots.save(fig, path)


def similarity(
    cosines: Float[np.ndarray, 'rows columns rows columns'],
    path: epath.PathLike,
) -> None:
  """Draws the grid of grids: each patch's likeness to all (figure 7, centre).
  """
  rows, columns = cosines.shape[:2]
  tiles, extent = _mosaic(cosines)
  # Two dots for a value, at the least.
  width = max(6.3, 2 * tiles.shape[1] / _INCH)
  fig = _figure(width + 1.3, width * rows / columns + 0.6)
  ax = fig.subplots()
  shown = ax.imshow(
      tiles, cmap='viridis', vmin=-1, vmax=1, interpolation='nearest',
      extent=extent)
  step = max(1, columns // 14)
  ax.set_xticks(range(1, columns + 1, step))
  ax.set_yticks(range(1, rows + 1, max(1, rows // 14)))
  ax.set(xlabel='column of the patch', ylabel='row of the patch')
  _frameless(ax)
  fig.colorbar(shown, ax=ax, fraction=0.04, pad=0.02,
               label='cosine similarity')
  plots.save(fig, path)


def distance(
    pixels: Float[np.ndarray, 'layers heads'], path: epath.PathLike, *,
    everywhere: float,
) -> None:
  """Draws the mean attention distance of every head (figure 7, right).

  Args:
    pixels: of each head.
    path: picture to write.
    everywhere: that of a head which looks at all patches alike.
  """
  layers, heads = pixels.shape
  fig = _figure(6.4, 4.2)
  ax = fig.subplots()
  ax.plot(np.repeat(np.arange(1, layers + 1), heads), pixels.ravel(), 'o',
          color=plots.COLOURS[0], markersize=4, alpha=0.6, markeredgewidth=0,
          label='each head')
  ax.plot(np.arange(1, layers + 1), pixels.mean(1), color='black', linewidth=1,
          label='their mean')
  ax.axhline(everywhere, color='#555555', linewidth=1, linestyle='--',
             label='to look everywhere alike')
  ax.set(xlabel='layer', ylabel='mean attention distance (pixels)',
         xlim=(0.5, layers + 0.5),
         ylim=(0, 1.08 * max(everywhere, float(pixels.max())) or 1))
  ax.set_xticks(range(1, layers + 1, max(1, layers // 12)))
  ax.spines[['top', 'right']].set_visible(False)
  # Away from the points, which may be anywhere.
  fig.legend(loc='outside lower center', frameon=False, fontsize=10, ncols=3)
  plots.save(fig, path)


def rollout(
    images: Sequence[UInt8[np.ndarray, 'height width 3']],
    maps: Float[np.ndarray, 'batch rows columns'],
    path: epath.PathLike, *, titles: Sequence[str] | None = None,
) -> None:
  """Draws images as the model sees them, and where it looks (figure 6).

  Each image is beside itself with brightness as the rollout says, and beside
  the map with its scale.

  Args:
    images: what the model saw.
    maps: of `attention.rollout_map`.
    path: picture to write.
    titles: of each image, by default none.
  """
  height, width = images[0].shape[:2]
  fig = _figure(7.2, (2.2 * height / width + 0.2) * len(images) + 0.3)
  axes = fig.subplots(len(images), 3, squeeze=False)
  for row, image, values in zip(axes, images, maps):
    # Never quite black: what is not looked at is still recognised.
    bright = 0.15 + 0.85 * _enlarged(
        values / values.max(), (height, width))
    row[0].imshow(image)
    row[1].imshow((image * bright[..., None]).astype(np.uint8))
    shown = row[2].imshow(
        100 * values, cmap='viridis', vmin=0, interpolation='nearest',
        extent=(0, width, height, 0))
    fig.colorbar(shown, ax=row[2], shrink=0.85, format=lambda x, _: f'{x:g} %'
                 ).ax.tick_params(labelsize=10)
    for ax in row:
      _frameless(ax)
      ax.set_xticks([])
      ax.set_yticks([])
  axes[0, 0].set_title('as the model sees it', fontsize=11)
  axes[0, 1].set_title('brightness: rollout', fontsize=11)
  axes[0, 2].set_title('share of each patch', fontsize=11)
  for row, title in zip(axes, titles or []):
    # The name of a file may have dollars, and is no formula.
    row[0].set_xlabel(
        _short(title, 60), fontsize=10, parse_math=False, loc='left')
  # Ticks are chosen by the room that a layout leaves: the next knows them.
  fig.draw_without_rendering()
  plots.save(fig, path)


def heads(
    maps: Float[np.ndarray, 'layers heads rows columns'],
    path: epath.PathLike, *, title: str = '',
) -> None:
  """Draws where each head of each layer looks; each map has its own scale.

  Args:
    maps: attention to each patch.
    path: picture to write.
    title: above the picture.
  """
  layers, count, rows, columns = maps.shape
  top = maps.max((2, 3), keepdims=True)
  # Cells of the image's shape, and of one area whatever that is.
  side = 0.62 * np.sqrt([columns / rows, rows / columns]).clip(0.5, 2)
  fig = _figure(max(3.2, side[0] * count + 1), max(2.2, side[1] * layers + 1))
  ax = fig.subplots()
  tiles, extent = _mosaic(maps / np.maximum(top, 1e-12))
  ax.imshow(tiles, cmap='viridis', vmin=0, vmax=1, interpolation='nearest',
            aspect=side[1] / side[0], extent=extent)
  ax.set_xticks(range(1, count + 1))
  ax.set_yticks(range(1, layers + 1))
  ax.set(xlabel='head', ylabel='layer')
  _frameless(ax)
  if title:
    fig.suptitle(_short(title, max(42, 6 * count)), fontsize=9,
                 parse_math=False)
  plots.save(fig, path)


def _mosaic(
    tiles: Float[np.ndarray, 'rows columns height width'],
) -> tuple[Float[np.ndarray, 'tall wide'],
           tuple[float, float, float, float]]:
  """Returns one array of all tiles, with a line of NaN between them.

  And its extent (left, right, bottom, top), where the centres of the tiles are
  1, 2, 3, ...
  """
  rows, columns, height, width = tiles.shape
  framed = np.full((rows, columns, height + 1, width + 1), np.nan)
  framed[..., :-1, :-1] = tiles
  whole = framed.swapaxes(1, 2).reshape(
      rows * (height + 1), columns * (width + 1))[:-1, :-1]
  # A tile and its line are 1; half a line is missing at each end.
  x, y = 0.5 - 0.5 / (width + 1), 0.5 - 0.5 / (height + 1)
  return whole, (1 - x, columns + x, rows + y, 1 - y)


def _enlarged(
    values: Float[np.ndarray, 'rows columns'], size: tuple[int, int],
) -> Float[np.ndarray, 'height width']:
  from PIL import Image
  image = Image.fromarray(values.astype(np.float32))
  enlarged = image.resize(size[::-1], Image.Resampling.BILINEAR)
  return np.asarray(enlarged, np.float64)


def _short(text: str, length: int = 28) -> str:
  """Returns the end of a long text: of a path it says the most."""
  return text if len(text) <= length else '…' + text[1 - length:]


def _grid(rows: int, columns: int, *, cell: float) -> tuple[Any, Any]:
  fig = _figure(cell * columns, cell * rows)
  axes = fig.subplots(rows, columns, squeeze=False)
  for ax in axes.flat:
    ax.set_axis_off()
    ax.set_visible(False)
  return fig, axes


def _frameless(ax: Any) -> None:
  ax.spines[:].set_visible(False)
  ax.tick_params(length=0, labelsize=9)


def _figure(width: float, height: float) -> Any:
  from matplotlib import figure  # They take a second to import.
  from matplotlib import layout_engine
  return figure.Figure(
      figsize=(width, height), dpi=_INCH,
      layout=layout_engine.ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05))
