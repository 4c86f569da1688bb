"""Loads a model, or initial parameters of a run, from any supported format."""

from collections.abc import Callable
import dataclasses
import os
from typing import Any

from etils import epath
import flax.linen as nn
import jax

from vit_jax import console
from vit_jax import escape
from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.inference import class_names
from vit_jax.inference import model as model_lib
from vit_jax.inference import zero_shot
from vit_jax.models import embed
from vit_jax.models import lora
from vit_jax.models import vit_config
from vit_jax.weights import download
from vit_jax.weights import infer_architecture
from vit_jax.weights import initialize
from vit_jax.weights import load as weights_lib
from vit_jax.weights import orbax_runs
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights.configs import declared
from vit_jax.weights.configs import preprocessing

Log = Callable[[str], None]


def load(
    path: str | os.PathLike, *, which: str = checkpoint_paths.LATEST,
    log: Log | None = console.print_lines, base: str = '',
    text_embeddings: str | os.PathLike = '', **overrides: Any,
) -> model_lib.Model:
  """Loads a model with its weights from any supported format.

  Missing, misshapen and non-finite parameters are errors in every format.
  Changed values are detected where files have checksums: our checkpoints, .npz
  and PyTorch files.

  Args:
    path: a workdir or checkpoint; an .npz, .safetensors or PyTorch state dict;
      a folder with such a file and its config.json. Local, or at gs://,
      https:// or hf://user/model.
    which: 'latest' or 'best' checkpoint of a workdir.
    base: location of the weights that a LoRA run adapts; by default where they
      were during training.
    text_embeddings: .npz file of text embeddings, which become the head of an
      image tower; see `zero_shot.attach`.
    log: called with lines about found and inferred settings; None for none.
    **overrides: fields of the section `model` (num_heads=4), of `Preprocess`
      (resolution=384, mean=..., labels=...), or positions='cubic'. They take
      precedence over inferred values. Another `patch` resizes the patch
      embedding (FlexiViT; see `flexible_patch`). The classes of the weights in
      another order in `labels` reorder the outputs; see `class_names.rename`.

  Raises:
    FileNotFoundError: if there is nothing at `path`.
    ValueError: if the weights are damaged, of an unknown format, or do not
      match the model exactly.
  """
  log = log or (lambda line: None)
  schema.check_name(which, checkpoint_paths.WHICH, what='which checkpoint')
  positions = overrides.pop('positions', None)
  if positions is not None:
    schema.convert(positions, initialize.Positions, where='positions')
  patch = overrides.pop('patch', None)
  labels = overrides_lib.parse(
      {'labels': overrides.pop('labels', ())}).preprocess['labels']
  # Images of a new resolution need not divide into the patches of the weights.
  resolution = overrides.pop('resolution', None) if patch else None

  def change(loaded: declared.Weights) -> declared.Weights:
    if patch:
      loaded = _with_patch(loaded, patch, resolution)
    model = model_lib.Model(**{
        **vars(loaded), 'positions': positions or loaded.positions,
        'origin': f'{loaded.origin}: {os.fspath(path)}'})
    if text_embeddings:
      model = zero_shot.attach(model, text_embeddings)
    return class_names.rename(model, labels) if labels else model

  found = download.fetch(path, log=log)
  if orbax_runs.is_run(found):
    loaded = orbax_runs.load(
        _merged(checkpoint_source.find(found, which=which), base=base),
        overrides, change)
  else:
    if base:
      overrides['base'] = base  # Only LoRA checkpoints have a base.
    loaded = weights_lib.load(
        download.local(found, log=log), overrides, change)
  for line in loaded.summary:
    log(escape.line(line))
  return model_lib.Model(**vars(loaded))


def _with_patch(
    loaded: declared.Weights, patch: Any, resolution: Any,
) -> declared.Weights:
  """Resizes the patch embedding; `resolution` is None to keep that of images.

  Raises:
    ValueError: if the model has no patch embedding of images, or the images do
      not divide into patches.
  """
  given = overrides_lib.parse({'patch': patch} | (
      {'resolution': resolution} if resolution else {}))
  config = loaded.config
  if not isinstance(config, vit_config.ViTConfig) or config.backbone:
    raise ValueError(f'patch={patch!r}: only a plain ViT has a patch embedding '
                     'of images that can be resized. Leave it out.')
  new = dataclasses.replace(
      config, variant='', patch=schema.convert(
          given.model['patch'], int | tuple[int, int], where='patch'))
  filters = loaded.params['patches']['kernel']
  preprocess = preprocessing.override(loaded.preprocess, given.preprocess)
  weights_lib.check_preprocess(new, preprocess)
  return dataclasses.replace(
      loaded, config=config if config.patch_shape == new.patch_shape else new,
      params={**loaded.params, 'patches': {
          **loaded.params['patches'],
          'kernel': embed.resize_filters(
              filters, new.patch_shape)}},
      # The grid of the position embeddings is the same.
      resolution=infer_architecture.image_size(
          new, config.grid(loaded.resolution)),
      preprocess=preprocess)


