"""Fits weights to the model of an experiment."""

import dataclasses
import math
import os

from etils import epath
import jax
import numpy as np

from vit_jax import console
from vit_jax import data
from vit_jax import objectives
from vit_jax import types
from vit_jax.checkpoints import paths
from vit_jax.data import preprocessing
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import parts
from vit_jax.parallel import multihost
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import weights as weights_lib

_MANY_TOKENS = 4  # Times those of the weights.


def open_initial(
    config: config_lib.Config, workdir: epath.PathLike = '',
) -> weights_lib.Weights | None:
  """Opens the weights that a run starts from, if any.

  Args:
    config: config of the run.
    workdir: its folder, in whose folder that of an earlier stage is.
  """
  init, address = config.init, config.init.checkpoint
  if init.stage and not workdir:
    raise UserError(
        f'init.stage is {init.stage!r}, whose weights only the workdir of all '
        "stages holds. Set init.stage to '' and init.checkpoint to the workdir "
        'of that stage, or start from random parameters: '
        'init_state(random=True).')
  if init.stage:
    address = os.fspath(epath.Path(workdir).parent / init.stage)
  if not address:
    return None
  # Imported here: runs from random weights load no reader of weights.
  from vit_jax.weights import open as open_lib
  return open_lib.open(address, which=init.which, log=None,
                       num_heads=getattr(config.model, 'num_heads', 0))


def start(
    experiment: parts.Experiment, weights: weights_lib.Weights,
) -> tuple[types.TrainState, str]:
  """Returns the state of step 0 with initial weights, and a report; see `fit`.

  Raises:
    UserError: if the parameters do not fit the model, or a kept head has other
      classes than the data.
  """
  weights, matched = match_head(experiment, weights, owner='the checkpoint')
  params, rows = fit(
      experiment, weights, initial=multihost.fetch(experiment.random_params()))
  params = multihost.put(params, experiment.shardings.params)
  counts, *others = adapt_lib.report(rows)
  report = console.brief([
      f'Starting from {paths.display(weights.address)} ({weights.kind})',
      f'  {counts}', *others])
  return experiment.init_state(params), '\n'.join(filter(None, [
      *report, matched, *data.scale_notes(
          experiment.config.data, weights.preprocess.value_scale),
      _tokens_note(experiment.config, weights.resolution)]))


def _tokens_note(
    config: config_lib.Config, trained: tuple[int, int]) -> str:
  """Returns a note if images have many more tokens than in the training."""
  new, old = (math.prod(config.model.grid(size))
              for size in (config.data.size, trained))
  return '' if new <= _MANY_TOKENS * old else (
      f'note: an image of {config.data.size[0]}x{config.data.size[1]} has '
      f'{new:,} patches, but the weights were trained with {old:,}. A step '
      f'takes more than {new // old} times as long as with --config.data.'
      f'resolution={trained[0]}')


def check(
    experiment: parts.Experiment, earlier: parts.Experiment,
) -> None:
  """Raises if a run cannot start from a checkpoint of an earlier stage.

  Compares classes and shapes only, before the earlier stage is trained.
  """
  weights = weights_of(earlier, _zeros(earlier.model_params))
  weights, _ = match_head(experiment, weights, owner='the earlier stage')
  fit(experiment, weights)


def weights_of(
    experiment: parts.Experiment, params: types.Params,
) -> weights_lib.Weights:
  """Returns parameters of an experiment as weights."""
  size = experiment.config.data.size
  return weights_lib.Weights.of(
      params, config=experiment.config.model, resolution=size,
      preprocess=preprocessing.Preprocess(
          size, labels=tuple(experiment.dataset.classes.names)))


def match_head(
    experiment: parts.Experiment, weights: weights_lib.Weights, *,
    owner: str,
) -> tuple[weights_lib.Weights, str]:
  """Matches a kept head with the data; see `adapt.match_classes`."""
  if not (adapt_lib.num_classes(experiment.abstract_state.params)
          and adapt_lib.keeps_head(experiment.config.init, weights.shapes)):
    return weights, ''
  return adapt_lib.match_classes(
      weights, experiment.dataset.classes, owner=owner)


def fit(
    experiment: parts.Experiment, weights: weights_lib.Weights, *,
    rules: adapt_lib.InitConfig | None = None,
    initial: types.Params | None = None,
) -> tuple[types.Params, list[adapt_lib.Row]]:
  """Returns weights fitted to a model, on the host, and a report.

  Args:
    experiment: the experiment with the model.
    weights: the weights.
    rules: parameters that may be new or ignored; by default those of a run that
      starts, with a new projector of a distillation.
    initial: initial parameters of the model; zeros by default.

  Raises:
    UserError: if the parameters do not fit the model.
  """
  config = experiment.config
  if initial is None:
    initial = _zeros(experiment.abstract_state.params)
  added = [*parts.NOT_IN_MODEL]
  if rules is None:
    rules = config.init
    if objectives.TEACHER in initial or (
        experiment.dataset.fields  # Stored outputs of a teacher.
        and objectives.PROJECTOR not in weights.shapes):
      added.append(objectives.PROJECTOR)
  params, rows = adapt_lib.fit(
      weights, initial, config=dataclasses.replace(rules, new=(
          *rules.new, *[f'{name}/.*' for name in added if name in initial])),
      grid=config.model.grid(config.data.size), data=config.data.target_scale)
  return params, [row for row in rows if not row.name.startswith(
      f'{objectives.TEACHER}/')]


def _zeros(params: types.Params) -> types.Params:
  """Returns zeros that take no memory."""
  return jax.tree.map(
      lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape),
      params)
