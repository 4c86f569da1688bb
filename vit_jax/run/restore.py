"""Initial state of a run.

    checkpoint in the workdir  resume, if the config is still compatible
    only weights               their values in a new state
    neither                    random parameters

Defines which config changes are allowed between two starts of a run.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import shlex
from typing import Any

from etils import epath

from vit_jax import classes
from vit_jax import data
from vit_jax import evals
from vit_jax import types
from vit_jax.checkpoints import checksums
from vit_jax.checkpoints import manager
from vit_jax.data import earlier as earlier_data
from vit_jax.data import example_sets
from vit_jax.data.sources import files
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import frozen_weights
from vit_jax.run import counters as counters_lib
from vit_jax.run import data_changes
from vit_jax.run import evaluation
from vit_jax.run import workdir as workdir_lib
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import weights as weights_lib

# Paths of sections and keys that do not change the result of a run.
IRRELEVANT = (
    ('mesh',), ('log',), ('checkpoint',), ('evals',), ('accumulation',),
    ('init',), ('card',), ('model', 'remat'), ('model', 'unroll'),
    *(('data', key) for key in (*config_lib.PER_HOST, 'divided_groups')))

# Keys of the section `data` that determine what an evaluator measures.
_EVAL_DATA = tuple(('data', key) for key in (
    'source', 'val_source', 'holdout', 'group', 'target', 'table', 'resolution',
    'channels', 'dtype', 'eval_ops', 'shapes'))


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
    ValueError: if the checkpoint belongs to an incompatible run, trained on
      images that are now held out, or the base of adapters is missing or has
      changed.
  """
  adapted = bool(experiment.config.lora.rank)
  if adapted and weights is None:
    raise ValueError(
        'lora.rank is set, but there are no weights to adapt. Set '
        '--config.init.checkpoint.')
  matched: list[tuple[experiment_lib.Experiment, str]] = []
  restored = checkpoints.restore(
      frozen_weights.without(experiment, experiment.abstract_state),
      check_labels=lambda names: matched.append(
          _match_classes(experiment, names, workdir)))
  if restored is not None:
    experiment, line = matched[-1]
    start = _resume(experiment, restored, workdir, weights)
    base = None
    if adapted and weights is not None:
      params = weights.read()
      checksums.check_identity(
          params, start.counters.base, path=weights.address)
      base, _ = fit_weights.fit(experiment, fit_weights.match_head(
          experiment, weights.with_params(params), owner='the checkpoint')[0])
    state = frozen_weights.add(experiment, restored.state, base)
    return state, dataclasses.replace(
        start, message='\n'.join(filter(None, [
            *restored.damaged, start.message, line])))
  if weights is None:
    state = frozen_weights.add(
        experiment, experiment.init_state(random=True))
    return state, Start(counters_lib.Counters(), (
        f'Starting from random parameters (seed {experiment.config.seed}).'),
        experiment, examples=data_changes.record(experiment).to_plain())
  params = weights.read()
  state, report = fit_weights.start(experiment, weights.with_params(params))
  return frozen_weights.add(experiment, state), Start(counters_lib.Counters(
      origin=weights.address,
      base=checksums.identity(params) if adapted else ''), report,
      experiment, examples=data_changes.record(experiment).to_plain())


def _match_classes(
    experiment: experiment_lib.Experiment, names: Sequence[str],
    workdir: epath.Path,
) -> tuple[experiment_lib.Experiment, str]:
  """Numbers the classes as in a checkpoint; returns a line to print, too."""
  dataset, teacher = experiment.dataset, experiment.teacher
  if names and not dataset.classes.names:
    # Losing the names is a difference, too.
    dataset = dataclasses.replace(dataset, class_names=tuple(
        map(str, range(dataset.num_classes))))
  dataset, line = data.match_classes(dataset, classes.Classes(
      'the checkpoint', len(names) or dataset.num_classes, names,
      str(workdir)))
  if dataset.classes.names != experiment.dataset.classes.names:
    if teacher is not None:
      teacher, _ = adapt_lib.match_classes(
          teacher, dataset.classes, owner='the teacher')
    experiment = dataclasses.replace(
        experiment, dataset=dataset, teacher=teacher)
  return experiment, line


