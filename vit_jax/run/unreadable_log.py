"""Counts and lists unreadable images that a run skips."""

import dataclasses

import jax

from vit_jax import data
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import counters as counters_lib
from vit_jax.run import workdir as workdir_lib
from vit_jax.run import writer as writer_lib


@dataclasses.dataclass
class UnreadableRecorder:
  """Unreadable images of one run, in training and evaluation."""
  experiment: experiment_lib.Experiment
  files: workdir_lib.Files
  _counter: data.UnreadableCounter | None = None
  _num_written: int = 0

  def start_counter(
      self, counters: counters_lib.Counters) -> data.UnreadableCounter | None:
    """Returns a counter that continues from a checkpoint's counts."""
    section = self.experiment.config.data
    if section.unreadable == 'error':
      return None
    shards, num_shards = multihost.batch_shards(self.experiment.mesh)
    self._counter = data.UnreadableCounter(
        log=self.experiment.unreadable,
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
