"""Figures of a trained ViT: figures 6, 7, 10 and 14, reconstructions."""

from collections.abc import Mapping, Sequence
import types
from typing import Any

from etils import epath
from jaxtyping import Float, Real, UInt8
import numpy as np
from PIL import Image

from vit_jax import console
from vit_jax.analysis import plots

_DPI = 150


def filters(
    components: Float[np.ndarray, 'filters height width channels'],
    path: epath.PathLike, *, columns: int = 7,
) -> None:
  """Draws filters, each on its own scale; grey is zero (figure 7, left)."""
  count = len(components)
  columns = min(columns, count)
  rows = -(-count // columns)
  fig = plots.new_figure(1.05 * columns, 1.05 * rows, w_pad=0.05)
  axes = fig.subplots(rows, columns, squeeze=False)
  for ax in axes.flat:
    ax.set_axis_off()
  for ax, component in zip(axes.flat, components):
    is_rgb = component.shape[-1] >= 3
    image = component[..., :3] if is_rgb else component[..., 0]
    image = 0.5 + 0.5 * image / max(1e-12, np.abs(image).max())
    ax.imshow(image, cmap='gray', vmin=0, vmax=1, interpolation='nearest')
  plots.save(fig, path)


def similarity(
    cosines: Float[np.ndarray, 'rows columns rows columns'],
    path: epath.PathLike,
) -> None:
  """Draws one map per patch: similarity to all patches (figure 7, centre)."""
  rows, columns = cosines.shape[:2]
  # At least two dots per value.
  width = max(6.3, 2 * columns * (columns + 1) / _DPI)
  fig = plots.new_figure(
      width + 1.3, width * rows / columns + 0.6, w_pad=0.05)
  ax = fig.subplots()
  drawn = _draw_mosaic(ax, cosines, vmin=-1)
  ax.set(xlabel='column of the patch', ylabel='row of the patch')
  fig.colorbar(drawn, ax=ax, fraction=0.04, pad=0.02,
               label='cosine similarity')
  plots.save(fig, path)


def distance(
    pixels: Float[np.ndarray, 'layers heads'], path: epath.PathLike, *,
    uniform: float,
) -> None:
  """Draws the mean attention distance of every head (figure 7, right).

  A line marks the distance of `uniform` attention.
  """
  layers, heads = pixels.shape
  numbers = np.arange(1, layers + 1)
  fig = plots.new_figure(6.4, 4.2)
  ax = fig.subplots()
  ax.plot(np.repeat(numbers, heads), pixels.ravel(), 'o',
          color=plots.COLOURS[0], markersize=4, alpha=0.6, markeredgewidth=0,
          label='head')
  ax.plot(numbers, pixels.mean(1), color='black', linewidth=1,
          label='mean over heads')
  ax.axhline(uniform, color='#555555', linewidth=1, linestyle='--',
             label='uniform attention')
  ax.set(xlabel='layer', ylabel='mean attention distance (pixels)',
         xlim=(0.5, layers + 0.5),
         ylim=(0, 1.08 * max(uniform, float(pixels.max())) or 1))
  ax.set_xticks(numbers[::max(1, layers // 12)])
  plots.style(ax, grid=False)
  fig.legend(loc='outside lower center', frameon=False, fontsize=10, ncols=3)
  plots.save(fig, path)


def rollout(
    images: Sequence[UInt8[np.ndarray, 'height width 3']],
    maps: Float[np.ndarray, 'batch rows columns'],
    path: epath.PathLike, *, titles: Sequence[str] = (),
) -> None:
  """Draws inputs and their attention rollout (figure 6).

  Columns: the model's input, the input with brightness by rollout, and the
  rollout map. `titles` are below the inputs.
  """
  height, width = images[0].shape[:2]
  fig, axes = _rows_of_three(images)
  for row, image, values in zip(axes, images, maps):
    resized = Image.fromarray((values / values.max()).astype(np.float32)
                              ).resize((width, height))
    # Never black, so that the whole image remains recognisable.
    brightness = 0.15 + 0.85 * np.asarray(resized).clip(0, 1)
    row[0].imshow(image)
    row[1].imshow((image * brightness[..., None]).astype(np.uint8))
    drawn = row[2].imshow(
        100 * values, cmap='viridis', vmin=0, interpolation='nearest',
        extent=(0, width, height, 0))
    _add_bar(fig, drawn, format=lambda x, _: f'{x:g} %')
  _name_panels(
      axes, ('input', 'brightness: rollout', 'share of each patch'), titles)
  # The ticks of the colour bars depend on a first layout.
  fig.draw_without_rendering()
  plots.save(fig, path)


def pictures(
    columns: Mapping[str, Sequence[Real[np.ndarray, 'height width channels']]],
    path: epath.PathLike, *, titles: Sequence[str] = (), title: str = '',
    legend: Mapping[str, Any] = types.MappingProxyType({}),
) -> None:
  """Draws rows of pictures in 0 ... 1, below the names of the columns.

  `titles` are below the first pictures of the rows; `legend` has the colours of
  its entries.
  """
  from matplotlib import patches as shapes
  first = next(iter(columns.values()))
  height, width = first[0].shape[:2]
  fig = plots.new_figure(
      6.2, (2.04 * height / width + 0.25 * bool(titles)) * len(first)
      + 0.4 + 0.3 * bool(title) + 0.3 * bool(legend), w_pad=0.05)
  axes = fig.subplots(len(first), len(columns), squeeze=False)
  for panels, images in zip(axes.T, columns.values()):
    for ax, image in zip(panels, images):
      ax.imshow(image, cmap='gray', vmin=0, vmax=1, interpolation='nearest')
  _name_panels(axes, tuple(columns), titles)
  if legend:
    # At 9 points a letter is 0.08 inches wide, and a colour 0.5.
    entry_inches = 0.5 + 0.08 * max(map(len, legend))
    fig.legend(
        handles=[shapes.Patch(color=colour, label=_title(name))
                 for name, colour in legend.items()],
        loc='outside lower center', frameon=False, fontsize=9,
        ncols=max(1, int(fig.get_figwidth() / entry_inches)))
  if title:
    fig.suptitle(_title(title), fontsize=12, fontweight='bold')
  plots.save(fig, path)


def patches(
    images: Sequence[UInt8[np.ndarray, 'height width 3']],
    colours: Float[np.ndarray, 'images rows columns 3'],
    cosines: Float[np.ndarray, 'images rows columns'],
    path: epath.PathLike, *, row: int, column: int, titles: Sequence[str] = (),
) -> None:
  """Draws images, principal components of their patches, and cosines.

  A square marks the patch at (`row`, `column`), which the cosines refer to.
  `titles` are below the images.
  """
  from matplotlib import patches as shapes
  height, width = images[0].shape[:2]
  side = height / cosines.shape[1], width / cosines.shape[2]
  fig, axes = _rows_of_three(images)
  for panels, image, colour, cosine in zip(axes, images, colours, cosines):
    options: Any = {
        'interpolation': 'nearest', 'extent': (0, width, height, 0)}
    panels[0].imshow(image, **options)
    panels[1].imshow(colour, **options)
    drawn = panels[2].imshow(
        cosine, cmap='viridis', vmin=float(cosines.min()), vmax=1, **options)
    _add_bar(fig, drawn)
    for ax in panels[::2]:
      ax.add_patch(shapes.Rectangle(
          (column * side[1], row * side[0]), side[1], side[0], fill=False,
          edgecolor='red', linewidth=1.5, clip_on=False))
  _name_panels(
      axes, ('input', 'principal components', 'cosine similarity'), titles)
  fig.draw_without_rendering()
  plots.save(fig, path)


def _rows_of_three(images: Sequence[np.ndarray]) -> tuple[Any, Any]:
  """Returns a figure, and its axes for each image."""
  height, width = images[0].shape[:2]
  fig = plots.new_figure(
      7.2, (2.2 * height / width + 0.2) * len(images) + 0.3, w_pad=0.05)
  return fig, fig.subplots(len(images), 3, squeeze=False)


def _add_bar(fig: Any, drawn: Any, **options: Any) -> None:
  bar = fig.colorbar(drawn, ax=drawn.axes, shrink=0.85, **options)
  bar.ax.tick_params(labelsize=10)


def _name_panels(
    axes: Any, columns: Sequence[str], rows: Sequence[str]) -> None:
  """Removes the axes of images, and names columns and rows."""
  for ax in axes.flat:
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])
  for ax, title in zip(axes[0], columns):
    ax.set_title(title, fontsize=11)
  for ax, title in zip(axes[:, 0], rows):
    ax.set_xlabel(_title(title), fontsize=10, loc='left')


def heads(
    maps: Float[np.ndarray, 'layers heads rows columns'],
    path: epath.PathLike, *, title: str = '',
) -> None:
  """Draws the attention map of each head, each on its own scale."""
  layers, count, rows, columns = maps.shape
  title = _title(title, max(42, 6 * count))
  # Tiles have the image's aspect ratio and a constant area.
  side = 0.62 * np.sqrt([columns / rows, rows / columns]).clip(0.5, 2)
  fig = plots.new_figure(
      max(3.2, side[0] * count + 1), max(2.2, side[1] * layers + 1),
      w_pad=0.05)
  ax = fig.subplots()
  highest = np.maximum(maps.max((2, 3), keepdims=True), 1e-12)
  _draw_mosaic(ax, maps / highest, vmin=0, aspect=side[1] / side[0])
  ax.set(xlabel='head', ylabel='layer')
  fig.suptitle(title, fontsize=9)
  plots.save(fig, path)


def _draw_mosaic(
    ax: Any, tiles: Float[np.ndarray, 'rows columns height width'], *,
    vmin: float, **options: Any,
) -> Any:
  """Draws tiles side by side, numbered from 1."""
  joined, extent = mosaic(tiles)
  for axis, count in zip((ax.yaxis, ax.xaxis), tiles.shape):
    axis.set_ticks(range(1, count + 1, max(1, count // 14)))
  ax.spines[:].set_visible(False)
  ax.tick_params(length=0, labelsize=9)
  return ax.imshow(joined, cmap='viridis', vmin=vmin, vmax=1,
                   interpolation='nearest', extent=extent, **options)


def mosaic(
    tiles: Float[np.ndarray, 'rows columns height width'],
) -> tuple[Float[np.ndarray, 'mosaic_height mosaic_width'],
           tuple[float, float, float, float]]:
  """Joins tiles with lines of NaN between them.

  Returns:
    The mosaic, and its extent (left, right, bottom, top) in a coordinate
    system where tile centres are at 1, 2, 3, ...
  """
  rows, columns, height, width = tiles.shape
  framed = np.full((rows, columns, height + 1, width + 1), np.nan)
  framed[..., :-1, :-1] = tiles
  joined = framed.swapaxes(1, 2).reshape(
      rows * (height + 1), columns * (width + 1))[:-1, :-1]
  x, y = 0.5 - 0.5 / (width + 1), 0.5 - 0.5 / (height + 1)
  return joined, (1 - x, columns + x, rows + y, 1 - y)


def _title(text: str, length: int = 60) -> str:
  return plots.drawable(console.shorten(text, length))
