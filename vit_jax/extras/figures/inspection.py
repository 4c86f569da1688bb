"""Figures of a model, as in section 4.5 of the ViT paper, with their captions.

Each function draws PNG files and returns the sections of the HTML page that
shows them. A section without a picture says why there is none.
"""

from collections.abc import Callable, Iterable, Sequence
import functools
from typing import Any

from etils import epath
import numpy as np
from PIL import Image

from vit_jax import console as console_lib
from vit_jax import registry
from vit_jax import tree
from vit_jax.data import preprocessing
from vit_jax.data.images import ops as ops_lib
from vit_jax.exceptions import UserError
from vit_jax.extras import html_page
from vit_jax.extras import pictures as pictures_lib
from vit_jax.extras.figures import attention_maps
from vit_jax.extras.figures import embeddings
from vit_jax.extras.figures import model_figures
from vit_jax.extras.figures import patch_features
from vit_jax.extras.figures import prediction_figures
from vit_jax.extras.figures import reconstruction as reconstruction_lib
from vit_jax.inference import attention as attention_lib
from vit_jax.inference import image_files
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib
from vit_jax.models import vit
from vit_jax.run import workdir as workdir_lib

PATCHES, ROOT = 'patches/kernel', 'backbone/root/kernel'
Tiles = dict[str, list[model_figures.Picture]]
# Tiles of the strip; the last one is drawn if there is no reconstruction.
TILES = ('principal components', 'attention of the heads', 'attention rollout',
         'reconstruction', 'similarity to one patch')
ROWS = 3
_SCALE = (' Each map is scaled from its median (transparent) to its 99th '
          'percentile (yellow).')
# Output that a rollout map explains, by pooling.
_ROLLOUT_TARGETS = {
    'cls': 'the class token',
    'average': 'the mean of the patches',
    'cls_average': 'the mean of the patches (without the class token)',
    'cls_registers': 'the mean of the patches (without class token and '
                     'registers)',
    'attention': 'the mean of the patches (without the attention pooling of '
                 'the head)'}


def filters(model: model_lib.Model, path: epath.Path) -> html_page.Section:
  """Draws the filters of the patch embedding (figure 7, left)."""
  params = tree.flatten(model.params)
  # The patch embedding of a hybrid acts on feature maps, not on pixels.
  if ROOT in params:
    drawn = embeddings.convolution(np.asarray(params[ROOT]))
    text = (f'The {len(drawn)} filters of {ROOT}, standardised as the network '
            'applies them')
  elif PATCHES not in params:
    raise UserError(
        f'inspect draws ViTs and ResNets, but {model.config.describe()} has '
        f'neither {PATCHES} nor {ROOT}.')
  else:
    drawn = embeddings.filters(np.asarray(params[PATCHES]))
    text = (f'Principal components of {PATCHES}, the strongest first (figure '
            '7, left)')
  model_figures.filters(
      drawn, path, columns=8 if ROOT in params else 7, title=(
          f'filters of {ROOT}' if ROOT in params else
          f'principal components of {PATCHES}'))
  return html_page.Section('Filters', f'{text}; grey is zero.', path)


def positions(
    model: model_lib.Model, path: epath.Path) -> html_page.Section:
  """Draws the similarity of position embeddings (figure 7, centre)."""
  title, config = 'Position embeddings', model.config
  if not isinstance(config, vit.ViTConfig):
    return html_page.Section(title, 'A ResNet has no position embeddings.')
  grid = config.grid(model.resolution)
  table = embeddings.patch_positions(model.params, config, grid)
  if table is None:
    return html_page.Section(
        title, f'The model adds no position embedding: model.position is '
        f'{config.position!r}.')
  model_figures.similarity(embeddings.similarity(table, grid=grid), path)
  return html_page.Section(
      title, 'Cosine similarity of the position embedding of each patch to '
      'the embeddings of all patches (figure 7, centre)'
      + (', in the first layer.' if getattr(
          config, 'position_at', '') == 'layers' else '.'),
      path)


