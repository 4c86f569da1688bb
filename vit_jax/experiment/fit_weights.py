"""Fits the weights of a checkpoint to the model of an experiment."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from vit_jax import objectives
from vit_jax import types
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.weights import initialize


def start(
    experiment: experiment_lib.Experiment, state: types.TrainState,
    source: types.Params, source_config: Mapping[str, Any],
) -> tuple[types.TrainState, list[initialize.Row]]:
  """Returns the state with parameters of a checkpoint; see `fit`."""
  params, rows = fit(
      experiment, source, source_config, rules=experiment.config.init,
      initial=multihost.fetch(state.params))
  average = None if state.average is None else jax.tree.map(
      lambda x: x.copy(), params)
  return dataclasses.replace(state, params=params, average=average), rows


def check(
    experiment: experiment_lib.Experiment, earlier: experiment_lib.Experiment,
) -> None:
  """Raises if a run cannot start from a checkpoint of an earlier stage.

  Compares classes and shapes only, before the earlier stage is trained.
  """
  match_head(experiment, earlier.model_params, earlier.dataset.classes.names,
             owner='the earlier stage')
  _fit(experiment, _zeros(earlier.model_params),
       config_lib.to_plain(earlier.config), rules=experiment.config.init,
       initial=_zeros(experiment.abstract_state.params))


def match_head(
    experiment: experiment_lib.Experiment, source: types.Params,
    labels: Sequence[str], **names: str,
) -> str:
  """Compares a kept head with the data; see `initialize.match_classes`."""
  if not initialize.num_classes(experiment.abstract_state.params):
    return ''
  return initialize.match_classes(
      source, labels, experiment.dataset.classes,
      config=experiment.config.init, **names)


def fit(
    experiment: experiment_lib.Experiment, source: types.Params,
    source_config: Mapping[str, Any], *, rules: initialize.InitConfig,
    initial: types.Params | None = None,
) -> tuple[types.Params, list[initialize.Row]]:
  """Returns parameters of a checkpoint fitted to a model, on its devices.

  Args:
    experiment: the experiment with the model.
    source: parameters of the checkpoint.
    source_config: plain config of the checkpoint; `model` and `data` suffice.
    rules: parameters that may be new or ignored.
    initial: initial parameters of the model; zeros by default.

  Raises:
    ValueError: if the parameters do not fit the model.
  """
  params, rows = _fit(
      experiment, source, source_config, rules=rules,
      initial=_zeros(experiment.abstract_state.params) if initial is None
      else initial)
  return multihost.put(params, experiment.shardings.params), rows


def _fit(
    experiment: experiment_lib.Experiment, source: types.Params,
    source_config: Mapping[str, Any], *, rules: initialize.InitConfig,
    initial: types.Params,
) -> tuple[types.Params, list[initialize.Row]]:
  """Implements `fit` on the host."""
  config = experiment.config
  resize = initialize.resizer(
      source_config, rules, grid=config.model.grid(config.data.size))
  added = [*experiment_lib.NOT_IN_MODEL]
  if objectives.TEACHER in initial:
    added.append(objectives.PROJECTOR)
  rules = dataclasses.replace(rules, new=(
      *rules.new, *[f'{name}/.*' for name in added if name in initial]))
  params, rows = initialize.adapt(
      initialize.with_positions(source, source_config, initial), initial,
      config=rules, resize=resize)
  return params, [row for row in rows if not row.name.startswith(
      f'{objectives.TEACHER}/')]


def _zeros(params: types.Params) -> types.Params:
  """Returns zeros that take no memory."""
  return jax.tree.map(
      lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape),
      params)
