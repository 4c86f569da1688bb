"""Initial state of a run.

    checkpoint in the workdir  resume, if the config is still compatible
    only weights               their values in a new state
    neither                    random parameters

Each field of the config declares what it means if its value has changed since
the last start; see `fields`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import shlex
import types as python_types
from typing import Any

from etils import epath

from vit_jax import classes
from vit_jax import data
from vit_jax import fields
from vit_jax import registry
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import manager
from vit_jax.data.sources import files
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import frozen_weights
from vit_jax.parallel import multihost
from vit_jax.run import counters as counters_lib
from vit_jax.run import evaluation
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import weights as weights_lib


@dataclasses.dataclass(frozen=True)
class Start:
  """Starting point of a run, without the state itself.

  Attributes:
    counters: counters of earlier starts.
    message: origin of the state, for the terminal.
    num_microbatches: microbatches of earlier steps; None if unknown.
    changed_evaluators: those that measure something else since the checkpoint.
    examples: the sets of examples of the run, as plain data for checkpoints.
    experiment: the experiment, with the classes numbered as in the checkpoint.
  """
  counters: counters_lib.Counters
  message: str
  experiment: experiment_lib.Experiment
  num_microbatches: int | None = None
  changed_evaluators: tuple[str, ...] = ()
  examples: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def restore_or_init(
    experiment: experiment_lib.Experiment, checkpoints: manager.Checkpoints,
    workdir: epath.Path, weights: weights_lib.Weights | None,
) -> tuple[types.TrainState, Start]:
  """Restores the state of a run, or initialises it if there is none.

  Raises:
    UserError: if the checkpoint belongs to an incompatible run, trained on
      images that are now held out, the base of adapters is missing, or it or
      a teacher has changed.
  """
  if experiment.config.lora.rank and weights is None:
    raise UserError(
        'lora.rank is set, but there are no weights to adapt. Set '
        '--config.init.checkpoint.')
  matched: list[tuple[experiment_lib.Experiment, str]] = []
  restored = checkpoints.restore(
      frozen_weights.without(experiment, experiment.abstract_state),
      check_labels=lambda names: matched.append(
          _match_classes(experiment, names, workdir)))
  if restored is None:
    return _init(experiment, weights)
  experiment, line = matched[-1]
  start = _resume(experiment, restored, workdir, weights)
  base = None
  if experiment.config.lora.rank and weights is not None:
    params = weights.read()
    checksums.check_identity(params, start.counters.base, path=weights.address)
    base, _ = fit_weights.fit(experiment, fit_weights.match_head(
        experiment, weights.with_params(params), owner='the checkpoint')[0])
    base = multihost.put(base, experiment.shardings.params)
  state = frozen_weights.add(experiment, restored.state, base)
  if problem := frozen_weights.changed_teachers(
      experiment, state.params, start.counters.teachers):
    raise UserError(f'{problem} Use the former ones, or another --workdir.')
  return state, dataclasses.replace(start, message='\n'.join(filter(None, [
      *restored.damaged, start.message, line])))


def _init(
    experiment: experiment_lib.Experiment, weights: weights_lib.Weights | None,
) -> tuple[types.TrainState, Start]:
  """Starts a new run from weights or from random parameters."""
  counters = counters_lib.Counters()
  if weights is None:
    state, seed = experiment.init_state(random=True), experiment.config.seed
    message = f'Starting from random parameters (seed {seed}).'
  else:
    params, counters.origin = weights.read(), weights.address
    counters.positions = weights.positions
    state, message = fit_weights.start(experiment, weights.with_params(params))
    if experiment.config.lora.rank:
      counters.base = checksums.identity(params)
  state = frozen_weights.add(experiment, state)
  counters.teachers = frozen_weights.hash_teachers(experiment, state.params)
  return state, Start(counters, message, experiment,
                      examples=_changes_of_data(experiment).examples)


def _match_classes(
    experiment: experiment_lib.Experiment, names: Sequence[str],
    workdir: epath.Path,
) -> tuple[experiment_lib.Experiment, str]:
  """Numbers the classes as in a checkpoint; returns a line to print, too."""
  dataset, teachers = experiment.dataset, experiment.teachers
  if names and not dataset.classes.names:
    # Losing the names is a difference, too.
    dataset = dataclasses.replace(dataset, class_names=tuple(
        map(str, range(dataset.num_classes))))
  dataset, line = data.match_classes(dataset, classes.Classes(
      'the checkpoint', len(names) or dataset.num_classes, names,
      str(workdir)))
  if dataset.classes.names != experiment.dataset.classes.names:
    if experiment.config.objective.shares_classes:
      teachers = tuple(adapt_lib.match_classes(
          teacher, dataset.classes, owner='the teacher')[0]
                       for teacher in teachers)
    experiment = dataclasses.replace(
        experiment, dataset=dataset, teachers=teachers)
  return experiment, line


def _resume(
    experiment: experiment_lib.Experiment, restored: manager.Restored,
    workdir: epath.Path, weights: weights_lib.Weights | None,
) -> Start:
  """Compares the run with its checkpoint.

  Raises:
    UserError: if it cannot resume with this config, these data or weights.
  """
  counters = counters_lib.Counters.restore(
      restored.progress, step=int(restored.state.step))
  earlier = _earlier_config(experiment, restored)
  changes = _changes(earlier, experiment.config)
  data_changes = _changes_of_data(experiment, restored.examples)
  changed_evaluators = tuple(
      name for name in experiment.config.evals
      if name in data_changes.evaluators or any(
          _changes_metrics(each, meaning, name) for each, meaning in changes))
  noted = '\n  '.join([
      '\nChanges of the config since the checkpoint:' * bool(changes),
      *(str(each) for each, _ in changes)]) + data_changes.text
  # A run that has ended keeps its metrics; `loop` notes what they measured.
  if not evaluation.is_finished(experiment, counters):
    noted += _forget(counters, changed_evaluators, earlier, experiment.config)
  elif any(each.path[0] == 'checkpoint' for each, _ in changes):
    counters.evaluated = -1  # It may end only now: all evaluators are due.
  problem = _problem(
      experiment, counters, changes, data_problem=data_changes.problem,
      weights=weights)
  if problem:
    raise UserError(
        f'The run in {workdir} {problem} or use another --workdir.{noted}')
  return Start(
      counters, f'Resuming from step {counters.step:,} of {workdir}.{noted}',
      experiment, num_microbatches=earlier.num_microbatches,
      changed_evaluators=changed_evaluators,
      examples=data_changes.examples)


def _changes_of_data(
    experiment: experiment_lib.Experiment,
    earlier: Mapping[str, Any] | None = None,
) -> Any:
  """Returns what the leaf `changes` finds; see `data_changes.Changes`."""
  changes = registry.optional(registry.CHANGES)
  return changes.of_run(experiment, earlier) if changes else (
      python_types.SimpleNamespace(
          examples={}, text='', evaluators=(), problem=''))


def _earlier_config(
    experiment: experiment_lib.Experiment, restored: manager.Restored,
) -> config_lib.Config:
  """Returns the config of the checkpoint.

  It is parsed, so that settings added since then get their defaults.
  """
  saved, section = dict(restored.config), experiment.config.data
  if saved.get('data', {}).get('target') == 'auto':
    # What was inferred then is declared now; the examples are compared.
    saved['data'] = {**saved['data'], 'target': section.target,
                     'table': vars(section.table)}
  return config_lib.resolve(saved)


def _changes(
    earlier: config_lib.Config, config: config_lib.Config,
) -> list[tuple[config_file.Difference, str]]:
  """Returns the changes of a config, and what each means; see `fields`."""
  if config.accumulation == 'auto':
    config = dataclasses.replace(config, accumulation=earlier.num_microbatches)
  return [(each, fields.on_change(config, each.path))
          for each in config_file.differences(
              config_lib.to_plain(earlier), config_lib.to_plain(config))]


def _changes_metrics(
    change: config_file.Difference, meaning: str, name: str) -> bool:
  """Whether an evaluator measures something else after a change."""
  section, *keys = change.path
  if section == 'evals' and keys[0] != name:
    return False
  if change.path[-1] in ('source', 'val_source') and change.new and (
      files.identity(change.old or '') == files.identity(change.new)):
    return False  # Another spelling of a path.
  return meaning in (fields.MEASURED, fields.BOTH) or (
      section == 'objective' and meaning != fields.FREE)


def _forget(
    counters: counters_lib.Counters, changed_evaluators: Sequence[str],
    earlier: config_lib.Config, config: config_lib.Config,
) -> str:
  """Forgets metrics that later ones cannot be compared with; returns a note."""
  counters.keep_evals(config.evals.keys() - {*changed_evaluators})
  best, step = config.checkpoint.best, counters.best_step
  if best == earlier.checkpoint.best and (
      best.partition('/')[0] not in changed_evaluators):
    return ''
  counters.forget_best()
  return '' if step is None else (
      f'\nThe best {earlier.checkpoint.best} so far, of step {step:,}, is '
      'forgotten: later values are not comparable.')


def _problem(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters,
    changes: Sequence[tuple[config_file.Difference, str]], *,
    data_problem: str, weights: weights_lib.Weights | None,
) -> str:
  """Explains why a run cannot resume, with advice; '' if it can."""
  step, total = counters.step, experiment.total_steps
  finished = evaluation.is_finished(experiment, counters)
  if weights is not None and not counters.origin:
    return ('started from random parameters, but the config now starts from '
            f'{weights.address}. Delete the run')
  refused = {'.'.join(each.path): shlex.quote(json.dumps(each.old))
             for each, meaning in changes if meaning == fields.REFUSED}
  if refused:
    flags = ' '.join(f'--config.{key}={old}' for key, old in refused.items())
    return (f'cannot go on with other values of {" and ".join(refused)}. Use '
            f'{flags}, start another run from this one '
            '(--config.init.checkpoint),')
  if data_problem and not finished:
    return data_problem
  if step > total:
    return (f'is at step {step:,}, but the config ends at step {total:,}. Set '
            'a longer total')
  if finished and any(
      meaning in (fields.NOTED, fields.BOTH) for _, meaning in changes):
    remedy = ('longer total' if step == total else
              'longer checkpoint.patience or other checkpoint.stop_below')
    return f'is finished, with a different config. Set a {remedy}'
  return ''
