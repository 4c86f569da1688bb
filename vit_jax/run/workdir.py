"""What a run leaves in its workdir beside its checkpoints.

    config.json      before the first step: what it runs with
    metrics.jsonl    while it runs, a row at a time (`training.writer`)
    summary.json     at the end: its figures; a run that has it is finished
    curves.png       the rows, drawn
    model_card.md    last of all

`unreadable.jsonl`, if there is one, is of `tallying`.
"""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
from typing import Any

from etils import epath
import jax

from vit_jax import atomic_files
from vit_jax.analysis import plots
from vit_jax.checkpoints import errors
from vit_jax.experiment import build as experiment_lib
from vit_jax.experiment import config as config_lib
from vit_jax.run import model_card
from vit_jax.training import writer as writer_lib

CONFIG, SUMMARY, CURVES = 'config.json', 'summary.json', 'curves.png'


@dataclasses.dataclass(frozen=True)
class Files:
  """The files of one run, which its first process writes.

  Attributes:
    path: the workdir.
    title: name of the run to show, or ''.
    what_is_safe: says how the run goes on where a file could not be written.
  """
  path: epath.Path
  title: str
  what_is_safe: Callable[[], str]

  @property
  def is_active(self) -> bool:
    """Whether this process writes."""
    return jax.process_index() == 0

  def explained(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Explains a failure to write a file of the workdir."""
    return errors.explained(what, self.path, resume=self.what_is_safe)

  def write_config(self, config: config_lib.Config) -> None:
    """Writes what the run runs with."""
    if self.is_active:
      with self.explained(CONFIG):
        atomic_files.write_json(self.path / CONFIG, config_lib.to_plain(config))

  def open_metrics(self, *, resume_step: int) -> writer_lib.MetricWriter:
    """Returns what rows are written with; those after the step are removed."""
    with self.explained(writer_lib.FILENAME):
      return writer_lib.MetricWriter(
          self.path, resume_step=resume_step, active=self.is_active)

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Writes the figures of the finished run, and draws its rows."""
    if self.is_active:
      with self.explained(f'{SUMMARY} or {CURVES}'):
        atomic_files.write_json(self.path / SUMMARY, summary)
        plots.curves({self.title or self.path.name: writer_lib.read_rows(
            self.path)}, self.path / CURVES)

  def write_card(
      self, experiment: experiment_lib.Experiment, summary: Mapping[str, Any],
      origin: model_card.Origin,
  ) -> None:
    """Writes what the finished run says of its model."""
    if self.is_active:
      with self.explained(model_card.FILENAME):
        atomic_files.write_text(self.path / model_card.FILENAME, model_card.of_run(
            experiment, summary, workdir=self.path, title=self.title,
            origin=origin))
