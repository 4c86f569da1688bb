"""Checkpoints of LoRA runs, which hold adapters and name their base.

The base is found at the path in the checkpoint, compared with the hash there,
and fitted to the model as at the start of the run. Then the adapters are added.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

from etils import epath
import jax

from vit_jax import models
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import source as source_lib
from vit_jax.models import lora
from vit_jax.weights import initialize
from vit_jax.weights import load as weights_lib
from vit_jax.weights.configs import declared


def merged(
    source: source_lib.Source, *, find: Callable[..., Any], base: str = '',
) -> source_lib.Source:
  """Returns a source of the model's parameters; others are left unchanged.

  Args:
    source: a checkpoint.
    find: finds the base by its path; see `load.find`.
    base: path of the base; by default that of the run.
  """
  config = lora.parse(source.config.get('lora', {}))
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
    section = initialize.parse(source.config['init'])
    size = declared.sides(source.config['data']['resolution'])
    saved = tree.flatten(source.shapes)
    expected = weights_lib.abstract_params(
        model, size, channels=source.config['data'].get('channels', 3))
    frozen = tree.select(expected, tree.map_with_name(
        lambda name, _: name not in saved, expected))

  def complete(params: types.Params) -> types.Params:
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
        weights, frozen, resize=initialize.resizer(
            found.config, section, grid=models.grid(model, size)),
        # Trained parameters replace those that are ignored.
        config=dataclasses.replace(section, new=(), ignored=('.*',)))
    return jax.device_get(lora.merge(tree.update(fitted, params), config))

  return dataclasses.replace(
      source, load=lambda: complete(source.load()),
      config={**source.config, 'lora': {}},
      shapes=tree.update(frozen, {
          name: leaf for name, leaf in source.shapes.items()
          if name != lora.ROOT}))
