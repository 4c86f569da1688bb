"""What a run of the grid sees, and by what it is chosen.

A choice counts only if it was made on examples that were neither trained on
nor are what the final runs report on: both are refused, example by example.
"""

from typing import Any

from vit_jax import data
from vit_jax import evals
from vit_jax.data.splits import overlap
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.sweep import config as sweep_config

DEVELOPMENT = 'dev'
# What there is to choose by in place of accuracy, by the evaluator's kind.
_USUAL = {'objective': 'loss', 'multi_label': 'mean_average_precision',
          'regression': 'root_mean_square_error'}


def changes(
    config: config_lib.Config, section: sweep_config.SweepConfig,
) -> dict[str, Any]:
  """Returns how a run of the grid differs from the config."""
  if section.development:
    return dict(section.development)
  split = config.data.split
  if '[' in split:
    raise ValueError(
        f'data.split is {split!r}: of a part of a split, the sweep cannot tell '
        'what else to hold out. Say it in the section `sweep` of the config: '
        "'development': {'data': {'split': ...}, 'evals': {'dev': {'split': "
        '...}}}.')
  kept, end = 100 - section.held_out, '+'.join
  parts = [part.strip() for part in split.split('+')]
  # A head that nothing trains says nothing of a setting.
  kind = {} if _uses_labels(config) else {'name': 'objective'}
  if any(section.name == 'regression' for section in config.evals.values()):
    kind = {'name': 'regression'}
  return {
      'data': {'split': end(f'{part}[:{kept}%]' for part in parts)},
      'evals': {DEVELOPMENT: {
          **kind, 'split': end(f'{part}[{kept}%:]' for part in parts)}}}


def config_of(
    config: config_lib.Config, section: sweep_config.SweepConfig,
) -> config_lib.Config:
  """Returns the config as a run of the grid has it."""
  plain = config_lib.to_plain(config)
  differences = changes(config, section)
  if plain['checkpoint']['best'].split('/')[0] not in differences['evals']:
    # It is chosen by an evaluator that the grid must not have.
    plain['checkpoint'] |= {'best': '', 'patience': None}
  return config_lib.resolve(
      config_lib.merge({**plain, 'evals': {}}, differences))


def usual_metric(config: config_lib.Config) -> str:
  """Returns what the runs of a grid are chosen by, unless it is said.

  Raises:
    ValueError: if there are several evaluators, and none is called 'dev'.
  """
  names = list(config.evals)
  name = DEVELOPMENT if DEVELOPMENT in names or not names else names[0]
  if name != DEVELOPMENT and len(names) > 1:
    raise ValueError(
        f'sweep.metric must say what to choose by, since none of the '
        f'evaluators {", ".join(names)} is called {DEVELOPMENT!r}. Give it: '
        f'--metric {name}/METRIC.')
  if name not in config.evals:
    return f'{name}/accuracy'
  section = config.evals[name]
  metric = _USUAL.get(section.name)
  if metric is None:
    known = list(evals.metrics_of(section))
    metric = 'accuracy' if 'accuracy' in known else known[0]
    if (section.name == 'classification' and 'precision_at_1' in known
        and _has_several_labels(config, section)):
      metric = 'precision_at_1'
  return f'{name}/{metric}'


def mode(config: config_lib.Config, metric: str) -> str:
  """Returns whether to maximise a metric; raises if there is no such one.

  Args:
    config: of a run of the grid.
    metric: 'evaluator/metric'.
  """
  plain = config_lib.to_plain(config)
  plain['checkpoint'] |= {
      'best': metric, 'best_mode': 'auto', 'patience': None}
  try:
    found = config_lib.best_mode(config_lib.resolve(plain))
  except ValueError as error:
    raise ValueError(str(error).replace(
        'checkpoint.best', 'sweep.metric')) from error
  name = metric.split('/')[0]
  section = config.evals[name]
  if not _uses_labels(config) and section.name != 'objective' and (
      evals.uses_head(section)):
    raise ValueError(
        f'sweep.metric is {metric!r}, but the objective '
        f'{config.objective.name} trains no head, which {name!r} measures. '
        "Choose by an evaluator {'name': 'objective'} and its loss, or by "
        'fewshot or knn, which need no head.')
  return found


def check_measured(experiment: experiment_lib.Experiment, metric: str) -> None:
  """Raises if a run of the grid will not measure what it is chosen by.

  Which metrics an evaluator gives depends on the data and the objective.
  """
  evaluator, _, name = metric.partition('/')
  section = experiment.config.evals[evaluator]
  known = list(evals.metrics_of(section))
  if section.name == 'objective':
    # The means of training and of the evaluation are of the same measures.
    known = [m for m in known if m in experiment.abstract_state.metrics]
  elif section.name == 'classification' and 'precision_at_1' in known:
    dataset = _open(experiment.config, section)
    known = list(evals.classification_metrics(
        multi_label=dataset.multi_label, num_classes=dataset.num_classes))
  if name not in known:
    raise ValueError(
        f'sweep.metric is {metric!r}, which is not measured on this data. '
        f'Measured: {", ".join(f"{evaluator}/{m}" for m in known)}. Choose '
        'one of these: --metric.')


def reported(
    final: config_lib.Config, development: config_lib.Config) -> list[str]:
  """Returns the evaluators of the final runs that nothing was chosen by."""
  def place(config: config_lib.Config, name: str) -> Any:
    section = config.evals.get(name)
    return section and (section.source or config.data.source, section.split)

  return [name for name in final.evals
          if place(final, name) != place(development, name)]


def check_unseen(
    experiment: experiment_lib.Experiment, final: experiment_lib.Experiment,
) -> None:
  """Raises if the development data is trained on, or reported on.

  Args:
    experiment: a run of the grid.
    final: a run on all of the data, with the same settings.
  """
  names = reported(final.config, experiment.config)
  if not names:
    raise ValueError(
        'The config has no evaluator for the final runs: its section evals is '
        'empty, or holds only what the grid is chosen by.')
  tests = {name: _open(final.config, final.config.evals[name])
           for name in names}
  for name, section in experiment.config.evals.items():
    seen = _open(experiment.config, section)
    if overlap.overlap(seen, experiment.dataset):
      raise ValueError(
          f'sweep.development: the evaluator {name!r} reads {seen.split!r} of '
          f'{seen.name}, of which examples are trained on: data.split is '
          f'{experiment.dataset.split!r}. Choose by examples that are not.')
    for test, reads in tests.items():
      if overlap.overlap(seen, reads):
        raise ValueError(
            f'sweep.development: the evaluator {name!r} reads {seen.split!r} '
            f'of {seen.name}, of which the final runs report on examples: '
            f'{test!r} reads {reads.split!r}. Choose by a part of the training '
            'split.')


def _uses_labels(config: config_lib.Config) -> bool:
  return config.objective.name == 'supervised'


def _has_several_labels(
    config: config_lib.Config, section: evals.EvalConfig) -> bool:
  try:
    return _open(config, section).multi_label
  except ValueError:
    # Not there to be looked at; whoever runs the sweep is told so.
    name = (section.source or config.data.source).partition(':')[0]
    return bool(data.DATASETS[name].multi_label) if (
        name in data.DATASETS) else False


def _open(
    config: config_lib.Config, section: evals.EvalConfig) -> data.Dataset:
  """Opens what an evaluator measures on."""
  return data.open_dataset(
      config.data, split=section.split, source=section.source or None)
