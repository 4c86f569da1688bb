"""Shows what a model learned: the figures of the paper's section 4.5.

    python main.py inspect --model=runs/quickstart/finetune photos/

Filters, positions, and, over the given pictures, how far each head looks and
where the model does. Pictures in a folder, and one page of them all that opens
without a network. A picture that cannot be read, or is not there, is named and
counted, and the rest goes on; the exit status is then 1.
"""

import argparse
import dataclasses
from typing import Any

from etils import epath
from jaxtyping import Float
import numpy as np

from vit_jax import atomic_files
from vit_jax import models
from vit_jax import tree
from vit_jax.analysis import attention
from vit_jax.analysis import embeddings
from vit_jax.analysis import html_page
from vit_jax.analysis import model_figures
from vit_jax.checkpoints import manager
from vit_jax.commands import arguments
from vit_jax.inference import images as images_lib
from vit_jax.inference import model as model_lib
from vit_jax.models import vit_config
from vit_jax.run import workdir as workdir_lib

PAGE = 'index.html'
PATCHES, ROOT = 'patches/kernel', 'backbone/root/kernel'
# What a rollout is of, by how a model pools its tokens.
_FOLLOWED = {
    'cls': 'the class token, which the head sees',
    'average': 'the mean of the patches, which the head sees',
    'attention': 'the mean of the patches (the head weighs them by an '
                 'attention of its own, which is not counted)'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  arguments.add_model(parser)
  arguments.add_pictures(parser, required=False, batch_size=8)
  parser.add_argument(
      '--output', default='', metavar='DIR',
      help='folder of the pictures and the page; by default `inspect` in the '
      'workdir, or here where the model is not of one')
  parser.add_argument(
      '--show', type=int, default=6, metavar='N',
      help='pictures whose rollout is drawn; all count in the distances '
      '(default: %(default)s)')


def run(args: argparse.Namespace) -> int:
  """Runs the command; returns the exit status."""
  if args.show < 1:
    raise ValueError(f'--show must be at least 1, but is {args.show}.')
  errors: dict[str, str] = {}
  found = arguments.find(args.paths, errors)
  model = arguments.load(args)
  workdir = _workdir(args.model)
  output = epath.Path(args.output or (workdir or epath.Path()) / 'inspect')
  output.mkdir(parents=True, exist_ok=True)
  figures: dict[str, Any] = {}
  with arguments.Reading(len(found), errors) as reading:
    sections = [
        _filters(model, output / 'filters.png'),
        _positions(model, output / 'positions.png'),
        *_attention(args, model, found, output, reading, figures)]
  if workdir and (curves := workdir / workdir_lib.CURVES).exists():
    sections.append(html_page.Section('Curves', 'Of the run.', curves))
  html_page.write_figures(
      output / PAGE, title=f'Inside {args.model}',
      text=f'{_describe(model)}. Figures as in "An Image is Worth 16x16 '
      'Words", section 4.5. A click on one shows it in full size.',
      sections=sections)
  for section in sections:
    print(f'{section.title:26}  {section.picture or section.text}')
  print(f'{"page":26}  {output / PAGE}')
  if args.json:
    atomic_files.write_json(args.json, {
        'model': args.model, 'page': str(output / PAGE), **figures,
        'errors': reading.errors})
  return reading.report()


def _workdir(path: str) -> epath.Path | None:
  """Returns the workdir that a model is from, if it is one on this machine.

  Not a checkpoint: nothing is written among its files.
  """
  folder = epath.Path(path).expanduser() if '://' not in path else None
  return folder if folder and (folder / manager.FOLDER).is_dir() else None


def _describe(model: model_lib.Model) -> str:
  height, width = model.preprocess.resolution
  c = model.config
  size = getattr(c, 'variant', '') or (
      f'{c.depth} layers of width {c.width}' + ' on a ResNet' * (
          c.backbone is not None) if c.name == 'vit' else 'ResNet')
  return (f'{size}, {tree.num_elements(model.params):,} parameters, images of '
          f'{height} x {width}')


def _filters(model: model_lib.Model, path: epath.Path) -> html_page.Section:
  named = tree.flatten(model.params)
  if ROOT in named:
    # Patches are then of a feature map: their components are no pictures.
    kernel = np.asarray(named[ROOT])
    shown = embeddings.convolution(kernel)
    model_figures.filters(shown, path, columns=8)
    first = 'first ' * (len(shown) < kernel.shape[-1])
    return html_page.Section(
        'Filters', f'The {first}{len(shown)} filters of {ROOT}, which alone '
        'see pixels, as the network applies them; grey is zero.', path)
  model_figures.filters(embeddings.filters(np.asarray(named[PATCHES])), path)
  return html_page.Section(
      'Filters', f'Principal components of {PATCHES}, the strongest first; '
      'grey is zero (figure 7, left).', path)


def _positions(model: model_lib.Model, path: epath.Path) -> html_page.Section:
  title = 'Position embeddings'
  config = model.config
  if not isinstance(config, vit_config.ViTConfig):
    return html_page.Section(
        title, 'A ResNet has none: it cuts no patches that would need them.')
  grid = models.grid(config, model.resolution)
  table = models.patch_positions(model.params, config, grid)
  if table is None:
    return html_page.Section(
        title, f'Positions are {config.position!r}: no embedding is added.')
  model_figures.similarity(embeddings.similarity(table, grid=grid), path)
  return html_page.Section(
      title, 'Each small picture is a patch: how alike its position is to that '
      'of every patch (figure 7, centre)'
      + (', in the first layer.' if config.position_at == 'layers' else '.'),
      path)


def _attention(
    args: argparse.Namespace, model: model_lib.Model, found: list[str],
    output: epath.Path, reading: arguments.Reading, figures: dict[str, Any],
) -> list[html_page.Section]:
  """Draws what pictures are needed for."""
  title = 'Attention'
  config = model.config
  if not isinstance(config, vit_config.ViTConfig):
    return [html_page.Section(
        title, 'A ResNet has none: no distances, and no rollout over pictures. '
        'What it makes of them is a row each of `main.py features`.')]
  if config.axial:
    return [html_page.Section(
        title, 'Axial attention is within rows and within columns: there is '
        'none of every patch to every other.')]
  if not found:
    return [html_page.Section(
        title, 'Name pictures to see where the model looks: inspect '
        f'--model={args.model} photos/')]
  looks = _Looks(config.pooling, models.grid(
      config, model.preprocess.resolution), _patch_pixels(config), args.show)
  for paths, outputs in model.outputs(
      found, batch_size=min(args.batch_size, len(found)), names=('layers',),
      capture=True, failed=reading.failed):
    looks.add(list(map(str, paths)), outputs['layers']['attention'])
    reading.advance(len(paths))
  if not looks.count:
    return [html_page.Section(title, 'None of the pictures could be read.')]
  distance = looks.distances / looks.count
  figures['mean_attention_distance'] = distance.tolist()
  figures['pictures'] = looks.count
  return _drawn(model, config, looks, distance, output)


def _drawn(
    model: model_lib.Model, config: vit_config.ViTConfig, looks: '_Looks',
    distance: Float[np.ndarray, 'layers heads'], output: epath.Path,
) -> list[html_page.Section]:
  everywhere = attention.distances(looks.grid, looks.patch).mean()
  model_figures.distance(distance, output / 'distance.png',
                  everywhere=float(everywhere))
  height, width = model.preprocess.resolution
  of = ' x '.join(f'{side:g}' for side in looks.patch)
  return [
      html_page.Section(
          'Mean attention distance', 'How far each head looks, over '
          f'{arguments.counted(looks.count, "picture")} of {height} x '
          f'{width} pixels, in patches of {of} (figure 7, right).',
          output / 'distance.png'),
      _rollout(model, config, looks, output / 'rollout.png'),
      *_heads(config, looks, output)]


def _heads(
    config: vit_config.ViTConfig, looks: '_Looks', output: epath.Path,
) -> list[html_page.Section]:
  source = ('the class token' if config.pooling == 'cls' else
            'all patches on average')
  sections = []
  for number, (picture, maps) in enumerate(zip(looks.paths, looks.heads), 1):
    path = output / (f'heads_{number}.png' if number > 1 else 'heads.png')
    model_figures.heads(maps, path, title=epath.Path(picture).name)
    sections.append(html_page.Section(
        f'Heads, picture {number}', f'Where each head looks in '
        f'{epath.Path(picture).name}, from {source}; each on its own scale.',
        path))
  return sections


def _rollout(
    model: model_lib.Model, config: vit_config.ViTConfig, looks: '_Looks',
    path: epath.Path,
) -> html_page.Section:
  title, preprocess = 'Attention rollout', model.preprocess
  if not images_lib.is_picture(preprocess):
    return html_page.Section(
        title, f'Not drawn: images of {preprocess.channels} channels of '
        f'{preprocess.pixel_dtype} are no pictures to look at. model.rollout '
        'gives its numbers.')
  seen = [np.asarray(images_lib.show(picture, preprocess).convert('RGB'))
          for picture in looks.paths]
  model_figures.rollout(seen, np.concatenate(looks.maps), path,
                 titles=[epath.Path(picture).name for picture in looks.paths])
  return html_page.Section(
      title, f'How much of each patch is in {_FOLLOWED[config.pooling]}: '
      'attention of all layers and heads multiplied (figures 6 and 14).', path)


def _patch_pixels(config: vit_config.ViTConfig) -> tuple[float, float]:
  """Returns height and width of a patch in pixels of the image."""
  stride = config.backbone.stride if config.backbone else 1
  return float(stride * config.patch_shape[0]), float(
      stride * config.patch_shape[1])


@dataclasses.dataclass
class _Looks:
  """What is kept of attention, batch by batch: all of it would fill memory."""
  pooling: str
  grid: tuple[int, int]
  patch: tuple[float, float]
  show: int
  count: int = 0
  distances: Any = 0.0  # Summed over pictures, [layers, heads].
  paths: list[str] = dataclasses.field(default_factory=list)
  maps: list[np.ndarray] = dataclasses.field(default_factory=list)
  # Of a picture each, [layers, heads, rows, columns].
  heads: list[np.ndarray] = dataclasses.field(default_factory=list)

  def add(self, paths: list[str], weights: np.ndarray) -> None:
    """Takes attention [layers, batch, heads, tokens, tokens] of pictures."""
    weights = np.asarray(weights, np.float32)
    self.distances = self.distances + len(paths) * attention.mean_distance(
        weights, grid=self.grid, patch=self.patch)
    self.count += len(paths)
    left = self.show - len(self.paths)
    if left > 0:
      self.paths += paths[:left]
      self.heads += [
          attention.head_maps(weights[:, i], grid=self.grid,
                              pooling=self.pooling)
          for i in range(len(paths[:left]))]
      self.maps.append(attention.rollout_map(
          weights[:, :left], grid=self.grid, pooling=self.pooling))
