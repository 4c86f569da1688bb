"""Files in a workdir besides the checkpoints.

    config.json      resolved config, written before the first step
    parameters.txt   shapes, sizes and shardings of the parameters
    metrics.jsonl    metrics, one row at a time (`run.writer`)
    summary.json     final results, written at the end of the run
    curves.png       plots of the metrics (`extras/figures`)
    model_card.md    description of the model (`extras/cards`)
    unreadable.jsonl unreadable images, if any (`run.unreadable_log`)
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import functools
from typing import Any

import clu.parameter_overview
from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import metrics as metrics_lib
from vit_jax import registry
from vit_jax import untrusted
from vit_jax.checkpoints import config as checkpoint_config
from vit_jax.checkpoints import errors
from vit_jax.checkpoints import lock
from vit_jax.checkpoints import manager
from vit_jax.exceptions import UserError
from vit_jax.experiment import config as config_lib
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import coordination
from vit_jax.run import writer as writer_lib

CONFIG, PARAMETERS = 'config.json', 'parameters.txt'
SUMMARY, CURVES, CARD = 'summary.json', 'curves.png', 'model_card.md'


def read(path: epath.Path) -> dict[str, Any]:
  """Returns a summary or config; nothing if it is missing or damaged."""
  # Other errors of the file system do not say that it is missing.
  with contextlib.suppress(FileNotFoundError, NotADirectoryError, UserError):
    return untrusted.read_json(path)
  return {}


def draw_curves(
    path: epath.Path, runs: Mapping[str, epath.Path],
    declared: Iterable[metrics_lib.Metric]) -> None:
  """Plots the metrics of workdirs by their names, by the leaf `figures`."""
  if draw := registry.optional(registry.CURVES):
    draw({name: writer_lib.read_rows(run) for name, run in runs.items()},
         path / CURVES, declared=declared)


@dataclasses.dataclass(frozen=True)
class Files:
  """The files of one run; process 0 writes them.

  Attributes:
    path: the workdir.
    title: name of the run, or ''.
    checkpoints: the checkpoints of the run.
  """
  path: epath.Path
  title: str
  checkpoints: manager.Checkpoints

  @property
  def is_active(self) -> bool:
    """Whether this process writes."""
    return jax.process_index() == 0

  def explain_errors(
      self, what: str) -> contextlib.AbstractContextManager[None]:
    """Explains errors of writing a file."""
    return errors.explain_errors(what, self.path)

  def read_finished(self, step: int) -> dict[str, Any]:
    """Returns the summary of the run if it ended at a step, else {}."""
    summary = read(self.path / SUMMARY)
    return summary if summary.get('steps') == step else {}

  def describe_finished(
      self, summary: Mapping[str, Any], changed_evaluators: Sequence[str],
  ) -> bool:
    """Prints that a run has ended; returns whether it measured these data."""
    early = ' (stopped early)' * summary.get('stopped_early', False)
    print(f'{self.title or self.path}: already finished at step '
          f'{summary["steps"]:,}{early}.', flush=True)
    if changed_evaluators:
      console.print_lines(
          'note: the metrics of this run were measured before the settings or '
          f'images of {", ".join(changed_evaluators)} changed; main.py '
          'evaluate with this config measures again', in_logs=True)
    return not changed_evaluators

  def write_start(
      self, experiment: experiment_lib.Experiment, description: str) -> None:
    """Writes the resolved config and the parameters; prints a description."""
    if self.is_active:
      console.print_lines(description, in_logs=True)
      with self.explain_errors(f'{CONFIG} or {PARAMETERS}'):
        atomic_files.write_json(
            self.path / CONFIG, config_lib.to_plain(experiment.config))
        atomic_files.write_text(
            self.path / PARAMETERS,
            clu.parameter_overview.get_parameter_overview(
                experiment.abstract_state.params,
                include_stats='sharding') + '\n')

  def open_metrics(
      self, config: config_lib.Config, *, resume_step: int,
  ) -> writer_lib.MetricWriter | writer_lib.NoWriter:
    """Opens the metrics; removes rows after `resume_step`, at 0 all."""
    if not self.is_active:
      return writer_lib.NoWriter()
    first_step = resume_step + 1 if resume_step else 0
    starts = [registry.optional(registry.TENSORBOARD),
              config.log.wandb and registry.load(registry.WANDB)]
    with self.explain_errors(writer_lib.FILENAME):
      return writer_lib.MetricWriter(
          self.path, first_step=first_step,
          trackers=[start(self.path, config_lib.to_plain(config),
                          first_step=first_step) for start in starts if start],
          explain_errors=functools.partial(
              self.explain_errors, f'a row of {writer_lib.FILENAME}'))

  def write_summary(
      self, config: config_lib.Config, summary: Mapping[str, Any]) -> None:
    """Writes the summary and the plots of a finished run."""
    if self.is_active:
      with self.explain_errors(f'{SUMMARY} or {CURVES}'):
        atomic_files.write_json(self.path / SUMMARY, summary)
        draw_curves(self.path, {self.title or self.path.name: self.path},
                    config_lib.declared_metrics(config).values())

  def write_card(
      self, experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
      **origin: Any) -> None:
    """Writes the model card of a finished run, by the leaf `cards`."""
    if self.is_active and (of_run := registry.optional(registry.CARD)):
      with self.explain_errors(CARD):
        atomic_files.write_text(self.path / CARD, of_run(
            experiment, summary, workdir=self.path, title=self.title, **origin))


@contextlib.contextmanager
def hold(
    path: epath.PathLike, title: str,
    section: checkpoint_config.CheckpointConfig,
) -> Generator[Files, None, None]:
  """Opens the workdir of a run, which no other run may use in the context."""
  path = epath.Path(path).expanduser()
  with contextlib.ExitStack() as stack:
    stack.enter_context(coordination.explain_lost_processes())
    coordination.run_on_first(
        'lock', lambda: stack.enter_context(lock.hold(path)))
    checkpoints = stack.enter_context(manager.Checkpoints(path, section))
    # Entered again here, so that closing the checkpoints sees a LostError.
    stack.enter_context(coordination.explain_lost_processes())
    yield Files(path, title, checkpoints)