def reconstruction(
    model: model_lib.Model, paths: Sequence[str], path: epath.Path, *,
    tiles: Tiles,
) -> list[html_page.Section]:
  """Draws reconstructions, if the model was trained to reconstruct images.

  Args:
    model: the model.
    paths: images to draw.
    path: figure to write.
    tiles: receives the pictures for `strip`.
  """
  trained = reconstruction_lib.load(model)
  if trained is None or not paths:
    return []
  # Unreadable images are reported with the attention.
  batch = next(images_lib.batches(
      paths, trained.preprocess, size=len(paths),
      on_error=lambda *_: None), None)
  if batch is None:
    return []
  names, arrays = batch
  columns = dict(zip(('input', 'masked', 'reconstructed'), (
      list(pictures_lib.visible(array))
      for array in trained.of_images(arrays[:len(names)]))))
  model_figures.pictures(
      columns, path, titles=[_title(str(name)) for name in names])
  tiles['reconstruction'] = [
      np.asarray(pictures_lib.to_image(picture, (0, 1)).convert('RGB'))
      for pair in zip(columns['masked'], columns['reconstructed'])
      for picture in pair]
  return [html_page.Section(
      'Reconstruction', 'Images with random masked patches (grey), and with '
      'these patches as predicted in pre-training, at its resolution (MAE, '
      'figure 2). For normalised targets, mean and deviation of each patch are '
      f'the true ones.{_channels(model)}', path)]


def segmentation(
    model: model_lib.Model, paths: Sequence[str], path: epath.Path, *,
    batch_size: int,
) -> list[html_page.Section]:
  """Draws the predicted classes of pixels, next to the masks of the images.

  Args:
    model: the model; without a decoder, there is no section.
    paths: images to draw; masks are found as in data with masks.
    path: figure to write.
    batch_size: images per batch.
  """
  if not paths or not model.has_decoder:
    return []
  leaf = registry.load(registry.SEGMENTATION)
  names, found = _collect(
      model, paths, batch_size, lambda names, outputs: map(
          functools.partial(leaf.of_image, model), names, outputs['logits']))
  if not names:
    return []
  images = [np.asarray(images_lib.open_image(name, model.preprocess))
            for name in names]
  classes = {'prediction': found}
  find_mask = registry.load(registry.MASK_FOLDERS).find_mask
  masks = [find_mask(str(name)) for name in names]
  if any(masks):
    classes = {'label': [
        np.asarray(Image.open(mask)).astype(np.uint8) if mask  # Or 1 bit.
        else np.full_like(one, 255)
        for mask, one in zip(masks, found)], **classes}
  prediction_figures.segmentation(
      images, classes, path, names=model.preprocess.labels,
      titles=[_title(str(name)) for name in names])
  return [html_page.Section(
      'Segmentation', 'Predicted classes of pixels'
      + ', next to the labels in the masks' * any(masks) + '. Grey pixels have '
      'no class.', path)]


def patches(
    model: model_lib.Model, paths: Sequence[str], path: epath.Path, *,
    patch: tuple[int, int], layer: int | None, batch_size: int, tiles: Tiles,
) -> list[html_page.Section]:
  """Draws the features of patches, if the images can be displayed.

  Args:
    model: the model.
    paths: images to draw.
    path: figure to write.
    patch: row and column of the patch to which others are compared.
    layer: layer of the features, from 1, or None for the final norm.
    batch_size: images per batch.
    tiles: receives the pictures for `strip`.
  """
  name = 'patches' if layer is None else f'patches:{layer}'
  if not paths or not model.config.num_layers:
    return []
  row, column = patch
  names, found = _collect(
      model, paths, batch_size,
      lambda _, outputs: model.extract_layer(outputs, name),
      names=(model.layer_output(name),))
  if not names:
    return []
  values, images = np.stack(found), _pictures(model, names)
  # Over few images, parts of one kind of object get equal colours.
  tiles['principal components'] = [
      picture for image, colours in zip(
          images, patch_features.colours(values[:ROWS]))
      for picture in (image, model_figures.tint(image, colours))]
  first, *others = map(model_figures.overlay, images, model_figures.stretch(
      patch_features.similarity(
          values, row=row, column=column, of_first=True)))
  tiles['similarity to one patch'] = [model_figures.outline(
      first, row, column, grid=values.shape[1:3]), *others]
  model_figures.patches(
      images, patch_features.colours(values),
      patch_features.similarity(values, row=row, column=column), path,
      row=row, column=column, titles=[_title(str(n)) for n in names])
  return [html_page.Section(
      'Patch features', 'First three principal components of the patches of '
      'all drawn images as red, green and blue (DINOv2, figure 1), and cosine '
      f'similarity to the patch in row {row + 1} and column {column + 1}, '
      + (f'after layer {layer}.' if layer is not None
         else 'after the final norm.') + _channels(model), path)]


