"""Draws the analyses of the paper's section 4.5 for a model.

    python main.py inspect --model=runs/quickstart/finetune my_images/

Writes PNG files and one HTML page of filters, position embeddings and, for the
given images, mean attention distance, rollout, the attention of each head, and
principal components and similarity of patch features; `strip.png` shows them at
a glance. Runs of masked patch prediction and MAE also show reconstructed
images, and segmentation models show the predicted classes of pixels. Unreadable
images are listed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
from typing import Any

from etils import epy

from vit_jax import fields
from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath

  from vit_jax import tree
  from vit_jax.extras import html_page
  from vit_jax.extras import pictures
  from vit_jax.extras.figures import inspection as figures
  from vit_jax.extras.figures import patch_features
  from vit_jax.inference import image_files

PAGE = 'index.html'


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
      help='draw the patch features after layer N (default: the final norm)')
  parser.add_argument(
      '--patch', default='', metavar='ROW,COLUMN',
      help='patch to which others are compared; 1,1 is at the top left '
      '(default: the centre)')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  fields.check_range(args, 'show', low=1)
  model = arguments.load_model(args)
  found, errors = arguments.find_images(args, model.run)
  # Checked before all images are read.
  if args.layer is not None:
    model.layer_output(f'patches:{args.layer}')
  patch = patch_features.parse_patch(
      args.patch, model.config.grid(model.preprocess.resolution))
  paths = pictures.interleave(found)
  shown = paths[:args.show]
  workdir = arguments.run_folder(args.model)
  output = epath.Path(args.output or (workdir or epath.Path()) / 'inspect')
  output.mkdir(parents=True, exist_ok=True)
  statistics: dict[str, Any] = {}
  tiles: figures.Tiles = {}
  with image_files.ReadProgress(len(paths), errors) as reading:
    sections = [
        figures.filters(model, output / 'filters.png'),
        figures.positions(model, output / 'positions.png'),
        *figures.reconstruction(
            model, shown, output / 'reconstruction.png', tiles=tiles),
        *figures.segmentation(
            model, shown, output / 'segmentation.png',
            batch_size=args.batch_size),
        *figures.attention(
            model, paths, output, show=args.show, batch_size=args.batch_size,
            layer=args.layer, reading=reading, statistics=statistics,
            tiles=tiles),
        *figures.patches(
            model, shown, output / 'patches.png', patch=patch,
            layer=args.layer, batch_size=args.batch_size, tiles=tiles),
        *figures.curves(workdir)]
  sections[:0] = figures.strip(tiles, output / 'strip.png', layer=args.layer)
  height, width = model.preprocess.resolution
  html_page.write(
      output / PAGE, title=f'Inside {args.model}',
      text=f'{model.config.describe()}, {tree.num_elements(model.params):,} '
      f'parameters, images of {height} x {width}. Figures as in "An Image is '
      'Worth 16x16 Words", section 4.5. Click a figure for its full size.',
      sections=sections)
  for section in sections:
    print(f'{section.title:26}  {section.picture or section.text}')
  print(f'{"page":26}  {output / PAGE}')
  return reading.report(), {
      'model': args.model, 'page': str(output / PAGE), **statistics,
      'errors': reading.errors}
