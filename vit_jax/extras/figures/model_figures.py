"""Figures of a trained ViT: figures 6, 7, 10 and 14, reconstructions."""

from collections.abc import Mapping, Sequence
import types
from typing import Any

from etils import epath
from jaxtyping import Float, Real, UInt8
import numpy as np
from PIL import Image

from vit_jax import console
from vit_jax.extras import pictures as pictures_lib
from vit_jax.extras import plots

_DPI = 150
_NONE: Mapping[str, Any] = types.MappingProxyType({})


def filters(
    components: Float[np.ndarray, 'filters height width channels'],
    path: epath.PathLike, *, columns: int = 7, title: str = '',
) -> None:
  """Draws filters, each on its own scale; grey is zero (figure 7, left)."""
  fig, axes = plots.new_panels(
      len(components), columns=columns, width=1.05, height=1.05,
      title_inches=0.4, w_pad=0.05)
  fig.suptitle(title, fontsize=10)
  for ax, component in zip(axes, components):
    image = pictures_lib.visible(component)
    image = 0.5 + 0.5 * image / max(1e-12, np.abs(image).max())
    ax.imshow(image, cmap='gray', vmin=0, vmax=1, interpolation='nearest')
    ax.set_axis_off()
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
  low, high = (f(uniform, pixels.min(), pixels.max()) for f in (min, max))
  margin = max(0.15 * (high - low), 0.05 * high)
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
         ylim=(max(0, low - margin), high + margin))
  ax.set_xticks(numbers[::max(1, layers // 12)])
  plots.style(ax, grid=False)
  plots.legend(fig)
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
  darkened = []
  for image, values in zip(images, maps):
    resized = Image.fromarray((values / values.max()).astype(np.float32)
                              ).resize((width, height))
    # Never black, so that the whole image remains recognisable.
    brightness = 0.15 + 0.85 * np.asarray(resized).clip(0, 1)
    darkened.append((image * brightness[..., None]).astype(np.uint8))
  pictures({'input': images, 'brightness: rollout': darkened}, path,
           maps={'share of each patch': 100 * maps}, unit=' %', titles=titles,
           limits=(0, float(100 * maps.max())))


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
  pictures({'input': images, 'principal components': list(colours)}, path,
           maps={'cosine similarity': cosines}, mark=(row, column),
           limits=(float(cosines.min()), 1), titles=titles)


def pictures(
    columns: Mapping[str, Sequence[Real[np.ndarray, '...']]],
    path: epath.PathLike, *,
    maps: Mapping[str, Float[np.ndarray, 'images rows columns']] = _NONE,
    limits: tuple[float, float | None] = (0, None), unit: str = '',
    mark: tuple[int, int] | None = None, titles: Sequence[str] = (),
    title: str = '', legend: Mapping[str, Any] = _NONE,
) -> None:
  """Draws rows of pictures below the names of the columns.

  Args:
    columns: [height, width, channels] of bytes, or numbers in 0 ... 1, all
      drawn at the size of the first.
    path: file to write.
    maps: further columns, of values per patch, with colour bars.
    limits: ends of the colour bars; None for the maximum of each map.
    unit: unit of the maps.
    mark: row and column of the patch to mark in the first and last pictures.
    titles: texts below the first pictures of the rows.
    title: title of the figure.
    legend: colours of its entries.
  """
  from matplotlib import patches as shapes
  first = next(iter(columns.values()))
  height, width = first[0].shape[:2]
  fig = plots.new_figure(
      7.2 if maps else 6.2,
      (2.04 * height / width + 0.25 * bool(titles)) * len(first)
      + 0.4 + 0.3 * bool(title) + 0.3 * bool(legend), w_pad=0.05)
  axes = fig.subplots(len(first), len(columns) + len(maps), squeeze=False)
  options: Any = {'interpolation': 'nearest', 'extent': (0, width, height, 0)}
  for panels, name in zip(axes.T, (*columns, *maps)):
    panels[0].set_title(name, fontsize=11)
    for ax, image in zip(panels, columns.get(name, ())):
      ax.imshow(image, cmap='gray', vmin=0, vmax=1, **options)
    for ax, values in zip(panels, maps.get(name, ())):
      drawn = ax.imshow(values, cmap='viridis', vmin=limits[0], vmax=limits[1],
                        **options)
      fig.colorbar(drawn, ax=ax, shrink=0.85,
                   format=lambda x, _: f'{x:g}{unit}')
  for ax in axes.flat:
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])
  for ax, text in zip(axes[:, 0], titles):
    ax.set_xlabel(_title(text), fontsize=10, loc='left')
  if mark:
    rows, patches_per_row = next(iter(maps.values())).shape[1:]
    high, wide = height / rows, width / patches_per_row
    for ax in axes[:, [0, -1]].flat:
      ax.add_patch(shapes.Rectangle(
          (mark[1] * wide, mark[0] * high), wide, high, fill=False,
          edgecolor='red', linewidth=1.5, clip_on=False))
  if legend:
    plots.legend(fig, [shapes.Patch(color=colour, label=_title(name))
                       for name, colour in legend.items()])
  if title:
    plots.title(fig, console.shorten(title, 60))
  # The ticks of the colour bars depend on a first layout.
  fig.draw_without_rendering()
  plots.save(fig, path)


def heads(
    maps: Float[np.ndarray, 'layers heads rows columns'],
    path: epath.PathLike, *, title: str = '',
    image: UInt8[np.ndarray, 'height width 3'] | None = None,
) -> None:
  """Draws an image and the attention map of each head, on its own scale."""
  layers, count, rows, columns = maps.shape
  title = _title(title, max(42, 6 * count))
  # Tiles have the image's aspect ratio and a constant area.
  side = 0.62 * np.sqrt([columns / rows, rows / columns]).clip(0.5, 2)
  width = max(2.4, side[0] * count)
  fig = plots.new_figure(
      width + 2.0 + 2.0 * (image is not None), max(2.4, side[1] * layers + 1),
      w_pad=0.05)
  *left, ax = fig.subplots(
      1, 1 + (image is not None), squeeze=False, width_ratios=(
          [2.0, width] if image is not None else [width])).flat
  for panel in left:
    panel.imshow(image)
    panel.set_axis_off()
    panel.set_title('input', fontsize=10)
  highest = np.maximum(maps.max((2, 3), keepdims=True), 1e-12)
  drawn = _draw_mosaic(
      ax, maps / highest, vmin=0, aspect=side[1] / side[0])
  fig.colorbar(drawn, ax=ax, fraction=0.04, pad=0.02,
               label='attention / highest attention of the head')
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