def create(
    variant: str = '', *, num_classes: int = 0,
    resolution: int | tuple[int, int] = 224, seed: int = 0, **model: Any,
) -> model_lib.Model:
  """Returns a model with random parameters.

  Args:
    variant: such as 'B/16' or 'R50x1'.
    num_classes: outputs of the head.
    resolution: image side, or (height, width), in pixels.
    seed: seed of the parameters.
    **model: other fields of the section `model`.

  Raises:
    ValueError: for an unknown variant or field, or a wrong value.
  """
  config = models.parse(
      {**model, 'variant': variant, 'num_classes': num_classes})
  preprocess = preprocessing.parse({'resolution': resolution})
  module = models.build(config, num_classes=num_classes)
  images = jax.ShapeDtypeStruct((1, *preprocess.resolution, 3), 'float32')
  params = jax.jit(lambda key: nn.unbox(models.init(module, key, images)))(
      jax.random.key(seed))
  return model_lib.Model(
      config=config, params=jax.device_get(params), preprocess=preprocess,
      resolution=preprocess.resolution, origin='random parameters')


def find(
    path: str | os.PathLike, *, which: str = checkpoint_paths.LATEST,
    num_heads: int = 0, log: Log | None = console.print_lines,
) -> checkpoint_source.Source:
  """Finds initial parameters of a run; errors as in `load`.

  The parameters of our own runs are only read by `Source.load`.

  Args:
    path: see `load`.
    which: 'latest' or 'best' checkpoint of a workdir.
    num_heads: number of heads of other weights, which do not always determine
      it; 0 to infer it.
    log: see `load`.
  """
  found = download.fetch(path)
  if orbax_runs.is_run(found):
    return _merged(checkpoint_source.find(found, which=which))
  heads: dict[str, Any] = {'num_heads': num_heads} if num_heads else {}
  return as_source(load(path, which=which, log=log, **heads), path)


def as_source(
    model: model_lib.Model, path: str | os.PathLike,
) -> checkpoint_source.Source:
  """Returns a loaded model as the initial parameters of a run."""
  return checkpoint_source.Source(
      path=os.fspath(path), item=model.origin.split(':')[0],
      load=lambda: model.params, shapes=model.params,
      labels=model.preprocess.labels, config={
          'model': schema.to_plain(model.config),
          'positions': model.positions,
          'data': {'resolution': list(model.resolution),
                   'mean': list(model.preprocess.mean),
                   'std': list(model.preprocess.std),
                   'eval_ops': model.preprocess.resized(
                       model.resolution).sections}})


# ----------------------------------------------------------------------- LoRA


def _merged(
    source: checkpoint_source.Source, *, base: str = '',
) -> checkpoint_source.Source:
  """Returns a source of the model's parameters; others are left unchanged.

  The checkpoint of a LoRA run holds adapters and names their base. The base is
  found at the path in the checkpoint, or at `base`, compared with the hash in
  the checkpoint, and fitted to the model as at the start of the run. Then the
  adapters are added.
  """
  config = schema.parse(
      lora.LoraConfig, source.config.get('lora', {}), where='lora')
  if not config.rank:
    if base:
      raise ValueError(
          f'base={base!r} is for adapters, but {source.path} holds none. Leave '
          'it out.')
    return source
  folder = epath.Path(source.path)
  with items.explain_errors(folder):
    progress = items.read_config(folder / 'progress')
    path = base or progress.get('origin', '')
    model = models.parse(source.config['model'])
    section = schema.parse(
        initialize.InitConfig, source.config['init'], where='init')
    size = declared.sides(source.config['data']['resolution'])
    saved = tree.flatten(source.shapes)
    expected = weights_lib.abstract_params(
        model, size, channels=source.config['data'].get('channels', 3))
    frozen = tree.select(expected, tree.map_with_name(
        lambda name, _: name not in saved, expected))

  def read() -> types.Params:
    adapters = source.load()
    try:
      found = find(path, num_heads=getattr(model, 'num_heads', 0))
      weights = found.load()
      checksums.check_identity(weights, progress.get('base', ''), path=path)
    except (FileNotFoundError, ValueError) as error:
      raise ValueError(
          f'{source.path} holds LoRA adapters of {path}, which cannot be used: '
          f'{schema.words(error)} If it was moved, load the adapters with '
          'base=PATH (--set base=PATH).') from error
    fitted, _ = initialize.adapt(
        initialize.with_positions(weights, found.config, frozen), frozen,
        resize=initialize.resizer(
            found.config, section, grid=model.grid(size)),
        # Trained parameters replace those that are ignored.
        config=dataclasses.replace(section, new=(), ignored=('.*',)))
    return jax.device_get(lora.merge(tree.update(fitted, adapters), config))

  return dataclasses.replace(
      source, load=read, config={**source.config, 'lora': {}},
      shapes=tree.update(frozen, {
          name: leaf for name, leaf in source.shapes.items()
          if name != lora.ROOT}))
