"""Merges the adapters of a run with the weights that they adapt."""

import dataclasses

from etils import epath
import jax

from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.exceptions import UserError
from vit_jax.extras.lora import adapters
from vit_jax.models import lora_config
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import check
from vit_jax.weights import open as open_lib
from vit_jax.weights import weights as weights_lib


def merged(weights: weights_lib.Weights, *, base: str) -> weights_lib.Weights:
  """Merges the adapters of a LoRA run.

  The checkpoint of a LoRA run holds adapters and names their base. The base is
  opened at the address in the checkpoint, or at `base`, compared with the hash
  in the checkpoint, and fitted to the model as at the start of the run. Then
  the adapters are added.
  """
  folder = epath.Path(weights.address)
  config = schema.parse(
      lora_config.LoraConfig, weights.run['lora'], where='lora')
  with items.explain_errors(folder):
    progress = items.read_config(folder / 'progress')
    address = base or progress.get('origin', '')
    section = schema.parse(
        adapt_lib.InitConfig, weights.run['init'], where='init')
    saved = tree.flatten(weights.shapes)
    expected = check.abstract_params(
        weights.config, weights.resolution,
        channels=weights.preprocess.channels)
    frozen = tree.select(expected, tree.map_with_name(
        lambda name, _: name not in saved, expected))

  def read() -> types.Params:
    try:
      found = open_lib.open(
          address, which=section.which,
          num_heads=getattr(weights.config, 'num_heads', 0))
      params = found.read()
      checksums.check_identity(params, progress.get('base', ''), path=address)
    except (FileNotFoundError, UserError) as error:
      raise UserError(
          f'{weights.address} holds LoRA adapters of {address}, which cannot '
          f'be used: {schema.words(error)} If it was moved, load the adapters '
          'with base=PATH (--set base=PATH).') from error
    fitted, _ = adapt_lib.fit(
        found.with_params(params), frozen,
        grid=weights.config.grid(weights.resolution), data=weights.run['data'],
        # Trained parameters replace those that are ignored.
        config=dataclasses.replace(section, new=(), ignored=('.*',)))
    return jax.device_get(adapters.merge(
        tree.update(fitted, weights.read()), config))

  return dataclasses.replace(
      weights, read=read, run={**weights.run, 'lora': {}},
      shapes=tree.update(
          frozen, tree.without(weights.shapes, lora_config.ROOT)))
