"""Figures of a trained ViT: figures 6, 7, 10 and 14, reconstructions."""

from collections.abc import Mapping, Sequence
import types
from typing import Any

from etils import epath
from jaxtyping import Float, Real, UInt8
import numpy as np
from PIL import Image
from PIL import ImageDraw

from vit_jax import console
from vit_jax.extras import pictures as pictures_lib
from vit_jax.extras import plots

_DPI = 150
# Sides in pixels. A strip of four tiles is 940 pixels wide, about as a README;
# the figure of all heads is bounded for large models.
_STRIP_TILE, _PANEL, _HEADS, _HEAD_TILE = 112, 300, 1200, (56, 120)
_NONE: Mapping[str, Any] = types.MappingProxyType({})
Picture = UInt8[np.ndarray, 'height width 3']
Resized = UInt8[np.ndarray, 'new_height new_width 3']
Extent = tuple[float, float, float, float]


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
  fig = plots.new_figure(width + 1.3, width * rows / columns + 0.6, w_pad=0.05)
  ax = fig.subplots()
  drawn = _draw_tiles(
      ax, *mosaic(cosines), (rows, columns), cmap='viridis', vmin=-1, vmax=1,
      interpolation='nearest')
  ax.set(xlabel='column of the patch', ylabel='row of the patch')
  fig.colorbar(drawn, ax=ax, fraction=0.04, pad=0.02, label='cosine similarity')
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
    images: Sequence[Picture], maps: Float[np.ndarray, 'batch rows columns'],
    path: epath.PathLike, *, titles: Sequence[str] = (),
) -> None:
  """Draws inputs, and attention rollout over them (figure 6).

  `titles` are below the inputs.
  """
  large = _enlarge(images)
  pictures({'input': large, 'attention rollout': list(
      map(overlay, large, map(stretch, maps)))}, path, titles=titles)


def patches(
    images: Sequence[Picture],
    colours: Float[np.ndarray, 'images rows columns 3'],
    cosines: Float[np.ndarray, 'images rows columns'],
    path: epath.PathLike, *, row: int, column: int, titles: Sequence[str] = (),
) -> None:
  """Draws images, principal components of their patches, and cosines.

  A square marks the patch at (`row`, `column`), which the cosines refer to.
  `titles` are below the images.
  """
  large = _enlarge(images)
  pictures({
      'input': [outline(image, row, column, grid=cosines.shape[1:])
                for image in large],
      'principal components': list(map(tint, large, colours)),
      'cosine similarity': list(map(overlay, large, stretch(cosines)))},
           path, titles=titles)


def stretch(values: Float[np.ndarray, '...']) -> Float[np.ndarray, '...']:
  """Scales values from their median to their 99th percentile to 0 ... 1.

  A few patches without content may have most of the attention (Vision
  Transformers Need Registers, arXiv 2309.16588). Scaled to the maximum, they
  would hide all others.
  """
  low, high = np.percentile(values, (50, 99))
  return ((values - low) / max(high - low, 1e-12)).clip(0, 1)


def overlay(
    image: Picture, values: Float[np.ndarray, 'rows columns'],
) -> Picture:
  """Lays a map of 0 ... 1 over an image in grey, more opaque where higher."""
  from matplotlib import colormaps
  smooth = upsample(values, image)
  colours = 255 * colormaps['inferno'](0.25 + 0.7 * smooth)[..., :3]
  grey = 0.8 * image.mean(axis=-1, keepdims=True)
  return (grey + 0.85 * smooth[..., None]**0.6 * (colours - grey)).astype(
      np.uint8)


def tint(
    image: Picture, colours: Float[np.ndarray, 'rows columns 3'],
) -> Picture:
  """Lays colours of patches in 0 ... 1 over an image in grey."""
  grey = image.mean(axis=-1, keepdims=True)
  return (0.75 * 255 * upsample(colours, image) + 0.25 * grey).astype(np.uint8)


