"""Opens weights at any address: runs, files of other codebases, the hub.

    address ─▶ local files ─▶ format ─▶ names, shapes, settings ─▶ Weights

Values are read by `Weights.read`.
"""

from collections.abc import Callable, Mapping
import dataclasses
import os
import pathlib
from typing import Any

from etils import epath
import jax

from vit_jax import console
from vit_jax import registry
from vit_jax import schema
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths
from vit_jax.models import lora
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import check
from vit_jax.weights import download
from vit_jax.weights import published
from vit_jax.weights import weights as weights_lib
from vit_jax.weights.formats import array_file
from vit_jax.weights.formats import npz
from vit_jax.weights.formats import orbax

Log = Callable[[str], None]


def open(
    address: epath.PathLike, *, which: str = paths.LATEST, base: str = '',
    num_heads: int = 0, log: Log | None = console.print_lines,
    **overrides: Any,
) -> weights_lib.Weights:
  """Opens weights; a run's weights have all its parameters, as stored.

  Args:
    address: as `path` in `vit_jax.load`.
    which: as in `vit_jax.load`.
    base: as in `vit_jax.load`.
    num_heads: number of heads, which arrays do not always determine; 0 to
      infer it.
    log: called with a line for each download; None for none.
    **overrides: other fields of the section `model` and of `Preprocess`, which
      take precedence over inferred values; and `prefix`, that of parameter
      names, for a file with several copies of a model.

  Raises:
    FileNotFoundError: if there is nothing at `address`.
    ValueError: if the weights are damaged, of an unknown format, or do not
      match the model exactly.
  """
  schema.check_name(which, paths.WHICH, what='which checkpoint')
  log = log or (lambda line: None)
  if num_heads:
    overrides['num_heads'] = num_heads
  path = download.fetch(address, log=log)
  is_run = paths.is_run(path)
  weights = orbax.open_run(path, which=which) if is_run else (
      dataclasses.replace(_open_file(download.local(path), overrides),
                          address=os.fspath(address)))
  adapters = schema.parse(
      lora.LoraConfig, weights.run.get('lora', {}), where='lora')
  if adapters.rank:
    weights = _merged(weights, adapters, base=base)
  elif base:
    raise ValueError(
        f'base={base!r} is for adapters, but {os.fspath(address)} holds none. '
        'Leave it out.')
  return orbax.override(weights, overrides) if is_run else weights


def _open_file(
    path: pathlib.Path, overrides: Mapping[str, Any],
) -> weights_lib.Weights:
  """Opens a published .npz file, or with the zoo any other."""
  problem = f'{path} is not a published .npz file.'
  try:
    if path.is_file() and array_file.format_of(path) == 'npz':
      return published.read(npz.open_file(path), overrides)
  except ValueError as error:
    problem = str(error)
  # Other models have such names, too, so that the zoo decides.
  if load_foreign := registry.optional(registry.FOREIGN):
    return load_foreign(path, overrides)
  raise ValueError(
      f'{problem}\nOther models are read by vit_jax/extras/zoo, which does not '
      'exist here.')


def open_model(
    address: epath.PathLike, **options: Any) -> weights_lib.Weights:
  """Opens the weights of a model alone, see `orbax.for_inference`."""
  weights = open(address, **options)
  return (orbax.for_inference(weights) if weights.is_checkpoint
          else weights)


def _merged(
    weights: weights_lib.Weights, config: lora.LoraConfig, *, base: str,
) -> weights_lib.Weights:
  """Merges the adapters of a LoRA run.

  The checkpoint of a LoRA run holds adapters and names their base. The base is
  opened at the address in the checkpoint, or at `base`, compared with the hash
  in the checkpoint, and fitted to the model as at the start of the run. Then
  the adapters are added.
  """
  folder = epath.Path(weights.address)
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
    adapters = weights.read()
    try:
      found = open(
          address, num_heads=getattr(weights.config, 'num_heads', 0))
      params = found.read()
      checksums.check_identity(params, progress.get('base', ''), path=address)
    except (FileNotFoundError, ValueError) as error:
      raise ValueError(
          f'{weights.address} holds LoRA adapters of {address}, which cannot '
          f'be used: {schema.words(error)} If it was moved, load the adapters '
          'with base=PATH (--set base=PATH).') from error
    fitted, _ = adapt_lib.fit(
        found.with_params(params), frozen,
        grid=weights.config.grid(weights.resolution), data=weights.run['data'],
        # Trained parameters replace those that are ignored.
        config=dataclasses.replace(section, new=(), ignored=('.*',)))
    return jax.device_get(lora.merge(tree.update(fitted, adapters), config))

  return dataclasses.replace(
      weights, read=read, run={**weights.run, 'lora': {}},
      shapes=tree.update(frozen, tree.without(weights.shapes, lora.ROOT)))
