"""Loads a model, or initial parameters of a run, from any supported format."""

from collections.abc import Callable, Sequence
import dataclasses
import os
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from vit_jax import classes
from vit_jax import console
from vit_jax import escape
from vit_jax import objectives
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.inference import model as model_lib
from vit_jax.models import factory
from vit_jax.models import positions as positions_lib
from vit_jax.weights import open as open_lib
from vit_jax.weights import overrides as overrides_lib
from vit_jax.weights import weights as weights_lib

Log = Callable[[str], None]


def load(
    path: str | os.PathLike, *, which: str = checkpoint_paths.AUTO,
    log: Log | None = console.print_lines, base: str = '',
    text_embeddings: str | os.PathLike = '', imports: Sequence[str] = (),
    **overrides: Any,
) -> model_lib.Model:
  """Loads a model with its weights, from whatever format they are in.

  Missing, misshapen and non-finite parameters are errors in every format.
  Changed values are detected where files have checksums: our checkpoints, .npz
  and PyTorch files.

  Args:
    path: a workdir or checkpoint; an .npz, .safetensors or PyTorch state dict;
      a folder with such a file and its config.json. Local, or at gs://,
      https:// or hf://user/model. Or 'photos', a small ViT that is part of the
      package.
    which: 'latest' or 'best' checkpoint of a workdir; 'auto' is the best one if
      the run has one.
    base: location of the weights that a LoRA run adapts; by default where they
      were during training.
    text_embeddings: .npz file of text embeddings, which become the head of an
      image tower (docs/inference.md).
    imports: modules of your own that the config of a run may import; those that
      your program has imported are allowed, too.
    log: called with lines about found and inferred settings; None for none.
    **overrides: fields of the section `model` (num_heads=4), of `Preprocess`
      (resolution=384, mean=..., labels=...), positions='cubic', or the prefix
      of parameter names, for a file with several copies of a model. They take
      precedence over inferred values. Another `patch` resizes the patch
      embedding (FlexiViT; see `flexible_patch`). The classes of the weights in
      another order in `labels` reorder the outputs; see `rename`.

  Raises:
    FileNotFoundError: if there is nothing at `path`.
    UserError: if the weights are damaged, of an unknown format, or do not
      match the model exactly.
  """
  registry.allow(*imports)
  log = log or (lambda line: None)
  positions = overrides.pop('positions', None)
  if positions is not None:
    schema.convert(positions, positions_lib.Interpolation, where='positions')
  patch = overrides.pop('patch', None)
  labels = overrides_lib.parse(
      {'labels': overrides.pop('labels', ())}).preprocess['labels']
  # Images of a new resolution need not divide into the patches of the weights.
  resolution = overrides.pop('resolution', None) if patch else None
  model = model_lib.Model.read_from(open_lib.open_model(
      path, which=which, base=base, log=log, **overrides))
  objective = model.run.get('objective', {})
  known = objective.get('name') in registry.available(
      registry.OBJECTIVES) or registry.is_target(objective.get('name'))
  if known and not objectives.parse(objective).trains_head:
    model = _without_head(model)
  elif not model.has_decoder and (
      leaf := registry.optional(registry.THRESHOLDS)):
    model = dataclasses.replace(model, thresholds=leaf.of_run(model, log))
  if patch:
    model = registry.load(registry.PATCH)(model, patch, resolution)
  if positions:
    model = dataclasses.replace(model, positions=positions)
  if text_embeddings:
    model = registry.load(registry.TEXT_EMBEDDINGS)(model, text_embeddings)
  if labels:
    model = rename(model, labels)
  for line in (console.brief(model.summary)
               if log is console.print_lines else model.summary):
    log(escape.line(line))
  return model


def check_same(path: str | os.PathLike, model: model_lib.Model) -> None:
  """Loads what `model.save` wrote; raises a UserError for another model."""
  again = load(path, log=None)
  have, want = tree.flatten(again.params), tree.flatten(model.params)
  differing = sorted(have.keys() ^ want.keys()) or [
      name for name in want if not np.array_equal(want[name], have[name])]
  differing += [name for name in ('preprocess', 'resolution', 'positions')
                if getattr(again, name) != getattr(model, name)]
  found, expected = (schema.to_plain(m.config) for m in (again, model))
  differing += [name for name, value in expected.items()
                if name != 'variant' and found.get(name) != value]
  if differing:
    raise UserError(
        f'{path} was written, but loads with other {", ".join(differing)}. '
        'Do not use it.')


def rename(model: model_lib.Model, names: Sequence[str]) -> model_lib.Model:
  """Returns the model with these class names.

  The same names in another order reorder the outputs. New names are given to
  the outputs by their index.

  Raises:
    UserError: if there are not as many names as classes, or a name
      belongs to a class with another index.
  """
  labels, count = model.preprocess.labels, model.config.num_classes
  if len(names) != count:
    raise UserError(
        f'labels holds {console.format_count(len(names), "name")} (one a line),'
        f' but the model has {count:,} classes.')
  if labels == tuple(names):
    return model
  how = 'named by index'
  if sorted(labels) == sorted(set(names)):
    how, order = 'reordered the outputs', [labels.index(n) for n in names]
    reordered = model.with_outputs(order)
    model = reordered.with_params(reordered.read(), thresholds=tuple(
        model.thresholds[i] for i in order if model.thresholds))
  elif any(new != old and new in labels for old, new in zip(labels, names)):
    classes.match(
        classes.Classes('the given list', count, names),
        classes.Classes('the model', count, labels, model.origin))
  return dataclasses.replace(
      model, notes=(*model.notes, f'{how}: {classes.shorten(names)}'),
      settings={**model.settings, 'labels': weights_lib.GIVEN},
      preprocess=dataclasses.replace(model.preprocess, labels=tuple(names)))


def _without_head(model: model_lib.Model) -> model_lib.Model:
  """Leaves out the head of a run without labels, which is not trained."""
  return model.with_params(
      {**model.params, 'head': jax.tree.map(
          lambda array: array[..., :0], model.params['head'])},
      config=dataclasses.replace(model.config, num_classes=0),
      preprocess=dataclasses.replace(model.preprocess, labels=()))


def create(
    variant: str = '', *, num_classes: int = 0,
    resolution: int | tuple[int, int] = 224, seed: int = 0, **model: Any,
) -> model_lib.Model:
  """Returns a model with random parameters.

  Args:
    variant: such as 'B/16' or 'R50x1', or a name from `list_models`.
    num_classes: outputs of the head.
    resolution: image side, or (height, width), in pixels.
    seed: seed of the parameters.
    **model: other fields of the section `model`.

  Raises:
    UserError: for an unknown variant or field, or a wrong value.
  """
  config = factory.parse(
      {**model, 'variant': variant, 'num_classes': num_classes})
  preprocess = preprocessing.parse({'resolution': resolution})
  module = factory.build(config, num_classes=num_classes)
  images = jax.ShapeDtypeStruct((1, *preprocess.resolution, 3), 'float32')
  params = jax.jit(lambda key: nn.unbox(factory.init(module, key, images)))(
      jax.random.key(seed))
  return model_lib.Model.of(
      jax.device_get(params), config=config, preprocess=preprocess,
      resolution=preprocess.resolution, kind='random parameters')
