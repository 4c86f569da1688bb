"""Draws the analyses of the paper's section 4.5 for a model.

    python main.py inspect --model=runs/quickstart/finetune photos/

Filters, position embeddings and, for the given images, mean attention distance,
rollout, the attention of each head, and principal components and similarity of
patch features, as PNG files and one HTML page. Runs of masked patch prediction
and MAE also show reconstructed images.
Unreadable images are listed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, TYPE_CHECKING

from etils import epy

from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax import models
  from vit_jax import tree
  from vit_jax.analysis import attention
  from vit_jax.analysis import embeddings
  from vit_jax.analysis import html_page
  from vit_jax.analysis import model_figures
  from vit_jax.analysis import patch_features
  from vit_jax.checkpoints import paths as checkpoint_paths
  from vit_jax.inference import image_files
  from vit_jax.inference import images as images_lib
  from vit_jax.inference import model as model_lib
  from vit_jax.inference import reconstruction
  from vit_jax.models import vit_config
  from vit_jax.run import workdir as workdir_lib

if TYPE_CHECKING:
  from jaxtyping import Float

PAGE = 'index.html'
PATCHES, ROOT = 'patches/kernel', 'backbone/root/kernel'
# Output that a rollout map explains, by pooling.
_ROLLOUT_TARGETS = {
    'cls': 'the class token',
    'average': 'the mean of the patches',
    'cls_average': 'the mean of the patches (without the class token)',
    'attention': 'the mean of the patches (without the attention pooling of '
                 'the head)'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_images(parser, required=False, batch_size=8)
  parser.add_argument(
      '--output', default='', metavar='DIR',
      help='folder for the figures and the HTML page (default: `inspect` in '
      'the workdir of the model, or in the current folder)')
  parser.add_argument(
      '--show', type=int, default=6, metavar='N',
      help='number of images to draw; attention distances are averaged over '
      'all images (default: %(default)s)')
  parser.add_argument(
      '--layer', type=int, metavar='N',
      help='draw the patch features after layer N (default: the last one, '
      'after the final norm)')
  parser.add_argument(
      '--patch', default='', metavar='ROW,COLUMN',
      help='patch to which others are compared; 1,1 is at the top left '
      '(default: the centre)')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  if args.show < 1:
    raise ValueError(f'--show must be at least 1; got {args.show}.')
  found, errors = image_files.find(args.paths)
  model = arguments.load_model(args)
  # Checked before all images are read.
  if args.layer is not None:
    model.layer_output(f'patches:{args.layer}')
  patch = _patch_index(
      args.patch, models.grid(model.config, model.preprocess.resolution))
  paths = image_files.interleave(found)
  workdir = _workdir(args.model)
  output = epath.Path(args.output or (workdir or epath.Path()) / 'inspect')
  output.mkdir(parents=True, exist_ok=True)
  statistics: dict[str, Any] = {}
  with image_files.ReadProgress(len(paths), errors) as reading:
    sections = [
        _filters(model, output / 'filters.png'),
        _positions(model, output / 'positions.png'),
        *_reconstruction(args, model, paths, output / 'reconstruction.png'),
        *_attention(args, model, paths, output, reading, statistics),
        *_patches(args, model, paths, output / 'patches.png', patch)]
  if workdir and (curves := workdir / workdir_lib.CURVES).exists():
    sections.append(html_page.Section(
        'Curves', 'Training curves of the run.', curves))
  html_page.write(
      output / PAGE, 'analysis/figures.html', title=f'Inside {args.model}',
      text=f'{_describe(model)}. Figures as in "An Image is Worth 16x16 '
      'Words", section 4.5. Click a figure for its full size.',
      sections=sections)
  for section in sections:
    print(f'{section.title:26}  {section.picture or section.text}')
  print(f'{"page":26}  {output / PAGE}')
  return reading.report(), {
      'model': args.model, 'page': str(output / PAGE), **statistics,
      'errors': reading.errors}


def _title(path: str) -> str:
  """Returns the folder, which may be the class, and the name of an image."""
  return '/'.join(epath.Path(path).parts[-2:])


def _workdir(path: str) -> epath.Path | None:
  """Returns the local workdir of a model, but no checkpoint folder."""
  if atomic_files.is_remote(path):
    return None
  folder = epath.Path(path).expanduser()
  return folder if (folder / checkpoint_paths.FOLDER).is_dir() else None


def _describe(model: model_lib.Model) -> str:
  height, width = model.preprocess.resolution
  c = model.config
  size = getattr(c, 'variant', '') or {
      'vit': 'Vision Transformer', 'resnet': 'ResNet'}[c.name]
  return (f'{size}, {tree.num_elements(model.params):,} parameters, images of '
          f'{height} x {width}')


def _filters(model: model_lib.Model, path: epath.Path) -> html_page.Section:
  params = tree.flatten(model.params)
  # The patch embedding of a hybrid acts on feature maps, not on pixels.
  if ROOT in params:
    drawn = embeddings.convolution(np.asarray(params[ROOT]))
    text = (f'The {len(drawn)} filters of {ROOT}, standardised as the network '
            'applies them')
  else:
    drawn = embeddings.filters(np.asarray(params[PATCHES]))
    text = (f'Principal components of {PATCHES}, the strongest first (figure '
            '7, left)')
  model_figures.filters(drawn, path, columns=8 if ROOT in params else 7)
  return html_page.Section('Filters', f'{text}; grey is zero.', path)


def _positions(model: model_lib.Model, path: epath.Path) -> html_page.Section:
  title, config = 'Position embeddings', model.config
  if not isinstance(config, vit_config.ViTConfig):
    return html_page.Section(title, 'A ResNet has no position embeddings.')
  grid = models.grid(config, model.resolution)
  table = models.patch_positions(model.params, config, grid)
  if table is None:
    return html_page.Section(
        title, f'The model adds no position embedding: model.position is '
        f'{config.position!r}.')
  model_figures.similarity(embeddings.similarity(table, grid=grid), path)
  return html_page.Section(
      title, 'Cosine similarity of the position embedding of each patch to '
      'those of all patches (figure 7, centre)'
      + (', in the first layer.' if config.position_at == 'layers' else '.'),
      path)


def _reconstruction(
    args: argparse.Namespace, model: model_lib.Model, paths: list[str],
    path: epath.Path,
) -> list[html_page.Section]:
  """Draws reconstructions, if the model was trained to reconstruct images."""
  reconstruct = reconstruction.load(args.model, model, which=args.which)
  if reconstruct is None or not paths or not images_lib.is_viewable(
      model.preprocess):
    return []
  # Unreadable images are reported with the attention.
  batch = next(images_lib.batches(
      paths[:args.show], model.preprocess, size=min(args.show, len(paths)),
      on_error=lambda *_: None), None)
  if batch is None:
    return []
  names, arrays = batch
  model_figures.pictures(
      dict(zip(('input', 'masked', 'reconstructed'),
               map(list, reconstruct(arrays[:len(names)])))), path,
      titles=[_title(str(name)) for name in names])
  return [html_page.Section(
      'Reconstruction', 'Images with random masked patches (grey), and with '
      'these patches as predicted in pre-training (MAE, figure 2). For '
      'normalised targets, mean and deviation of each patch are the true '
      'ones.', path)]


def _patches(
    args: argparse.Namespace, model: model_lib.Model, paths: list[str],
    path: epath.Path, patch: tuple[int, int],
) -> list[html_page.Section]:
  """Draws the features of patches, if the images can be displayed."""
  layer = f'patches:{args.layer}' if args.layer is not None else 'patches'
  if not paths or not isinstance(model.config, vit_config.ViTConfig) or (
      not images_lib.is_viewable(model.preprocess)):
    return []
  row, column = patch
  names: list[Any] = []
  features = []
  # Unreadable images are reported with the attention.
  for batch, outputs in model.outputs(
      paths[:args.show], batch_size=args.batch_size,
      names=(model.layer_output(layer),), on_error=lambda *_: None):
    names += batch
    features.append(model.extract_layer(outputs, layer))
  if not names:
    return []
  values = np.concatenate(features)
  model_figures.patches(
      [np.asarray(images_lib.show(name, model.preprocess).convert('RGB'))
       for name in names], patch_features.colours(values),
      patch_features.similarity(values, row=row, column=column), path,
      row=row, column=column, titles=[_title(str(n)) for n in names])
  return [html_page.Section(
      'Patch features', 'First three principal components of the patches of '
      'all drawn images as red, green and blue (DINOv2, figure 1), and cosine '
      f'similarity to the patch in row {row + 1} and column {column + 1}, '
      + (f'after layer {args.layer}.' if args.layer is not None
         else 'after the final norm.'), path)]


def _patch_index(text: str, grid: tuple[int, int]) -> tuple[int, int]:
  """Returns row and column of --patch, from 0."""
  if not text:
    return grid[0] // 2, grid[1] // 2
  numbers = [int(n) for n in text.split(',') if n.strip().isdigit()]
  if len(numbers) != 2 or text.count(',') != 1 or not all(
      1 <= number <= size for number, size in zip(numbers, grid)):
    raise ValueError(
        f'--patch is {text!r}, but must be ROW,COLUMN from 1,1 to '
        f'{grid[0]},{grid[1]}.')
  return numbers[0] - 1, numbers[1] - 1


def _attention(
    args: argparse.Namespace, model: model_lib.Model, paths: list[str],
    output: epath.Path, reading: image_files.ReadProgress,
    statistics: dict[str, Any],
) -> list[html_page.Section]:
  """Draws all figures that need images."""
  title, config = 'Attention', model.config
  if not isinstance(config, vit_config.ViTConfig):
    return [html_page.Section(title, 'A ResNet has no attention.')]
  if config.axial:
    return [html_page.Section(
        title, 'Axial attention is not drawn: it has no weights between all '
        'pairs of patches.')]
  if not paths:
    return [html_page.Section(
        title, f'Name images to draw attention: inspect --model={args.model} '
        'photos/')]
  height, width = model.preprocess.resolution
  grid = models.grid(config, (height, width))
  stride = config.backbone.stride if config.backbone else 1
  patch = (float(stride * config.patch_shape[0]),
           float(stride * config.patch_shape[1]))
  shown: list[_Maps] = []
  distances = []
  for batch, outputs in model.outputs(
      paths, batch_size=args.batch_size, names=('layers',),
      on_error=reading.add_error):
    weights = np.asarray(outputs['layers']['attention'], np.float32)
    for i, path in enumerate(batch):
      of_image = weights[:, i:i + 1]
      distances.append(attention.mean_distance(
          of_image, grid=grid, patch=patch))
      if len(shown) < args.show:
        shown.append(_Maps(
            str(path), attention.head_maps(
                of_image[:, 0], grid=grid, pooling=config.pooling),
            attention.rollout_map(
                of_image, grid=grid, pooling=config.pooling)[0]))
    reading.advance(len(batch))
  if not distances:
    return [html_page.Section(title, 'No image could be read.')]
  mean_distance = np.mean(distances, axis=0)
  statistics['mean_attention_distance'] = mean_distance.tolist()
  statistics['pictures'] = len(distances)
  model_figures.distance(
      mean_distance, output / 'distance.png',
      uniform=float(attention.distances(grid, patch).mean()))
  distance = html_page.Section(
      'Mean attention distance', 'Mean attention distance of each head over '
      f'{console_lib.format_count(len(distances), "image")} of {height} x '
      f'{width} pixels in patches of {patch[0]:g} x {patch[1]:g} (figure 7, '
      'right).',
      output / 'distance.png')
  return [distance,
          _rollout(model, config.pooling, shown, output / 'rollout.png'),
          *_heads(config.pooling, shown, output)]


class _Maps(NamedTuple):
  """Attention maps of an image to draw."""
  path: str
  heads: Float[np.ndarray, 'layers heads rows columns']
  rollout: Float[np.ndarray, 'rows columns']


def _heads(
    pooling: str, shown: Sequence[_Maps], output: epath.Path,
) -> list[html_page.Section]:
  query = 'the class token' if pooling == 'cls' else 'all patches on average'
  sections = []
  for number, maps in enumerate(shown, start=1):
    path = output / (f'heads_{number}.png' if number > 1 else 'heads.png')
    name = _title(maps.path)
    model_figures.heads(maps.heads, path, title=name)
    sections.append(html_page.Section(
        f'Heads, image {number}', f'Attention of each head in {name} from '
        f'{query}; each map has its own scale.', path))
  return sections


def _rollout(
    model: model_lib.Model, pooling: str, shown: Sequence[_Maps],
    path: epath.Path,
) -> html_page.Section:
  title, preprocess = 'Attention rollout', model.preprocess
  if not images_lib.is_viewable(preprocess):
    return html_page.Section(
        title, f'Not drawn: images of {preprocess.channels} channels of '
        f'{preprocess.pixel_dtype} cannot be displayed. model.rollout returns '
        'the values.')
  model_figures.rollout(
      [np.asarray(images_lib.show(maps.path, preprocess).convert('RGB'))
       for maps in shown], np.stack([maps.rollout for maps in shown]), path,
      titles=[_title(maps.path) for maps in shown])
  return html_page.Section(
      title, f'Share of each patch in {_ROLLOUT_TARGETS[pooling]}: '
      'the product of the attention of all layers, averaged over heads '
      '(figures 6 and 14).', path)