def upsample(
    values: Float[np.ndarray, 'rows columns *channels'], image: Picture,
) -> Float[np.ndarray, 'height width *channels']:
  """Returns values in 0 ... 1 at the size of an image (bicubic)."""
  height, width = image.shape[:2]
  channels = np.atleast_3d(values.astype(np.float32))
  smooth = np.stack([
      np.asarray(Image.fromarray(channels[..., i]).resize(
          (width, height), Image.Resampling.BICUBIC))
      for i in range(channels.shape[-1])], axis=-1)
  return smooth.clip(0, 1).reshape(height, width, *values.shape[2:])


def outline(
    image: Picture, row: int, column: int, *, grid: tuple[int, ...],
) -> Picture:
  """Draws a red square around one patch of an image."""
  drawn = Image.fromarray(image)
  high, wide = drawn.height / grid[0], drawn.width / grid[1]
  line = max(1, drawn.height // 70)
  ImageDraw.Draw(drawn).rectangle(
      (column * wide - line, row * high - line,
       (column + 1) * wide + line - 1, (row + 1) * high + line - 1),
      outline='red', width=line)
  return np.asarray(drawn)


def pictures(
    columns: Mapping[str, Sequence[Real[np.ndarray, '...']]],
    path: epath.PathLike, *, titles: Sequence[str] = (), title: str = '',
    legend: Mapping[str, Any] = _NONE,
) -> None:
  """Draws rows of pictures below the names of the columns.

  Args:
    columns: [height, width, channels] of bytes, or numbers in 0 ... 1, all
      drawn at the size of the first.
    path: file to write.
    titles: texts below the first pictures of the rows.
    title: title of the figure.
    legend: colours of its entries.
  """
  from matplotlib import patches as shapes
  first = next(iter(columns.values()))
  height, width = first[0].shape[:2]
  fig = plots.new_figure(
      max(4.0, 2.05 * len(columns) + 0.05),
      (2.04 * height / width + 0.25 * bool(titles)) * len(first)
      + 0.4 + 0.3 * bool(title) + 0.3 * bool(legend), w_pad=0.05)
  axes = fig.subplots(len(first), len(columns), squeeze=False)
  for panels, (name, images) in zip(axes.T, columns.items()):
    panels[0].set_title(name, fontsize=11)
    for ax, image in zip(panels, images):
      ax.imshow(image, cmap='gray', vmin=0, vmax=1, interpolation='nearest',
                extent=(0, width, height, 0))
  for ax in axes.flat:
    ax.spines[:].set_visible(False)
    ax.set(xticks=[], yticks=[])
  for ax, text in zip(axes[:, 0], titles):
    ax.set_xlabel(_title(text), fontsize=10, loc='left')
  if legend:
    plots.legend(fig, [shapes.Patch(color=colour, label=_title(name))
                       for name, colour in legend.items()])
  if title:
    plots.title(fig, console.shorten(title, 60))
  plots.save(fig, path)


def heads(
    maps: Float[np.ndarray, 'layers heads rows columns'], image: Picture,
    path: epath.PathLike, *, title: str = '',
) -> None:
  """Draws the attention of each head over the image, on its own scale."""
  layers, count = maps.shape[:2]
  small = _resize(image, int(np.clip(_HEADS / max(layers, count), *_HEAD_TILE)))
  joined, extent = mosaic(
      np.stack([[overlay(small, stretch(values)) for values in of_layer]
                for of_layer in maps]), gap=4, fill=255)
  height, width = small.shape[:2]
  fig = plots.new_figure(
      max(2.4, count * (width + 4) / _DPI + 0.5),
      max(2.4, layers * (height + 4) / _DPI + 0.8), w_pad=0.05)
  ax = fig.subplots()
  _draw_tiles(ax, joined, extent, (layers, count), aspect=height / width)
  ax.set(xlabel='head', ylabel='layer')
  fig.suptitle(_title(title, max(42, 6 * count)), fontsize=9)
  plots.save(fig, path)


def strip(
    tiles: Mapping[str, Sequence[Picture]], path: epath.PathLike, *,
    rows: int = 3, columns: int = 2,
) -> None:
  """Draws named tiles side by side, each of rows and columns of pictures.

  All pictures have one size. Further ones of a tile are left out.
  """
  gap, margin = 2, 12
  rows = min(rows, max(-(-len(tile) // columns) for tile in tiles.values()))
  first, *_ = next(iter(tiles.values()))
  height, width = _resize(first, _STRIP_TILE).shape[:2]
  joined: list[np.ndarray] = []
  for pictures_of_tile in tiles.values():
    cells = np.full((rows * columns, height, width, 3), 255, np.uint8)
    for cell, picture in zip(cells, pictures_of_tile):
      cell[:] = _resize(picture, _STRIP_TILE)
    tile, _ = mosaic(cells.reshape(rows, columns, height, width, 3), gap=gap,
                     fill=255)
    joined += [tile, np.full((len(tile), margin, 3), 255, np.uint8)]
  whole = np.concatenate(joined[:-1], axis=1)
  fig = plots.new_figure(whole.shape[1] / _DPI, whole.shape[0] / _DPI + 0.17)
  fig.figimage(whole)  # Pixel by pixel, without another interpolation.
  centre, step = joined[0].shape[1] / 2, joined[0].shape[1] + margin
  for i, name in enumerate(tiles):
    fig.text((i * step + centre) / whole.shape[1], 0.995, name, fontsize=7,
             ha='center', va='top')
  plots.save(fig, path)


def _resize(image: Picture, longer: int) -> Resized:
  """Returns an image whose longer side has that many pixels (bicubic)."""
  height, width = (max(1, round(longer * side / max(image.shape[:2])))
                   for side in image.shape[:2])
  return np.asarray(Image.fromarray(image).resize(
      (width, height), Image.Resampling.BICUBIC))


def _enlarge(images: Sequence[Picture]) -> list[Resized]:
  """Enlarges images of few pixels, so that maps over them are smooth."""
  return [_resize(image, max(_PANEL, *image.shape)) for image in images]


def _draw_tiles(
    ax: Any, joined: np.ndarray, extent: Extent, shape: tuple[int, int],
    **options: Any,
) -> Any:
  """Draws a mosaic of rows and columns that are numbered from 1."""
  for axis, count in zip((ax.yaxis, ax.xaxis), shape):
    axis.set_ticks(range(1, count + 1, max(1, count // 14)))
  ax.spines[:].set_visible(False)
  ax.tick_params(length=0, labelsize=9)
  return ax.imshow(joined, extent=extent, **options)


def mosaic(
    tiles: Real[np.ndarray, 'rows columns height width *channels'], *,
    gap: int = 1, fill: float = np.nan,
) -> tuple[Real[np.ndarray, 'mosaic_height mosaic_width *channels'], Extent]:
  """Joins tiles, with lines of `gap` pixels of the value `fill` between them.

  Returns:
    The mosaic, and its extent (left, right, bottom, top) in a coordinate
    system where tile centres are at 1, 2, 3, ...
  """
  rows, columns, height, width, *channels = tiles.shape
  framed = np.full(
      (rows, columns, height + gap, width + gap, *channels), fill, tiles.dtype)
  framed[:, :, :height, :width] = tiles
  joined = framed.swapaxes(1, 2).reshape(
      rows * (height + gap), columns * (width + gap), *channels)
  x, y = 0.5 - 0.5 * gap / (width + gap), 0.5 - 0.5 * gap / (height + gap)
  return joined[:-gap, :-gap], (1 - x, columns + x, rows + y, 1 - y)


def _title(text: str, length: int = 60) -> str:
  return plots.drawable(console.shorten(text, length))