def attention(
    model: model_lib.Model, paths: Sequence[str], output: epath.Path, *,
    show: int, batch_size: int, reading: image_files.ReadProgress,
    layer: int | None, statistics: dict[str, Any], tiles: Tiles,
) -> list[html_page.Section]:
  """Draws attention distances, rollouts and the attention of each head.

  Args:
    model: the model.
    paths: images over which distances are averaged.
    output: folder of the figures.
    show: number of images to draw.
    batch_size: images per batch.
    reading: receives the progress and unreadable images.
    layer: layer whose heads are in `tiles`, from 1, or None for the last one.
    statistics: receives the mean distances and the number of images.
    tiles: receives the pictures for `strip`.
  """
  title, config = 'Attention', model.config
  if not isinstance(config, vit.ViTConfig):
    return [html_page.Section(title, 'A ResNet has no attention.')]
  if config.axial:
    return [html_page.Section(
        title, 'Axial attention is not drawn: it has no weights between all '
        'pairs of patches.')]
  if not paths:
    return [html_page.Section(
        title, 'Name images to draw attention: inspect --model=... photos/')]
  height, width = model.preprocess.resolution
  grid = config.grid((height, width))
  height_width = config.image_size((1, 1))
  patch = float(height_width[0]), float(height_width[1])
  names, maps, rollouts, distances = _measure_attention(
      model, paths, show=show, batch_size=batch_size, reading=reading,
      grid=grid, patch=patch, pooling=config.pooling)
  if not distances:
    return [html_page.Section(title, 'No image could be read.')]
  mean_distance = np.mean(distances, axis=0)
  statistics['mean_attention_distance'] = mean_distance.tolist()
  statistics['pictures'] = len(distances)
  model_figures.distance(
      mean_distance, output / 'distance.png',
      uniform=float(attention_maps.distances(grid, patch).mean()))
  sections = [html_page.Section(
      'Mean attention distance', 'Mean attention distance of each head over '
      f'{console_lib.format_count(len(distances), "image")} of {height} x '
      f'{width} pixels in patches of {patch[0]:g} x {patch[1]:g} (figure 7, '
      'right).', output / 'distance.png')]
  pictures = _pictures(model, names)
  model_figures.rollout(
      pictures, np.stack(rollouts), output / 'rollout.png',
      titles=list(map(_title, names)))
  tiles['attention of the heads'] = [
      model_figures.overlay(pictures[0], model_figures.stretch(values))
      for values in maps[0][(layer or 0) - 1]]
  tiles['attention rollout'] = [
      model_figures.overlay(*pair) for pair in zip(
          pictures, map(model_figures.stretch, rollouts))]
  sections.append(html_page.Section(
      'Attention rollout', 'Share of each patch in '
      f'{_ROLLOUT_TARGETS[config.pooling]}: the product of the attention of '
      'all layers, averaged over heads (figures 6 and 14).'
      + _channels(model), output / 'rollout.png'))
  query = 'the class token' if config.pooling == 'cls' else (
      'all patches on average')
  for number, (name, of_heads, picture) in enumerate(
      zip(names, maps, pictures), start=1):
    path = output / (f'heads_{number}.png' if number > 1 else 'heads.png')
    model_figures.heads(of_heads, picture, path, title=_title(name))
    sections.append(html_page.Section(
        f'Heads, image {number}', f'Attention of each head in {_title(name)} '
        f'from {query}.{_SCALE}', path))
  return sections


