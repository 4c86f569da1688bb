"""Evaluates weights outside of training, with the data of a config."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import time
from typing import Any

from etils import epath
import jax

from vit_jax import classes
from vit_jax import console as console_lib
from vit_jax import data
from vit_jax import escape
from vit_jax import evals
from vit_jax import registry
from vit_jax import schema
from vit_jax import types
from vit_jax.checkpoints import items
from vit_jax.checkpoints import paths as checkpoint_paths
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import evaluators as evaluators_lib
from vit_jax.experiment import fit_weights
from vit_jax.experiment import frozen_weights
from vit_jax.experiment import load_config
from vit_jax.inference import load as load_lib
from vit_jax.models import factory
from vit_jax.parallel import coordination
from vit_jax.parallel import multihost
from vit_jax.run import log_rows
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.weights import adapt as adapt_lib
from vit_jax.weights import download
from vit_jax.weights import open as open_lib
from vit_jax.weights import weights as weights_lib


def open_weights(
    address: epath.PathLike, *, which: str = checkpoint_paths.AUTO,
) -> weights_lib.Weights:
  """Opens a run with all its parameters, or other weights as a `Model`."""
  path = download.fetch(address)
  if checkpoint_paths.is_run(path):
    weights = open_lib.open(path, which=which)
    if weights.run:  # Also with the parameters that only the objective uses.
      return weights
  return load_lib.load(path, which=which)


def config_for(
    weights: weights_lib.Weights, specification: str = '', *,
    evaluators: Sequence[str] = (), overrides: config_lib.Overrides = (),
    stage: str = '', source: str = '', flip: bool = False,
) -> config_lib.Config:
  """Returns the config that evaluates weights.

  Args:
    weights: a run or a `Model`; they determine the section `model`.
    specification: config file; by default, the config saved with the run.
    evaluators: names of evaluators of the config, or of others with default
      settings; by default, all of the config.
    overrides: settings, such as 'data.source=cifar10'.
    stage: stage of the config file.
    source: data to evaluate on, with its default split, instead of the
      config's; paths in a table start from its folder, unless `overrides` set
      another one.
    flip: averages the outputs for each image and its mirror image.

  Raises:
    UserError: if there is no config, or no such evaluator.
  """
  changes = {**({'source': source, 'split': ''} if source else {}),
             **({'flip': True} if flip else {})}
  # Images of a new table need not lie where those of the training do.
  overrides = [*['data.table.folder='] * bool(source), *overrides]

  def prepare(name: str, sections: dict[str, Any]) -> dict[str, Any]:
    if name != stage:  # Not the stage that is evaluated.
      return sections
    return {**sections, 'model': schema.to_plain(weights.config),
            'evals': _evaluators(
                sections.get('evals', {}), evaluators, changes)}

  if specification:
    # The weights determine the model, so those that the config starts training
    # from are not read.
    return load_config.load_one(
        specification, overrides, stage=stage, prepare=prepare,
        open_weights=None)
  if weights.run:
    return config_lib.resolve_with(prepare(stage, dict(weights.run)), overrides)
  raise UserError(
      f'{weights.address or "The model"} has no config of a training run, '
      'which selects data and evaluators. Use --config=configs/x.py.')


def _evaluators(
    sections: Mapping[str, Any], names: Sequence[str],
    changes: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the changed sections of evaluators, of a config or with defaults.

  Without names, they are those of the config. One called 'module:Name' becomes
  Name.
  """
  defaults = {**{name: {'name': name}
                 for name in registry.available(registry.EVALUATORS)},
              **(registry.optional(registry.EVALUATED_DATASETS) or {})}
  known = {**sections, **defaults, **sections}  # Those of the config first.
  found: dict[str, Any] = {}
  for name in list(filter(None, names)) or sections:
    if registry.is_target(name):
      found[name.rpartition(':')[2]] = {'name': name}
    else:
      found[name] = known[schema.check_name(
          name, list(known), what='evaluator (--evaluators)')]
  if not found:
    raise UserError(
        'The config has no evaluators: its section evals is empty. Use '
        f'--evaluators. Known: {", ".join(defaults)}.')
  changed = {name: {**section, **changes} for name, section in found.items()}
  # Of another source, those for different splits may read the same images.
  return {name: section for count, (name, section) in enumerate(changed.items())
          if any(names) or section not in list(changed.values())[:count]}


def _as_trained(
    config: config_lib.Config, weights: weights_lib.Weights,
) -> config_lib.Config:
  """Returns the config with the scales and activation of the training.

  With another config, measured scales would come from the evaluation data, and
  the loss 'auto' of a head from its labels.
  """
  objective: Any = config.objective
  activation = weights.preprocess.activation
  if activation != 'none' and getattr(objective, 'loss', '') == 'auto' and any(
      section.uses_head for section in config.evals.values()):
    objective = dataclasses.replace(objective, loss=activation)
  scales: dict[str, Any] = {
      name: getattr(weights.preprocess, name)
      for name in ('mean', 'std', 'resolution')
      if isinstance(getattr(config.data, name), str)}
  if activation == 'none':
    trained, count = weights.run.get('data', {}), weights.config.num_classes
    # Without a scale, the outputs of the head are labels.
    for name, default in (('target_mean', 0.0), ('target_std', 1.0)):
      scales[name] = tuple(trained.get(name) or [default] * count)
  return dataclasses.replace(
      config, data=dataclasses.replace(config.data, **scales),
      objective=objective)


