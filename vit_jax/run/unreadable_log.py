"""Counts and lists unreadable images that a run skips."""

import dataclasses
import json

import jax

from vit_jax import atomic_files
from vit_jax import console
from vit_jax import data
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import counters as counters_lib
from vit_jax.run import workdir as workdir_lib


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
    self._write(step=counters.step)

  def close(self, counters: counters_lib.Counters) -> None:
    """Completes the list, and prints the number of images in training."""
    self._write(step=counters.step)
    if counters.unreadable:
      console.print_lines(
          f'{counters.unreadable:,} of {counters.images:,} images were '
          'unreadable and replaced by others: see unreadable*.jsonl')

  def _write(self, *, step: int) -> None:
    """Adds new unreadable examples to the file of this process."""
    found, process = self.experiment.unreadable.found, jax.process_index()
    if len(found) == self._num_written:
      return
    path = self.files.path / f'unreadable{f".{process}" * (process > 0)}.jsonl'
    with self.files.explain_errors(path.name):
      lines = path.read_text().splitlines() if path.exists() else []
      rows = {(row['data'], row['key']): row for row in map(json.loads, lines)}
      rows |= {key: {'step': step, **dataclasses.asdict(each)}
               for key, each in found.items() if key not in rows}
      atomic_files.write_json_lines(path, rows.values())
    self._num_written = len(found)
