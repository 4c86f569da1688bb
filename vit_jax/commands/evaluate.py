"""Evaluates a checkpoint with the evaluators of its config, or with others.

    python main.py evaluate --workdir=runs/x --evaluators=fewshot,knn

Weights of other codebases need --config: the model comes from the weights, data
and evaluators from the config. Classes of the head and of the data are matched
by name. Few-shot and k-NN evaluation do not use the head.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import dataclasses
import functools
import json
import os
import time
from typing import Any

from etils import epy

from vit_jax import schema
from vit_jax.commands import arguments

with epy.lazy_imports():
  from etils import epath
  import jax
  import numpy as np

  from vit_jax import classes
  from vit_jax import console as console_lib
  from vit_jax import data
  from vit_jax import escape
  from vit_jax import evals
  from vit_jax import models
  from vit_jax import types
  from vit_jax.checkpoints import config as checkpoint_config
  from vit_jax.checkpoints import paths as checkpoint_paths
  from vit_jax.evals import confusion
  from vit_jax.evals import figures
  from vit_jax.experiment import build as build_lib
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import fit_batch
  from vit_jax.experiment import fit_weights
  from vit_jax.experiment import load_config
  from vit_jax.experiment import log_config
  from vit_jax.inference import class_names
  from vit_jax.inference import model as model_lib
  from vit_jax.parallel import coordination
  from vit_jax.parallel import multihost
  from vit_jax.run import watchdog as watchdog_lib
  from vit_jax.weights import adapt as adapt_lib
  from vit_jax.weights import download
  from vit_jax.weights import open as open_lib
  from vit_jax.weights import weights as weights_lib

_MAX_CLASSES = 10  # Rows of the table of classes.


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='a workdir, one of its checkpoints, or weights of another codebase')
  arguments.add(parser, '--which')
  arguments.add_config(
      parser, 'config file (default: the config saved with the checkpoint)',
      required=False)
  parser.add_argument(
      '--evaluators', default='', metavar='NAME,...',
      help='evaluators of the config, by their names there, or others with '
      'default settings, such as confusion, fewshot or imagenet_v2; '
      'docs/evaluation.md lists them. Override a setting by '
      "--config.evals.fewshot.shots='[1,5]'")
  parser.add_argument(
      '--source', default='', metavar='DATA',
      help='evaluate on a table of images, a folder or another dataset, as in '
      'data.source; its classes are matched by name')
  parser.add_argument(
      '--output', default='', metavar='DIR',
      help='folder for figures (default: `evals` in the workdir)')
  arguments.add(parser, '--flip', '--text-embeddings', '--labels')
  parser.add_argument(
      '--stage', default='', metavar='NAME',
      help='stage: with --config, one of the config; without, a subfolder of '
      'the workdir')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  if args.stage and not args.config:
    args.workdir = os.path.join(args.workdir, args.stage)
  # The time limits of the run's config are not known yet.
  with watchdog_lib.Watchdog(
      log_config.LogConfig(), 'finding the checkpoint'):
    config, weights = _find(args)
  if args.flip:
    config = dataclasses.replace(config, evals={
        name: dataclasses.replace(section, flip=True)
        for name, section in config.evals.items()})
  run_folder = arguments.run_folder(args.workdir)
  output = (epath.Path(args.output) if args.output else
            run_folder and run_folder / 'evals')
  with watchdog_lib.Watchdog(
      config.log, 'reading the checkpoint',
  ) as watchdog, coordination.explain_lost_processes():
    return 0, _evaluate(config, weights, output, watchdog)


def _evaluate(
    config: config_lib.Config, weights: weights_lib.Weights,
    output: epath.Path | None, watchdog: watchdog_lib.Watchdog,
) -> dict[str, Any]:
  experiment, params = _restore(config, weights)
  metrics: dict[str, float] = {}
  tables: dict[str, dict[str, Any]] = {}
  for name in experiment.evaluators:
    start = time.monotonic()
    beat = functools.partial(watchdog.beat, f'evaluating {name}')
    beat()
    with fit_batch.evaluator_memory_advice(experiment.config, name):
      result = experiment.evaluate(name, params, beat)
    _show(name, result, config, experiment, secs=time.monotonic() - start)
    if output is not None and jax.process_index() == 0:
      for path in figures.draw(name, result, output):
        print(f'figure      {path}')
    metrics |= {f'{name}/{key}': value
                for key, value in result.metrics.items()}
    if result.tables:
      tables[name] = {
          **{key: table.tolist() for key, table in result.tables.items()},
          'class_names': result.class_names}
  print(f'checkpoint  {weights.address} ({weights.kind})')
  return {'checkpoint': weights.address, 'parameters': weights.kind,
          'metrics': metrics, 'tables': tables}


def _restore(
    config: config_lib.Config, weights: weights_lib.Weights,
) -> tuple[build_lib.Experiment, types.Params]:
  """Returns the experiment and the parameters to evaluate."""
  # All parameters as trained; at other resolutions, positions are resized.
  rules = adapt_lib.InitConfig(
      new=(), ignored=tuple(f'{name}/.*' for name in models.PRETRAINING_ONLY),
      positions=config.init.positions)
  head = None
  if any(section.uses_head for section in config.evals.values()):
    if classes_of_head := adapt_lib.num_classes(weights.shapes):
      head = classes.Classes(
          'the model', classes_of_head, weights.preprocess.labels,
          source=checkpoint_paths.display(weights.address))
  else:  # It may have other classes, so it is dropped, and initialised to zero.
    rules = dataclasses.replace(
        rules, new=('head/.*',), ignored=('head/.*', *rules.ignored))
  # The best checkpoint and the teacher concern the training run only. A batch
  # is a microbatch of training, rounded up to a multiple of the devices.
  count = jax.device_count()
  experiment = build_lib.build(dataclasses.replace(
      config, batch_size=-(-config.eval_batch_size // count) * count,
      model=dataclasses.replace(config.model, num_classes=0), accumulation=1,
      checkpoint=checkpoint_config.CheckpointConfig(best=''),
      objective=config.objective.without_teacher()), head=head)
  multihost.connect_cpus(experiment.mesh)
  params, rows = fit_weights.fit(experiment, weights, rules=rules)
  for row in rows:
    if row.status != 'loaded' and not row.name.startswith('head/'):
      print(escape.line(
          f'{row.status} {row.name}: {row.old_shape} -> {row.new_shape}'))
  return experiment, params


def _show(
    name: str, result: evals.Result, config: config_lib.Config,
    experiment: build_lib.Experiment, *, secs: float,
) -> None:
  section = config.evals[name]
  # The default split of other datasets is not known here.
  default = '' if section.source else experiment.dataset.eval_split
  console_lib.table(
      f'{name}: {section.source or config.data.source} '
      f'{section.split or default}, {result.metrics["examples"]:,} images in '
      f'{secs:.1f} s', ['metric', 'value'],
      [[key, console_lib.format_metric(key, value, digits=5)]
       for key, value in result.metrics.items() if key != 'examples'])
  if 'confusion' in result.tables:
    _show_classes(result)


def _show_classes(result: evals.Result) -> None:
  """Prints the classes of lowest F1 and the most frequent confusions."""
  tables, total = result.tables, result.tables['confusion'].sum(axis=1)
  console_lib.table(
      'Classes of lowest F1', ['class', 'images', 'precision', 'recall', 'F1'],
      [[result.name_of(i), int(total[i]), *(
          console_lib.format_metric('f1', float(tables[f'class_{key}'][i]))
          for key in ('precision', 'accuracy', 'f1'))]
       for i in map(int, np.argsort(
           tables['class_f1'], kind='stable')[:_MAX_CLASSES])])
  for line in confusion.describe(result):
    console_lib.print_lines(line)


def _find(
    args: argparse.Namespace,
) -> tuple[config_lib.Config, weights_lib.Weights]:
  """Opens the weights; returns them with the config that evaluates them."""
  path = download.fetch(args.workdir)
  weights: weights_lib.Weights | None = None
  if checkpoint_paths.is_run(path) and not (
      args.text_embeddings or args.labels):
    # Also with the parameters that only the objective uses.
    weights = open_lib.open(path, which=args.which)
  if weights is not None and weights.run:
    config = _config(args, weights.run)
  else:
    weights = model = arguments.load_model(args, path)
    # The weights determine the model, so the config may leave it open.
    config = dataclasses.replace(_config(args, weights.run, first=[
        f'model={json.dumps(schema.to_plain(model.config))}']),
                                 model=model.config)
    if args.text_embeddings:
      weights = class_names.in_order(
          model, data.open_dataset(config.data).class_names or ())
  config = _with_training_scales(config, weights)
  preprocess = weights.preprocess
  for note in data.scale_notes(
      config.data, {'mean': preprocess.mean, 'std': preprocess.std}):
    console_lib.print_lines(note)
  if config.data.build_ops(train=False) != preprocess.resized(
      config.data.size).ops:
    console_lib.print_lines(
        f'note: data.eval_ops is {list(config.data.eval_ops)}, but `predict` '
        f'preprocesses images of this model by {preprocess.sections}')
  return config, weights


def _with_training_scales(
    config: config_lib.Config, weights: weights_lib.Weights,
) -> config_lib.Config:
  """Returns the config with the label and pixel scales of the training data.

  With another --config, measured scales would come from the evaluation data.
  """
  scales: dict[str, Any] = {
      name: getattr(weights.preprocess, name) for name in ('mean', 'std')
      if isinstance(getattr(config.data, name), str)}
  targets = ('target_mean', 'target_std')
  if isinstance(weights, model_lib.Model):
    # The scale of labels was moved to the head.
    if weights.preprocess.activation == 'none':
      count = weights.config.num_classes
      scales |= dict(zip(targets, ((0.0,) * count, (1.0,) * count)))
  elif weights.run['data'].get('target_std'):
    scales |= {name: tuple(weights.run['data'][name]) for name in targets}
  return dataclasses.replace(
      config, data=dataclasses.replace(config.data, **scales))


def _config(
    args: argparse.Namespace, saved: Mapping[str, Any],
    first: Sequence[str] = (),
) -> config_lib.Config:
  """Returns the config with the evaluators selected by --evaluators.

  Without --config, it is `saved`. The overrides in `first` precede the flags of
  the command line.
  """
  # Overrides of evaluators wait for the addition of those the config lacks.
  later = [o for o in args.overrides if o.startswith('evals.')]
  now = [*first, *(o for o in args.overrides if o not in later)]
  if args.config:
    config = load_config.load_one(args.config, now, stage=args.stage)
  elif saved:
    config = config_lib.resolve_with(saved, now)
  else:
    raise ValueError(
        f'{args.workdir} has no config of a training run, which selects data '
        'and evaluators. Use --config=configs/x.py.')
  chosen = ([name for name in args.evaluators.split(',') if name]
            or list(config.evals))
  if not chosen:
    raise ValueError(
        'The config has no evaluators: its section evals is empty. Use '
        f'--evaluators. Known: {", ".join(evals.KINDS)}.')
  raw = config_lib.to_plain(config)
  for name in chosen:
    schema.check_name(
        name, list(dict.fromkeys(
            [*config.evals, *evals.KINDS, *evals.DATASETS])),
        what='evaluator (--evaluators)')
    raw['evals'].setdefault(name, evals.DATASETS.get(name, {'name': name}))
    if args.source:
      raw['evals'][name] |= {'source': args.source, 'split': ''}
  found = config_lib.resolve_with(raw, later).evals
  return dataclasses.replace(
      config, evals={name: found[name] for name in chosen})
