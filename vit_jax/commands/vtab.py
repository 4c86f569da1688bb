"""Fine-tunes on the 19 tasks of VTAB-1k and averages their test accuracies.

Each task is trained on its 800 + 200 images and tested on its whole test
split. Results are written after every run; the same command resumes.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Mapping, Sequence
import functools
import itertools
from typing import Any

from etils import epy

from vit_jax import schema
from vit_jax.commands import arguments
from vit_jax.run import signals

with epy.lazy_imports():
  from etils import epath
  import jax
  import numpy as np

  from vit_jax import atomic_files
  from vit_jax import console as console_lib
  from vit_jax.data import vtab
  from vit_jax.experiment import config as config_lib
  from vit_jax.experiment import load_config
  from vit_jax.sweep import runs
  from vit_jax.training import health

CONFIG = 'configs/vtab.py'
RESULT = 'vtab.json'
METRIC = 'test/accuracy'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the command's flags."""
  parser.add_argument(
      '--workdir', required=True, metavar='DIR',
      help='folder for the runs, each in DIR/runs; the same command resumes '
      'interrupted runs')
  parser.add_argument(
      '--checkpoint', metavar='PATH',
      help='initial weights: workdir, or weights of another codebase')
  parser.add_argument(
      '--model', metavar='VARIANT',
      help='model, such as B/16 (default: that of the checkpoint)')
  arguments.add_config(
      parser, 'config file (default: configs/vtab.py)', required=False,
      default=CONFIG)
  parser.add_argument(
      '--tasks', default='', metavar='NAME,...',
      help='tasks or groups of them (natural, specialized, structured) instead '
      'of all')
  parser.add_argument(
      '--seeds', type=int, default=1, metavar='N',
      help='runs per task (default: %(default)s; 3 in the paper)')
  parser.add_argument(
      '--skip-missing', action='store_true',
      help='skip tasks whose data is missing; the mean is then not a VTAB '
      'score')


def run(args: argparse.Namespace) -> tuple[int, Any]:
  """Runs the command; returns the exit status and the results."""
  base = _config(args)
  selected = select_tasks(args.tasks)
  if args.seeds < 1:
    raise ValueError(f'--seeds must be at least 1, but is {args.seeds}.')
  missing = vtab.missing(selected, base.data.data_dir)
  if missing and not (args.skip_missing and len(missing) < len(selected)):
    raise ValueError(_how_to_prepare(missing, total=len(selected)))
  tasks = [task for task in selected if task not in missing]
  for task, command in missing.items():
    print(f'skipped: {task}, which needs\n  {command}')
  print(f'{len(tasks)} task(s) x {args.seeds} seed(s), from '
        f'{base.init.checkpoint or "random parameters"}', flush=True)
  workdir = epath.Path(args.workdir).expanduser()
  with signals.catch() as stop:
    result = _run_all(base, tasks, args.seeds, missing, workdir, stop)
  _print(result)
  print(f'results  {workdir / RESULT}')
  return 0, result


def select_tasks(text: str) -> list[str]:
  """Returns the tasks of 'dtd,structured', in the order of the table."""
  known = [*vtab.GROUPS, *vtab.TASKS]
  names = [schema.check_name(name.strip(), known, what='VTAB task')
           for name in text.split(',')] if text else list(vtab.GROUPS)
  return [task for task, row in vtab.TASKS.items()
          if task in names or row.group in names]


def _config(args: argparse.Namespace) -> config_lib.Config:
  path, flags = args.config, []
  if args.checkpoint:
    flags.append(f'init.checkpoint={args.checkpoint}')
  if args.model and path == CONFIG:  # Sets the resolution, too.
    path += f':model={args.model}'
  elif args.model:
    flags.append(f'model.variant={args.model}')
  config = load_config.load_one(path, [*flags, *args.overrides])
  if METRIC.split('/')[0] not in config.evals:
    raise ValueError(
        f'The score is {METRIC}, but the evaluators of {args.config} are '
        f'{", ".join(config.evals) or "none"}.')
  return config


