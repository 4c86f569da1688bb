"""Weights that a run's state needs and its checkpoints leave out.

These are the teachers of an objective and, with adapters, all frozen
parameters. A resumed run loads them again from where they came from.
"""

import jax

from vit_jax import objectives
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.experiment import parts
from vit_jax.parallel import multihost


def without(
    experiment: parts.Experiment, state: types.TrainState,
) -> types.TrainState:
  """Returns the state to save; `state` may be abstract."""
  saved = experiment.optimizer.trainable if experiment.config.lora.rank else (
      tree.map_with_name(
          lambda name, _: not name.startswith(f'{objectives.TEACHER}/'),
          experiment.optimizer.trainable))
  return state.map_params(lambda params: tree.select(params, saved))


def add(
    experiment: parts.Experiment, state: types.TrainState,
    base: types.Params | None = None,
) -> types.TrainState:
  """Returns an initial or restored state with the frozen weights.

  `base` holds the parameters that adapters need, unless `state` does.
  """
  def complete(params: types.Params) -> types.Params:
    # Copied, since parameters and average are donated to the step.
    return with_teacher(experiment, tree.update(
        jax.tree.map(lambda x: x.copy(), base or {}), params))

  return state.map_params(complete)


def with_teacher(
    experiment: parts.Experiment, params: types.Params,
) -> types.Params:
  """Returns parameters with those of the teachers, by number, if any."""
  return params if not experiment.teachers else {
      **params, objectives.TEACHER: multihost.put(
          {str(number): teacher.read()
           for number, teacher in enumerate(experiment.teachers)},
          experiment.shardings.params[objectives.TEACHER])}


def hash_teachers(experiment: parts.Experiment, params: types.Params) -> str:
  """Returns a hash of the weights of the teachers; '' without teachers.

  If their outputs are stored with the data, the names of the fields that hold
  them contain such hashes.
  """
  return checksums.identity(params[objectives.TEACHER]) if (
      experiment.teachers) else ','.join(sorted(experiment.dataset.fields))


def changed_teachers(
    experiment: parts.Experiment, params: types.Params, trained: str) -> str:
  """Says that a run was trained with other teachers; '' if it was not.

  `trained` is the hash of those of the run; '' is unknown. An evaluation may
  need no teachers.
  """
  found = hash_teachers(experiment, params)
  return '' if found == trained or '' in (found, trained) else (
      'The teachers, or their stored outputs, are not those that the run '
      'started with: their weights have changed.')
