"""Model soups: mean parameters of the runs of a grid (arXiv 2203.05482).

The mean of runs that start from the same weights is often better than each of
them, at the cost of one. Only the development split decides which runs are
averaged; the other evaluators report the result next to the best single run.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

from etils import epath
import jax
import jax.numpy as jnp

from vit_jax import data
from vit_jax import fields
from vit_jax import objectives
from vit_jax import registry
from vit_jax import tree
from vit_jax import types
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import items
from vit_jax.checkpoints import manager
from vit_jax.checkpoints import paths
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import frozen_weights
from vit_jax.extras.sweep import development_split
from vit_jax.extras.sweep import grid as grid_lib
from vit_jax.extras.sweep import runs
from vit_jax.parallel import multihost
from vit_jax.run import signals
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import adapt
from vit_jax.weights import open as open_lib

_SELECTION = 'soup_selection'  # Name of the evaluator that selects runs.


def check(sweep: grid_lib.Sweep) -> None:
  """Raises if the runs of the grid cannot be averaged."""
  if len(sweep.points) < 2:
    raise UserError(
        'sweep.soup averages runs of the grid, but there is only one. Use a '
        'larger --grid.')
  first, *others = (_architecture(point) for point in sweep.points)
  for point, other in zip(sweep.points[1:], others):
    for name, value in first.items():
      if value != other.get(name):
        raise UserError(
            'sweep.soup averages parameters of one architecture, but '
            f'{name} is {value!r} in the run {sweep.points[0].name} and '
            f'{other.get(name)!r} in {point.name}. Leave {name} out of the '
            'grid.')


def _architecture(point: grid_lib.Point) -> dict[str, Any]:
  config = point.development
  return {
      **{f'model.{name}': getattr(config.model, name, None) for name in (
          *fields.switches(config.model), 'representation_layer')},
      'data.resolution': config.data.size,
      'objective.name': config.objective.name,
      'init.checkpoint': config.init.checkpoint}


def make(
    sweep: grid_lib.Sweep, rows: Sequence[Mapping[str, Any]],
    workdir: epath.Path, *, stop: signals.StopRequest,
) -> dict[str, Any]:
  """Averages runs of the grid, and writes and evaluates the result.

  Args:
    sweep: a sweep with a method in `sweep.soup`.
    rows: names and values of the runs, in order of the grid.
    workdir: folder of the sweep. The checkpoint goes to `soup_METHOD`.
    stop: raises between batches of an evaluation if a signal arrived.

  Returns:
    The members, the value of the soup on the development split, its folder, and
    the reported metrics of the soup and of the best single run.
  """
  method, sign = sweep.section.soup, 1 if sweep.mode == 'max' else -1
  ranked = sorted((row for row in rows if row['value'] is not None),
                  key=lambda row: -sign * row['value'])
  names = [row['name'] for row in ranked]
  # Those that were ranked.
  weights = {name: open_lib.open(
      workdir / runs.RUNS / name, which=paths.AUTO) for name in names}
  # Resolved, with the microbatches that fit into memory.
  config = config_lib.resolve(weights[names[0]].run)
  final = next(p for p in sweep.points if p.name == names[0]).config
  evaluator, metric = sweep.section.metric.split('/')
  experiment = build_lib.build(config_lib.for_evaluation(dataclasses.replace(
      config, evals={**final.evals, _SELECTION: config.evals[evaluator]})))
  shardings = tree.without(experiment.shardings.params, objectives.TEACHER)
  weights = {name: adapt.match_classes(
      run, experiment.dataset.classes, owner=f'the run {name}')[0]
             for name, run in weights.items()}
  with watchdog_lib.Watchdog(config.log, 'averaging runs') as watchdog:

    teacher = frozen_weights.with_teacher(experiment, {})

    def read(name: str) -> types.Params:
      # Without parameters that only the objective uses.
      params = {key: value for key, value in weights[name].read().items()
                if key in shardings}
      return adapt.rescale_head(
          params, of=weights[name].run['data'], to=config.data.target_scale)

    def on_batch() -> None:
      watchdog.beat('evaluating')
      stop.check()

    def evaluate(params: types.Params, *evaluators: str) -> dict[str, float]:
      placed = {**multihost.put(params, shardings), **teacher}
      return {key: value for name in evaluators
              for key, value in experiment.evaluate(
                  name, placed, on_batch).metrics_of(name).items()}

    def value_of(params: types.Params) -> float:
      return evaluate(params, _SELECTION)[f'{_SELECTION}/{metric}']

    best = read(names[0])
    params, members = average(
        names, read, (lambda params: sign * value_of(params))
        if method == 'greedy' else None)
    _write(workdir / f'soup_{method}', multihost.put(params, shardings),
           dataclasses.replace(experiment.config, evals={
               name: experiment.config.evals[name]
               for name in experiment.config.evals if name != _SELECTION}),
           step=int(epath.Path(weights[names[0]].address).name),
           origin=f'mean of {", ".join(members)}',
           positions=weights[names[0]].positions,
           dataset=experiment.dataset, examples=_examples(
               [weights[name].address for name in members]))
    reported = [name for name in development_split.reported_evaluators(
        experiment.config, config) if name != _SELECTION]
    return {'method': method, 'members': members, 'value': value_of(params),
            'folder': f'soup_{method}', 'metrics': evaluate(params, *reported),
            'best_metrics': evaluate(best, *reported)}


def average(
    names: Sequence[str], load: Callable[[str], types.Params],
    evaluate: Callable[[types.Params], float] | None,
) -> tuple[types.Params, list[str]]:
  """Returns mean parameters and the averaged runs.

  Args:
    names: runs, from the best to the worst.
    load: returns the parameters of a run.
    evaluate: returns the value of parameters, where more is better, for a
      greedy soup (recipe 1 of the paper): a run joins if the mean with it is at
      least as good as without. None for a uniform soup.
  """
  mean, members = load(names[0]), [names[0]]
  value = evaluate(mean) if evaluate else 0.0
  for name in names[1:]:
    count = len(members) + 1
    candidate = jax.tree.map(
        lambda m, x, count=count: m + (x - m) / count, mean, load(name))
    new = evaluate(candidate) if evaluate else value
    if new >= value:  # Not if it is not a number.
      mean, members, value = candidate, [*members, name], new
  return mean, members


def _examples(addresses: Sequence[str]) -> dict[str, Any]:
  """Returns the images that the averaged runs trained on; {} if unknown."""
  found = [items.read_examples(epath.Path(address)) for address in addresses]
  changes = registry.optional(registry.CHANGES)
  return changes.join(found) if changes else {}


def _write(
    workdir: epath.Path, params: types.Params, config: config_lib.Config, *,
    step: int, dataset: data.Dataset, examples: Mapping[str, Any],
    **progress: str,
) -> None:
  """Writes a checkpoint that is loaded like that of a run."""
  state = types.TrainState(
      step=jnp.asarray(step), params=params, opt_state={}, average=None,
      metrics={})
  with manager.Checkpoints(
      workdir, checkpoint_config.CheckpointConfig()) as checkpoints:
    checkpoints.save(
        state, config={**config_lib.to_plain(config), 'averaging': None},
        progress={**progress, 'label_kind': dataset.kind},
        labels=dataset.classes.names, examples=examples)