def _how_to_prepare(missing: Mapping[str, str], *, total: int) -> str:
  by_command: dict[str, list[str]] = {}
  for task, command in missing.items():
    by_command.setdefault(command, []).append(task)
  return '\n'.join([
      f'{len(missing)} of the {total} tasks have no data here. Prepare it '
      'once, on any machine, with',
      '  pip install tensorflow tensorflow-datasets',
      *(f'  {command}\n    ({", ".join(tasks)})'
        for command, tasks in by_command.items()),
      'or set the directory that has it: --config.data.data_dir=DIR'
      + ('.' if len(missing) == total else
         ', or select tasks by --tasks=NAME,..., or skip those without data by '
         '--skip-missing; the mean of fewer than 19 is not a VTAB score.')])


def _run_all(
    base: config_lib.Config, tasks: Sequence[str], seeds: int,
    missing: Mapping[str, str], workdir: epath.Path, stop: signals.StopRequest,
) -> dict[str, Any]:
  """Trains all unfinished runs; writes and returns the result."""
  plain = config_lib.to_plain(base)
  configs, owners = {}, {}
  for task, seed in itertools.product(
      tasks, range(base.seed, base.seed + seeds)):
    name = f'{task},seed={seed}'
    configs[name] = config_lib.resolve_with(
        {**plain, 'seed': seed}, [f'data.source={vtab.PREFIX}{task}'])
    owners[name] = task, seed
  # Tasks may be added later, other settings may not change.
  plain['data'].pop('source')
  plan = {'config': plain}
  runs.read_previous(workdir / RESULT, plan, what='VTAB evaluation')
  experiments = runs.build(configs, workdir)
  metrics: dict[str, dict[int, dict[str, float]]] = collections.defaultdict(
      dict)
  result: dict[str, Any] = {}
  for name, summary in runs.train(
      experiments, list(configs), workdir, stop=stop):
    if isinstance(summary, health.NonFiniteError):
      raise summary
    task, seed = owners[name]
    metrics[task][seed] = summary['metrics']
    result = {'plan': plan, **summarise(metrics), 'missing': dict(missing)}
    if jax.process_index() == 0:
      atomic_files.write_json(workdir / RESULT, result)
  return result


def summarise(
    metrics: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> dict[str, Any]:
  """Returns the scores of tasks and groups, and their mean.

  Means and standard deviations cover the seeds that every task has; `partial`
  is true with fewer than 19 tasks.

  Args:
    metrics: metrics of each finished run, by task and seed.
  """
  scores = {task: {seed: row[METRIC] for seed, row in rows.items()}
            for task, rows in metrics.items()}
  seeds = sorted(set.intersection(*map(set, scores.values())))
  groups = {group: [task for task in scores if vtab.TASKS[task].group == group]
            for group in vtab.GROUPS}
  return {
      'tasks': {task: {
          'group': vtab.TASKS[task].group,
          'images': int(next(iter(metrics[task].values()))['test/examples']),
          'accuracy': list(values.values()),
          **runs.mean_and_std(list(values.values()))}
                for task, values in scores.items()},
      'groups': {group: {'num_tasks': len(tasks), **_mean(scores, tasks, seeds)}
                 for group, tasks in groups.items() if tasks},
      'mean': _mean(scores, list(scores), seeds),
      'seeds': seeds, 'num_tasks': len(scores),
      'partial': len(scores) < len(vtab.TASKS)}


def _mean(
    scores: Mapping[str, Mapping[int, float]], tasks: Sequence[str],
    seeds: Sequence[int],
) -> dict[str, float | None]:
  """Returns the mean over tasks, and its deviation over seeds."""
  return runs.mean_and_std([
      float(np.mean([scores[task][seed] for task in tasks])) for seed in seeds])


def _print(result: Mapping[str, Any]) -> None:
  accuracy = functools.partial(console_lib.format_statistics, METRIC)
  print()
  console_lib.table(
      'VTAB-1k', ['task', 'group', 'test images', 'accuracy'],
      [[task, row['group'], row['images'], accuracy(row)]
       for task, row in result['tasks'].items()])
  number = result['num_tasks']
  of_all = (f'mean of {number} of 19 tasks: not comparable'
            if result['partial'] else 'mean of 19 tasks')
  sizes = collections.Counter(task.group for task in vtab.TASKS.values())
  console_lib.table(
      'Means', ['', 'tasks', 'accuracy'],
      [*([group, f'{row["num_tasks"]} of {sizes[group]}', accuracy(row)]
         for group, row in result['groups'].items()),
       [of_all, f'{number} of 19', accuracy(result['mean'])]])