def _resume(
    experiment: experiment_lib.Experiment, restored: manager.Restored,
    workdir: epath.Path, weights: weights_lib.Weights | None,
) -> Start:
  """Checks that the run can resume with this config."""
  config = experiment.config
  counters = counters_lib.Counters.restore(
      restored.progress, step=int(restored.state.step))
  # Resolved again, so that settings added since then get their defaults.
  saved = dict(restored.config)
  if saved.get('data', {}).get('target') == earlier_data.AUTO:
    # What was inferred then is declared now; the examples are compared below.
    saved['data'] = {**saved['data'], 'target': config.data.target,
                     'table': vars(config.data.table)}
  earlier = config_lib.name_by_split(
      config_lib.resolve(saved), experiment.dataset.eval_split)
  changes = config_file.differences(config_lib.to_plain(earlier), {
      **config_lib.to_plain(config),
      **({'accumulation': earlier.num_microbatches}
         if config.accumulation == 'auto' else {})})
  data_changed = _compare_data(experiment, restored)
  changed_evaluators = tuple(
      name for name, section in config.evals.items()
      if name in data_changed.evaluators or (name in earlier.evals and any(
          _changes_metrics(each, name, section) for each in changes)))
  changed = ('\nChanges of the config since the checkpoint:\n  '
             + '\n  '.join(map(str, changes))) if changes else ''
  if data_changed.lines:
    changed += ('\nChanges of the data since the checkpoint:\n  '
                + '\n  '.join(data_changed.lines))
  if not restored.examples:
    changed += ('\nnote: the checkpoint does not say which images it was '
                'trained on, so changes of the data are not noticed')
  best = config.checkpoint.best
  # A run that has ended keeps its metrics; `loop` notes what they measured.
  has_ended = evaluation.is_finished(experiment, counters)
  obsolete = {*changed_evaluators} if not has_ended else set()
  if earlier.checkpoint.best != best or best.partition('/')[0] in obsolete:
    if counters.best is not None:
      changed += (
          f'\nThe best {earlier.checkpoint.best} so far, of step '
          f'{counters.best_step:,}, is forgotten: later values are not '
          'comparable.')
    counters.forget_best()
  counters.keep_evals(config.evals.keys() - obsolete)
  problem = _problem(
      experiment, counters, earlier=earlier, weights=weights,
      data_changed=data_changed,
      changes_result=not all(each.is_in(*IRRELEVANT) for each in changes))
  if problem:
    raise ValueError(
        f'The run in {workdir} {problem} or use another --workdir.{changed}')
  return Start(
      counters, f'Resuming from step {counters.step:,} of {workdir}.{changed}',
      experiment, num_microbatches=earlier.num_microbatches,
      changed_evaluators=changed_evaluators,
      examples=data_changed.record.to_plain())


def _compare_data(
    experiment: experiment_lib.Experiment, restored: manager.Restored,
) -> data_changes.Changes:
  """Compares the examples with those of the checkpoint, if it names them."""
  record = data_changes.record(experiment)
  return data_changes.compare(
      example_sets.Record.of_plain(restored.examples), record) if (
          restored.examples) else data_changes.Changes(record, complete=False)


def _changes_metrics(
    change: config_file.Difference, name: str, section: evals.EvaluatorConfig,
) -> bool:
  """Whether an evaluator measures something else after a change."""
  objective: tuple[tuple[str, ...], ...] = (
      (('objective',),) if section.reports_objective
      else (('objective', 'name'), ('objective', 'loss')))
  if change.path[-1] in ('source', 'val_source') and change.new and (
      files.identity(change.old or '') == files.identity(change.new)):
    return False  # Another spelling.
  return change.is_in(('evals', name), *_EVAL_DATA, *objective) and (
      not change.is_in(*(
          ('evals', name, key) for key in ('every', 'at_start', 'batch_size'))))


def _problem(
    experiment: experiment_lib.Experiment, counters: counters_lib.Counters, *,
    earlier: config_lib.Config, weights: weights_lib.Weights | None,
    data_changed: data_changes.Changes, changes_result: bool,
) -> str:
  """Explains why a run cannot resume, with advice; '' if it can."""
  step, total = counters.step, experiment.total_steps
  if weights is not None and not counters.origin:
    return ('started from random parameters, but the config now starts from '
            f'{weights.address}. Delete the run')
  theirs, ours = ({**vars(each.data.value_scale), **each.data.target_scale}
                  for each in (earlier, experiment.config))
  if theirs != ours:
    flags = ' '.join(
        f'--config.data.{name}=' + shlex.quote(json.dumps(value))
        for name, value in theirs.items() if value != ours[name])
    return ('scales pixels or targets by other values, as listed below. Use '
            + flags)
  if earlier.data.mixture != experiment.config.data.mixture:
    return ('trains on another mixture, as listed below. Restore data.mixture')
  held_out = [data.held_out_by(vars(each))
              for each in (earlier.data, experiment.config.data)]
  if not data_changed.complete and (
      experiment.dataset.held_out and held_out[0] != held_out[1]):
    flag = shlex.quote(f'--config.{held_out[0]}')
    return (f'held out images by {held_out[0]}, but the config has '
            f'{held_out[1]}, which would mix images that are trained on with '
            f'those that are held out. Use {flag}')
  if data_changed.problem and not evaluation.is_finished(experiment, counters):
    return data_changed.problem
  if step > total:
    return (f'is at step {step:,}, but the config ends at step {total:,}. Set '
            'a longer total')
  if changes_result and evaluation.is_finished(experiment, counters):
    remedy = ('longer total' if step == total else
              'longer checkpoint.patience or other checkpoint.stop_below')
    return f'is finished, with a different config. Set a {remedy}'
  old, new = (config.model.grid(config.data.size)
              for config in (earlier, experiment.config))
  if old != new:
    return (f'has position embeddings for {old[0]}x{old[1]} patches, but the '
            f'config has {new[0]}x{new[1]}. Start a new run from it with '
            '--config.init.checkpoint')
  return ''


def read_finished(
    experiment: experiment_lib.Experiment, workdir: epath.Path, start: Start,
) -> dict[str, Any] | None:
  """Returns the summary of a run that has no steps left, else None."""
  summary = workdir_lib.read(workdir / workdir_lib.SUMMARY)
  finished = evaluation.is_finished(experiment, start.counters)
  return (summary if summary and finished
          and summary.get('steps') == start.counters.step else None)
