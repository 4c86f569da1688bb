"""Consecutive training runs in one folder, resumable run by run.

Finished runs are skipped, and an interrupted run resumes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
from typing import Any, TypeVar

from etils import epath
import jax
import numpy as np

from vit_jax import atomic_files
from vit_jax import fields
from vit_jax import run as run_lib
from vit_jax import untrusted
from vit_jax.exceptions import UserError
from vit_jax.experiment import build as build_lib
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import config_file
from vit_jax.experiment import fit_weights
from vit_jax.parallel import coordination
from vit_jax.run import signals
from vit_jax.run import watchdog as watchdog_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.training import health

T = TypeVar('T')

RESULT, RUNS = 'sweep.json', 'runs'
# Settings of the checkpoint that is measured. A run may change them.
_CHOOSING = tuple(('config', 'checkpoint', name) for name in (
    'best', 'patience', 'stop_below'))


def build(
    configs: Mapping[str, config_lib.Config], workdir: epath.Path,
) -> dict[str, build_lib.Experiment]:
  """Returns the experiments of unfinished runs, by name.

  Raises a `UserError` with the names of experiments that cannot be built.
  """
  # Process 0 decides: other hosts may see stale files.
  done = coordination.run_on_first('finished', lambda: [
      name for name in configs
      if workdir_lib.read(workdir / RUNS / name / workdir_lib.SUMMARY)]) or []

  def build_one(name: str) -> build_lib.Experiment:
    with watchdog_lib.Watchdog(
        configs[name].log, f'opening the data of {name}'):
      return build_lib.build(configs[name], earlier=workdir_lib.read(
          workdir / RUNS / name / workdir_lib.CONFIG))

  return for_each(
      build_one, [name for name in configs if name not in done], what='run')


def for_each(
    function: Callable[[str], T], names: Iterable[str], *, what: str,
) -> dict[str, T]:
  """Returns the results of a function of each name.

  Raises a `UserError` with the messages of all names; `what` is what the names
  stand for.
  """
  results: dict[str, T] = {}
  problems: dict[str, list[str]] = {}
  for name in names:
    try:
      results[name] = function(name)
    except coordination.LostError:
      raise
    except UserError as error:
      problems.setdefault(str(error), []).append(name)
  if problems:
    raise UserError('\n'.join(
        f'{what} {", ".join(names)}: {text}'
        for text, names in problems.items()))
  return results


def train(
    experiments: dict[str, build_lib.Experiment],
    names: Sequence[str], workdir: epath.Path, *, stop: signals.StopRequest,
) -> Iterator[tuple[str, dict[str, Any] | health.NonFiniteError]]:
  """Trains runs one after the other; yields their names and summaries.

  A diverged run yields its error. Raises `signals.Stopped` after a signal.

  Args:
    experiments: the unfinished runs; see `build`. Each is removed when it is
      trained, because compiled programs take memory.
    names: all runs, finished or not, in order.
    workdir: folder of the sweep.
    stop: raises between runs if a signal arrived.
  """
  for number, name in enumerate(names, start=1):
    stop.check()
    summary = coordination.run_on_first(
        'finished', functools.partial(
            workdir_lib.read, workdir / RUNS / name / workdir_lib.SUMMARY))
    if jax.process_index() == 0:
      print(f'\n{name} ({number} of {len(names)})'
            + ': already finished' * bool(summary), flush=True)
    if summary:
      yield name, summary
      continue
    experiment, path = experiments.pop(name), workdir / RUNS / name
    weights = fit_weights.open_initial(experiment.config, path)
    try:
      yield name, run_lib.train(experiment, path, title=name, weights=weights)
    except health.NonFiniteError as error:
      yield name, error
  stop.check()


def read_previous(
    workdir: epath.Path, plan: Mapping[str, Any], config: config_lib.Config,
) -> dict[str, Any]:
  """Returns the result of an earlier start, or {}.

  Raises a `UserError` with the differences if its plan differs.
  """
  # Process 0 reads for all: it soon writes the file again.
  return coordination.run_on_first('previous', functools.partial(
      _read_previous, workdir / RESULT, plan, config)) or {}


def _read_previous(
    path: epath.Path, plan: Mapping[str, Any], config: config_lib.Config,
) -> dict[str, Any]:
  if not path.exists():
    return {}
  old = untrusted.read_json(path)
  changes = [
      str(each) for each in config_file.differences(old.get('plan', {}), plan)
      if not _is_free(each, config) and not _is_new_default(each)]
  if changes:
    raise UserError(
        f'{path.parent} holds another sweep. Use another --workdir, or the '
        'same settings:\n  ' + '\n  '.join(changes))
  return old


def _is_free(
    change: config_file.Difference, config: config_lib.Config) -> bool:
  """Whether a setting may differ when a sweep resumes.

  Unlike a single run, it may not change its evaluators and initial weights.
  """
  where, section, *_ = *change.path, ''
  return where == 'config' and section not in ('evals', 'init') and (
      tuple(change.path) not in _CHOOSING) and (
      fields.on_change(config, change.path[1:]) == fields.FREE)


def _is_new_default(change: config_file.Difference) -> bool:
  """Whether a setting is the default of a key added or removed since then."""
  return None in (change.old, change.new) and (
      (change.old or change.new or 'auto') == 'auto')


def write(workdir: epath.Path, result: Mapping[str, Any]) -> None:
  """Writes the result so far."""
  if jax.process_index() == 0:
    atomic_files.write_json(workdir / RESULT, result)


def statistics(
    metrics: Sequence[Mapping[str, Any]], evaluators: Sequence[str],
) -> dict[str, dict[str, float | None]]:
  """Returns `mean_and_std` of each metric of some evaluators over runs."""
  return {name: mean_and_std([m[name] for m in metrics]) for name in metrics[0]
          if all(m.get(name) is not None for m in metrics)
          and name.split('/')[0] in evaluators}


def mean_and_std(values: Sequence[float]) -> dict[str, float | None]:
  """Returns mean and sample standard deviation; None with too few values."""
  return {'mean': float(np.mean(values)) if values else None,
          'std': float(np.std(values, ddof=1)) if len(values) > 1 else None}
