"""Finds unreadable images before training, and counts and lists skipped ones.

For the check before training, see `start_check`.
"""

import dataclasses

import jax

from vit_jax import console
from vit_jax import data
from vit_jax.data.sources import open_source
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import counters as counters_lib
from vit_jax.run import start_check
from vit_jax.run import workdir as workdir_lib
from vit_jax.run import writer as writer_lib


@dataclasses.dataclass
class UnreadableRecorder:
  """Unreadable images of one run, in training and evaluation."""
  experiment: experiment_lib.Experiment
  files: workdir_lib.Files
  _counter: data.UnreadableCounter | None = None
  _num_written: int = 0

  def check_images(self) -> None:
    """Decodes images of all splits of a new run for a limited time.

    Raises:
      ValueError: if unreadable images would end the run.
    """
    config = self.experiment.config
    datasets = {one.title: one for one in [
        self.experiment.dataset,
        *map(self.experiment.data_of, config.evals)]}
    for result in start_check.check(config.data, [*datasets.values()]):
      for one in result.unreadable:  # Training does not report it again.
        self.experiment.unreadable.found[one.data, one.key] = one
      if result.unreadable:
        console.print_lines(f'{result}\nThey are skipped: see {file_name(0)}')
    train = self.experiment.dataset
    if config.data.check_secs and open_source.is_user_data(train.name) and (
        note := start_check.depth_note(config.data, train.source)):
      console.print_lines(note, in_logs=True)

  def start_counter(
      self, counters: counters_lib.Counters) -> data.UnreadableCounter | None:
    """Returns a counter that continues from a checkpoint's counts."""
    section = self.experiment.config.data
    if section.unreadable == 'error':
      return None
    shards, num_shards = multihost.batch_shards(self.experiment.mesh)
    self._counter = data.UnreadableCounter(
        max_share=section.max_unreadable, log=self.experiment.unreadable,
        rows=counters.images * len(shards) // num_shards,
        count=counters.unreadable * len(shards) // num_shards)
    return self._counter

  def update(self, counters: counters_lib.Counters) -> None:
    """Sets `counters.unreadable` to the sum over all processes."""
    if self._counter is not None:
      counters.unreadable = multihost.sum_counts(
          self._counter.count, self._counter.rows, total=counters.images)
    self.write(step=counters.step)

  def write(self, *, step: int) -> None:
    """Appends new unreadable examples to the file of this process."""
    found = self.experiment.unreadable.found.values()
    if len(found) > self._num_written:
      name = file_name(jax.process_index())
      with self.files.explain_errors(name):
        writer_lib.add_rows(
            self.files.path / name, map(dataclasses.asdict, found), step=step)
      self._num_written = len(found)


def describe(counters: counters_lib.Counters) -> str:
  """Returns the summary line of a run that skipped images."""
  return (f'{counters.unreadable:,} of {counters.images:,} images were '
          'unreadable and replaced by others: see '
          + ('unreadable*.jsonl' if jax.process_count() > 1 else file_name(0)))


def file_name(process: int) -> str:
  """Returns the name of a process's list in the workdir."""
  return f'unreadable.{process}.jsonl' if process else 'unreadable.jsonl'
