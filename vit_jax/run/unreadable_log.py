"""What all processes of a run could not read: counted, and named in a file.

Each process counts among its own rows (`data.unreadable`); a run sums that up
where it logs and saves, so that a checkpoint says how many there were.
"""

import dataclasses

import jax

from vit_jax import data
from vit_jax.experiment import build as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import workdir
from vit_jax.training import counters as counters_lib
from vit_jax.training import writer


class Unreadable:
  """What one run could not read, of training and of evaluation."""

  def __init__(
      self, experiment: experiment_lib.Experiment, files: workdir.Files):
    """Begins with nothing; `new_tally` goes on from what was counted."""
    self._section = experiment.config.data
    self._mesh = experiment.mesh
    self._log = experiment.unreadable
    self._files = files
    self._tally: data.Tally | None = None
    self._named = 0  # Examples that are written down.

  def new_tally(self, counters: counters_lib.Counters) -> data.Tally | None:
    """Returns what goes on counting what this process cannot read."""
    if self._section.unreadable == 'error':
      return None
    parts, num_parts = multihost.batch_shards(self._mesh)
    self._tally = data.Tally(
        max_share=self._section.max_unreadable, log=self._log,
        rows=counters.images * len(parts) // num_parts,
        count=counters.unreadable * len(parts) // num_parts)
    return self._tally

  def count(self, counters: counters_lib.Counters, *, step: int) -> None:
    """Takes over what all processes have counted, and writes down which."""
    if self._tally is not None:
      counters.unreadable = multihost.sum_counts(
          self._tally.count, self._tally.rows, total=counters.images)
    self.write_names(step=step)

  def write_names(self, *, step: int) -> None:
    """Writes down the examples that are not written down yet."""
    found = self._log.found.values()
    if len(found) > self._named:
      name = file_name(jax.process_index())
      with self._files.explained(name):
        writer.add_rows(
            self._files.path / name, map(dataclasses.asdict, found), step=step)
      self._named = len(found)


def describe(counters: counters_lib.Counters) -> str:
  """Returns how many images gave their place to others, and where they are."""
  return (f'{counters.unreadable:,} of {counters.images:,} images could not be '
          f'read, and others took their places: {file_name(0)}')


def file_name(process: int) -> str:
  """Returns where a process names what it could not read, in the workdir."""
  return f'unreadable.{process}.jsonl' if process else 'unreadable.jsonl'
