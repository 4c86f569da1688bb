"""Counts unreadable images over all processes and lists them in the workdir."""

import dataclasses

import jax

from vit_jax import data
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import workdir
from vit_jax.training import counters as counters_lib
from vit_jax.training import writer


class UnreadableRecorder:
  """Unreadable images of one run, in training and evaluation."""

  def __init__(
      self, experiment: experiment_lib.Experiment, files: workdir.Files):
    self._section = experiment.config.data
    self._mesh = experiment.mesh
    self._log = experiment.unreadable
    self._files = files
    self._counter: data.UnreadableCounter | None = None
    self._num_written = 0

  def start_counter(
      self, counters: counters_lib.Counters) -> data.UnreadableCounter | None:
    """Returns a counter that continues from a checkpoint's counts."""
    if self._section.unreadable == 'error':
      return None
    shards, num_shards = multihost.batch_shards(self._mesh)
    self._counter = data.UnreadableCounter(
        max_share=self._section.max_unreadable, log=self._log,
        rows=counters.images * len(shards) // num_shards,
        count=counters.unreadable * len(shards) // num_shards)
    return self._counter

  def update(self, counters: counters_lib.Counters, *, step: int) -> None:
    """Sets `counters.unreadable` to the sum over all processes."""
    if self._counter is not None:
      counters.unreadable = multihost.sum_counts(
          self._counter.count, self._counter.rows, total=counters.images)
    self.write(step=step)

  def write(self, *, step: int) -> None:
    """Appends new unreadable examples to the file of this process."""
    found = self._log.found.values()
    if len(found) > self._num_written:
      name = file_name(jax.process_index())
      with self._files.explain_errors(name):
        writer.add_rows(
            self._files.path / name, map(dataclasses.asdict, found), step=step)
      self._num_written = len(found)


def describe(counters: counters_lib.Counters) -> str:
  """Returns the summary line of a run that skipped images."""
  return (f'{counters.unreadable:,} of {counters.images:,} images were '
          f'unreadable and replaced by others: see {file_name(0)}')


def file_name(process: int) -> str:
  """Returns the name of a process's list in the workdir."""
  return f'unreadable.{process}.jsonl' if process else 'unreadable.jsonl'
