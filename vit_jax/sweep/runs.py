"""Experiments one after the other, in one folder; resumable run by run.

One that is finished is not run again, one that was stopped goes on where it
was.
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import json
from typing import Any

from etils import epath
import jax
import numpy as np

from vit_jax import run as run_lib
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.parallel import coordination
from vit_jax.run import restore
from vit_jax.run import workdir as workdir_lib
from vit_jax.training import health
from vit_jax.training import signals

RUNS = 'runs'
# What may change between two starts; of a run alone, evaluators may, too.
_WITHOUT_RESULT = tuple(
    key for key in restore.WITHOUT_RESULT if key not in ('evals.', 'init.'))


def wire(
    configs: Mapping[str, config_lib.Config], workdir: epath.Path,
) -> dict[str, experiment_lib.Experiment]:
  """Returns the experiments of the runs that are not finished, by name.

  Raises:
    ValueError: if one of them does not go together, with its name.
  """
  experiments = {}
  # The first one's word: a file system may show each process another state.
  done = coordination.run_on_first('finished', lambda: [
      name for name in configs if finished(workdir, name) is not None]) or []
  for name, config in configs.items():
    if name in done:
      continue
    try:
      with restore.watching(config.log, f'opening the data of {name}'):
        experiments[name] = experiment_lib.build(config)
    except ValueError as error:
      raise ValueError(f'run {name}: {error}') from error
  return experiments


def finished(workdir: epath.Path, name: str) -> dict[str, Any] | None:
  """Returns the summary of a run, or None if it has not come to its end."""
  try:
    return json.loads(
        (workdir / RUNS / name / workdir_lib.SUMMARY).read_text())
  except (OSError, ValueError):  # A run writes it last of all.
    return None


def train(
    experiments: Mapping[str, experiment_lib.Experiment],
    names: Sequence[str], workdir: epath.Path, *, stop: signals.StopRequest,
) -> Iterator[tuple[str, dict[str, Any] | health.NonFiniteError]]:
  """Trains runs one after the other; yields each one's name and summary.

  Args:
    experiments: those of `wire`.
    names: of all the runs, finished or not, in order.
    workdir: of the whole.
    stop: says whether a signal came between two runs.

  Yields:
    A run that broke off, since its loss or a gradient was no number, yields
    that error in place of the summary.

  Raises:
    signals.Stopped: if a signal asked for it; the state is saved.
  """
  find = functools.cache(run_lib.find_source)
  for number, name in enumerate(names, start=1):
    stop.check()
    summary = coordination.run_on_first(
        'finished', functools.partial(finished, workdir, name))
    if jax.process_index() == 0:
      print(f'\n{name} ({number} of {len(names)})'
            + ': finished before' * (summary is not None), flush=True)
    if summary is not None:
      yield name, summary
      continue
    experiment = experiments[name]
    init = experiment.config.init
    with restore.watching(
        experiment.config.log, 'finding what it starts from'):
      source = find(
          init.checkpoint, init.which,
          getattr(experiment.config.model, 'num_heads', None)
      ) if init.checkpoint else None
    try:
      yield name, run_lib.train(
          experiment, workdir / RUNS / name, title=name, source=source,
          show_parameters=False)
    except health.NonFiniteError as error:
      yield name, error
  stop.check()


def check_same(
    path: epath.Path, plan: Mapping[str, Any], *, what: str) -> dict[str, Any]:
  """Returns what an earlier start of the same plan wrote, or {}.

  Raises:
    ValueError: if it was another one, with the differences.
  """
  if not path.exists():
    return {}
  old = json.loads(path.read_text())
  changes = [
      line for line in config_lib.differences(old['plan'], dict(plan))
      if not line.removeprefix('config.').startswith(_WITHOUT_RESULT)]
  if changes:
    raise ValueError(
        f'{path.parent} holds another {what} than this one. Use another '
        '--workdir, or ask for the same:\n  ' + '\n  '.join(changes))
  return old


def statistics(
    summaries: Sequence[Mapping[str, Any]], of: Sequence[str] | None = None,
) -> dict[str, dict[str, float | None]]:
  """Returns mean and standard deviation of each metric over several runs.

  The deviation is that of a sample, with n - 1; None of a single run.

  Args:
    summaries: of the runs.
    of: evaluators; None is all.
  """
  metrics = [summary['metrics'] for summary in summaries]
  names = [name for name in metrics[0]
           if all(name in m and m[name] is not None for m in metrics)
           and (of is None or name.split('/')[0] in of)]
  values = {name: np.array([m[name] for m in metrics]) for name in names}
  return {name: {
      'mean': float(v.mean()),
      'std': float(v.std(ddof=1)) if len(v) > 1 else None}
          for name, v in values.items()}