def _notes(
    experiment: build_lib.Experiment, weights: weights_lib.Weights,
) -> Iterator[str]:
  """Yields notes about the preprocessing and about images trained on."""
  section, preprocess = experiment.config.data, weights.preprocess
  yield from data.scale_notes(section, preprocess.value_scale)
  if section.build_ops(train=False) != preprocess.resized(section.size).ops:
    yield (f'note: data.eval_ops is {list(section.eval_ops)}, but `predict` '
           f'preprocesses images of this model by {preprocess.sections}')
  changes = registry.optional(registry.CHANGES)
  if changes and weights.run and weights.is_checkpoint:
    yield from changes.evaluation_notes(
        experiment, items.read_examples(epath.Path(weights.address)))


def restore(
    config: config_lib.Config, weights: weights_lib.Weights,
) -> tuple[build_lib.Experiment, types.Params]:
  """Returns the experiment and the parameters to evaluate."""
  reads_head = any(section.reads_head for section in config.evals.values())
  head, num_classes = None, adapt_lib.num_classes(weights.shapes)
  if reads_head and num_classes:
    head = classes.Classes(
        'the model', num_classes, weights.preprocess.labels,
        source=checkpoint_paths.display(weights.address))
  # A batch is a microbatch of training, rounded up to a multiple of devices.
  count = jax.device_count()
  experiment = build_lib.build(dataclasses.replace(
      config_lib.for_evaluation(_as_trained(config, weights)), accumulation=1,
      batch_size=-(-config.eval_batch_size // count) * count),
                               head=head, earlier=weights.run,
                               elsewhere='' if head and not head.names else (
          evaluators_lib.only_source(config)))
  for note in _notes(experiment, weights):
    console_lib.print_lines(note)
  multihost.connect_cpus(experiment.mesh)
  # All parameters as trained, except those that no evaluator reads; at other
  # resolutions, positions are resized.
  unused = tuple(f'{name}/.*' for name in (
      *factory.PRETRAINING_ONLY, *['head'] * (not reads_head)))
  params, rows = fit_weights.fit(
      experiment, weights, rules=adapt_lib.InitConfig(
          new=() if reads_head else (f'({"|".join(unused)})',), ignored=unused,
          positions=config.init.positions))
  params = multihost.put(params, experiment.shardings.params)
  for row in rows:
    if row.status != 'loaded' and row.name.partition('/')[0] not in (
        'head', *factory.PRETRAINING_ONLY):
      print(escape.line(
          f'{row.status} {row.name}: {row.old_shape} -> {row.new_shape}'))
  params = frozen_weights.with_teacher(experiment, params)
  if weights.run and weights.is_checkpoint:
    progress = items.read_config(epath.Path(weights.address) / 'progress')
    if problem := frozen_weights.changed_teachers(
        experiment, params, progress.get('teachers', '')):
      console_lib.print_lines(f'note: {problem}')
  return experiment, params


def evaluate(
    config: config_lib.Config, weights: weights_lib.Weights, *,
    prints: bool = False, output: epath.Path | None = None,
) -> dict[str, Any]:
  """Runs the evaluators; returns their metrics and tables as plain data.

  Args:
    config: config of the evaluation; see `config_for`.
    weights: what is evaluated.
    prints: whether to print tables of the metrics.
    output: folder for figures; None draws none.
  """
  metrics: dict[str, float] = {}
  tables: dict[str, dict[str, Any]] = {}
  with watchdog_lib.Watchdog(
      config.log, 'reading the checkpoint',
  ) as watchdog, coordination.explain_lost_processes():
    experiment, params = restore(config, weights)
    if not experiment.evaluators:
      raise UserError('All evaluators were left out: see the lines above.')
    draw = registry.optional(registry.FIGURES) if (
        jax.process_index() == 0 and output is not None) else None
    for name in experiment.evaluators:
      beat = functools.partial(watchdog.beat, f'evaluating {name}')
      beat()
      start = time.monotonic()
      result = experiment.evaluate(name, params, beat)
      if prints:
        _print(experiment, name, result, time.monotonic() - start)
      for path in draw(name, result, output) if draw else ():
        print(f'figure      {path}')
      metrics |= result.metrics_of(name)
      if result.tables:
        tables[name] = {
            **{key: table.tolist() for key, table in result.tables.items()},
            'class_names': result.class_names}
  return {'checkpoint': weights.address, 'parameters': weights.kind,
          'metrics': metrics, 'tables': tables}


def _print(
    experiment: build_lib.Experiment, name: str, result: evals.Result,
    secs: float,
) -> None:
  dataset = experiment.data_of(name)
  if dataset.without_images:
    console_lib.print_lines(f'note: {dataset.without_images_note}')
  images = console_lib.format_count(
      int(result.metrics.get('examples', len(dataset))), 'image')
  console_lib.table(f'{name}: {dataset.title}, {images} in {secs:.1f} s',
                *_table(experiment, name, result))
  for heading, details in result.details:
    console_lib.table(heading, *details)


def _table(
    experiment: build_lib.Experiment, name: str, result: evals.Result,
) -> tuple[list[str], list[list[Any]]]:
  """Returns the headings and rows of a table of the metrics of an evaluator."""
  if result.printed:
    return result.printed
  declared = config_lib.declared_metrics(experiment.config)
  return ['metric', 'value'], [
      [key, log_rows.format_value(f'{name}/{key}', value, declared, digits=5)]
      for key, value in result.metrics.items() if key != 'examples']