def _measure_attention(
    model: model_lib.Model, paths: Sequence[str], *, show: int,
    batch_size: int, reading: image_files.ReadProgress, grid: tuple[int, int],
    patch: tuple[float, float], pooling: str,
) -> tuple[list[str], list[Any], list[Any], list[Any]]:
  """Returns names, maps of heads and rollouts of images to draw, and distances.

  The distances are those of all images; see `attention`.
  """
  names: list[str] = []
  maps, rollouts, distances = [], [], []
  for batch, outputs in model.outputs(
      paths, batch_size=batch_size, names=('layers',),
      on_error=reading.add_error):
    weights = np.asarray(outputs['layers']['attention'], np.float32)
    for i, path in enumerate(batch):
      of_image = weights[:, i:i + 1]
      distances.append(attention_maps.mean_distance(
          of_image, grid=grid, patch=patch))
      if len(names) < show:
        names.append(str(path))
        maps.append(attention_maps.head_maps(
            of_image[:, 0], grid=grid, pooling=pooling))
        rollouts.append(attention_lib.rollout_map(
            of_image, grid=grid, pooling=pooling)[0])
    reading.advance(len(batch))
  return names, maps, rollouts, distances


def strip(
    tiles: Tiles, path: epath.Path, *, layer: int | None,
) -> list[html_page.Section]:
  """Draws the pictures that were collected as one strip of four tiles.

  Args:
    tiles: pictures by the names in `TILES`.
    path: figure to write.
    layer: layer of the patch features and the heads, from 1, or None.
  """
  shown = {name: tiles[name] for name in TILES if name in tiles}
  if not shown:
    return []
  shown = dict(list(shown.items())[:4])
  model_figures.strip(shown, path, rows=ROWS)
  after = f'layer {layer}' if layer else 'the last layer'
  texts = {
      TILES[0]: f'first three principal components of the patches of {ROWS} '
                f'images after {after} as red, green and blue',
      TILES[1]: f'attention of six heads of {after} in the first image',
      TILES[2]: 'attention rollout',
      TILES[3]: 'images with masked patches, as predicted',
      TILES[4]: 'cosine similarity of all patches to the marked one'}
  text = '; '.join(texts[name] for name in shown)
  return [html_page.Section(
      'Overview', f'From left to right: {text}. Details are below.', path)]


def curves(workdir: epath.Path | None) -> list[html_page.Section]:
  """Returns the training curves that a run drew, if there are any."""
  if not workdir or not (path := workdir / workdir_lib.CURVES).exists():
    return []
  return [html_page.Section('Curves', 'Training curves of the run.', path)]


def _collect(
    model: model_lib.Model, paths: Sequence[str], batch_size: int,
    take: Callable[[Sequence[Any], Any], Iterable[Any]], **options: Any,
) -> tuple[list[Any], list[Any]]:
  """Returns readable images, and what `take` keeps of each one's outputs.

  The others are reported with the attention.
  """
  names: list[Any] = []
  found: list[Any] = []
  for batch, outputs in model.outputs(
      paths, batch_size=batch_size, on_error=lambda *_: None, **options):
    names += batch
    found.extend(take(batch, outputs))
  return names, found


def _pictures(
    model: model_lib.Model, names: Sequence[Any]) -> list[np.ndarray]:
  """Returns images as the model sees them, as RGB arrays."""
  return [np.asarray(_picture(name, model.preprocess).convert('RGB'))
          for name in names]


def _picture(
    image: Any, preprocess: preprocessing.Preprocess) -> Image.Image:
  """Returns an image as the model sees it; see `pictures.to_image`."""
  found = images_lib.resized(image, preprocess)
  return found if images_lib.is_viewable(preprocess) else (
      pictures_lib.to_image(ops_lib.pixels(found), preprocess.value_range))


def _channels(model: model_lib.Model) -> str:
  """Returns a sentence on the channels that are drawn, if not obvious."""
  if images_lib.is_viewable(model.preprocess):
    return ''
  return (' Channels 1, 2 and 3 are drawn as red, green and blue.'
          if model.preprocess.channels >= 3 else ' Channel 1 is drawn as grey.')


def _title(path: str) -> str:
  """Returns the folder, which may be the class, and the name of an image."""
  return '/'.join(epath.Path(path).parts[-2:])
