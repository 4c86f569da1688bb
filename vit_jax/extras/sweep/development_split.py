"""Data, evaluators and metric of the runs of a grid.

The selection must use examples that are neither trained on nor part of the
reported test data: both are checked, example by example.
"""

from typing import Any

from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.extras.sweep import config as sweep_config

DEVELOPMENT = 'dev'


def overrides(
    config: config_lib.Config, section: sweep_config.SweepConfig,
) -> dict[str, Any]:
  """Returns the overrides of the config in the runs of the grid."""
  if section.development:
    return dict(section.development)
  if config.data.mixture:
    raise UserError(
        'A sweep holds out a part of data.source, but the config has '
        'data.mixture. Sweep on one of its sources.')
  split = config.data.split
  if '[' in split:
    raise UserError(
        f'data.split is {split!r}, a part of a split, so the sweep does not '
        'know what else to hold out. Write it in the section `sweep` of the '
        "config: 'development': {'data': {'split': ...}, 'evals': {'dev': "
        "{'split': ...}}}.")
  kept, names = 100 - section.held_out, split_strings.parts(split)
  kind = {}
  if any(section.name == 'regression' for section in config.evals.values()):
    kind = {'name': 'regression'}
  elif config.objective.uses_masks:
    kind = {'name': 'segmentation_head'}
  elif not config.objective.uses_labels:
    # An untrained head cannot rank settings.
    kind = {'name': 'objective'}
  return {
      'data': {'split': '+'.join(f'{name}[:{kept}%]' for name in names)},
      'evals': {DEVELOPMENT: {
          **kind, 'split': '+'.join(f'{name}[{kept}%:]' for name in names)}}}


def development_config(
    config: config_lib.Config, section: sweep_config.SweepConfig,
) -> config_lib.Config:
  """Returns the config of a point's grid run."""
  plain = config_lib.to_plain(config)
  changes = overrides(config, section)
  if plain['checkpoint']['best'].split('/')[0] not in changes['evals']:
    # The grid run lacks the evaluator of the best checkpoint.
    plain['checkpoint'] |= {'best': '', 'patience': None}
  plain['checkpoint']['stop_below'] = [
      (metric, fraction) for metric, fraction in plain['checkpoint'][
          'stop_below'] if metric.split('/')[0] in changes['evals']]
  return config_lib.resolve(config_lib.merge({**plain, 'evals': {}}, changes))


def default_metric(config: config_lib.Config) -> str:
  """Returns the metric that selects among grid runs by default."""
  names = list(config.evals)
  name = DEVELOPMENT if DEVELOPMENT in names or not names else names[0]
  if name != DEVELOPMENT and len(names) > 1:
    raise UserError(
        f'sweep.metric must name the selection metric, because none of the '
        f'evaluators {", ".join(names)} is called {DEVELOPMENT!r}. Use '
        f'--metric {name}/METRIC.')
  if name not in config.evals:
    return f'{name}/accuracy'
  section = config.evals[name]
  # Other evaluators need no data to know their metrics.
  if section.name not in ('auto', 'classification', 'regression'):
    return f'{name}/{section.metrics_on(data.Metadata(num_classes=0))[0]}'
  dataset = data.open_dataset(
      config.data, split=section.split,
      source=config.data.own_source(section.source), data_optional=True)
  return f'{name}/{section.resolve(dataset).metrics_on(dataset)[0]}'


def mode(config: config_lib.Config, metric: str) -> str:
  """Returns 'max' or 'min' for a metric 'evaluator/metric' of a grid run."""
  found = config_lib.metric_mode(config, metric, setting='sweep.metric')
  name = metric.split('/')[0]
  section = config.evals[name]
  if not config.objective.trains_head and not section.reports_objective and (
      section.uses_head):
    raise UserError(
        f'sweep.metric is {metric!r}, but the objective '
        f'{config.objective.name} trains no head, which {name!r} evaluates. '
        "Use an evaluator {'name': 'objective'} and its loss, or fewshot or "
        'knn, which need no head.')
  return found


def reported_evaluators(
    final: config_lib.Config, development: config_lib.Config) -> list[str]:
  """Returns the evaluators of the final runs that did not select anything."""
  def split(config: config_lib.Config, name: str) -> Any:
    section = config.evals.get(name)
    return section and (
        config.data.own_source(section.source) or config.data.sources,
        section.split)

  return [name for name in final.evals
          if split(final, name) != split(development, name)]


def check_disjoint(
    experiment: build_lib.Experiment, final: build_lib.Experiment,
) -> None:
  """Raises if development examples are trained on, or reported on.

  Args:
    experiment: a run of the grid.
    final: a run on all data with the same settings.
  """
  names = reported_evaluators(final.config, experiment.config)
  if not names:
    raise UserError(
        'The config has no evaluator for the final runs: its section evals is '
        'empty, or has only the evaluators that select among the grid runs.')
  others = {'training split': experiment.dataset, **{
      f'final evaluator {name!r}': final.data_of(name) for name in names}}
  for name in experiment.config.evals:
    dev = experiment.data_of(name)
    for what, other in others.items():
      if dev.overlaps(other):
        raise UserError(
            f'sweep.development: the evaluator {name!r} reads {dev.split!r} '
            f'of {dev.name}, which shares examples with {other.split!r} of the '
            f'{what}. Use disjoint parts of the training split.')
