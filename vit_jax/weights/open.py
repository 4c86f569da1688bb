"""Opens weights at any address: runs, files of other codebases, the hub.

    address ─▶ local files ─▶ format ─▶ names, shapes, settings ─▶ Weights

Values are read by `Weights.read`.
"""

from collections.abc import Callable, Mapping
import dataclasses
import os
from typing import Any

from etils import epath

from vit_jax import console
from vit_jax import registry
from vit_jax import schema
from vit_jax.checkpoints import paths
from vit_jax.exceptions import UserError
from vit_jax.weights import download
from vit_jax.weights import published
from vit_jax.weights import weights as weights_lib
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
    UserError: if the weights are damaged, of an unknown format, or do not
      match the model exactly.
  """
  schema.check_name(which, paths.WHICH, what='which checkpoint')
  log = log or (lambda line: None)
  if num_heads:
    overrides['num_heads'] = num_heads
  path = download.fetch(address, log=log)
  is_run = paths.is_run(path)
  weights = orbax.open_run(path, which=which) if is_run else (
      dataclasses.replace(_open_file(path, overrides),
                          address=os.fspath(address)))
  if weights.run.get('lora', {}).get('rank'):
    weights = registry.load(registry.LORA_BASE)(weights, base=base)
  elif base:
    raise UserError(
        f'base={base!r} is for adapters, but {os.fspath(address)} holds none. '
        'Leave it out.')
  return orbax.override(weights, overrides) if is_run else weights


def _open_file(
    path: epath.Path, overrides: Mapping[str, Any]) -> weights_lib.Weights:
  """Opens a published .npz file, or with the zoo any other."""
  problem = f'{path} is a folder without a checkpoint of vit_jax.'
  try:
    if not path.is_dir():
      return published.read(npz.open_file(path), overrides)
  except UserError as error:
    problem = str(error)
  # Other models have such names, too, so that the zoo decides.
  if foreign := registry.optional(registry.FOREIGN):
    return foreign.load(path, overrides)
  raise UserError(
      f'{problem}\nThe files of other models are read by vit_jax/extras/zoo, '
      'which does not exist here.')


def open_model(
    address: epath.PathLike, **options: Any) -> weights_lib.Weights:
  """Opens the weights of a model alone, see `orbax.for_inference`."""
  weights = open(address, **options)
  return (orbax.for_inference(weights) if weights.is_checkpoint else weights)
