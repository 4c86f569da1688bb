"""From whatever format to a model, or to what a run starts from."""

from collections.abc import Callable
import dataclasses
import os
from typing import Any

from vit_jax import schema
from vit_jax import types
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.checkpoints import source as checkpoint_source
from vit_jax.inference import model as model_lib
from vit_jax.weights import convert
from vit_jax.weights import download
from vit_jax.weights import initialize
from vit_jax.weights import orbax_runs

Log = Callable[[str], None]


def load(
    path: str | os.PathLike, *, which: str = checkpoint_paths.LATEST,
    log: Log | None = print, **overrides: Any,
) -> model_lib.Model:
  """Loads a model with its weights, from whatever format they are in.

  Damage is noticed where the format has a checksum of the values: an .npz and
  a zipped state dict of PyTorch have; safetensors, PyTorch's older files and
  our own checkpoints, which Orbax writes, have none. There, what is missing or
  of another shape or type is noticed, and what is not finite, but not a value
  that became another. Keep the checksum of what must not change.

  Args:
    path: a run's workdir or checkpoint; an .npz, .safetensors or state dict of
      PyTorch; a folder of one with its config.json; locally, or at gs://,
      https:// or hf://user/model.
    which: 'latest' or 'best' checkpoint of a workdir.
    log: takes lines on what was found and inferred; None for silence.
    **overrides: keys of the section `model` (num_heads=4), or of `Preprocess`
      (resolution=384, mean=..., labels=...), or positions='cubic'. They win
      over what is inferred.

  Raises:
    FileNotFoundError: if there is nothing at `path`.
    ValueError: if the weights are damaged, unknown, or not exactly those of
      the model.
  """
  log = log or (lambda line: None)
  schema.check_name(which, checkpoint_paths.WHICH, what='which checkpoint')
  positions = overrides.pop('positions', None)
  if positions is not None:
    schema.convert(positions, initialize.Positions, where='positions')
  found = download.fetch(path, log=log)
  loaded = (orbax_runs.read(found, overrides, which=which) if orbax_runs.is_run(found)
            else convert.read(download.local(found, log=log), overrides))
  for line in loaded.statement:
    log(line)
  return model_lib.Model(
      config=loaded.config, params=loaded.params, preprocess=loaded.preprocess,
      resolution=loaded.resolution, positions=positions or loaded.positions,
      origin=f'{loaded.family}: {os.fspath(path)}', report=loaded.report)


@dataclasses.dataclass(frozen=True)
class Weights:
  """Weights of another codebase, as `checkpoint_source.Source` has those of ours.

  Attributes:
    path: where they are.
    item: what they are.
    config: the sections `model` and `data` of a config, as far as known.
    params: the parameters.
  """
  path: str
  item: str
  config: dict[str, Any]
  params: types.Params

  def load(self) -> types.Params:
    """Returns the parameters."""
    return self.params


def find(
    path: str | os.PathLike, *, which: str = checkpoint_paths.LATEST, **overrides: Any,
) -> checkpoint_source.Source | Weights:
  """Finds parameters to start a run from; takes and raises what `load` does.

  A run of ours is only looked at; its parameters are read when asked for.
  """
  found = download.fetch(path)
  if orbax_runs.is_run(found):
    return checkpoint_source.find(found, which=which)
  model = load(path, which=which, **overrides)
  return Weights(
      path=os.fspath(path), item=model.origin.split(':')[0] or 'weights',
      params=model.params, config={
          'model': schema.to_plain(model.config),
          'data': {'resolution': list(model.resolution)}})
