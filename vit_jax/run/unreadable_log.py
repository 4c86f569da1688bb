"""Finds unreadable images before training, and counts and lists skipped ones.

A new run decodes images for a limited time: all of a small dataset, a part of a
large one. The whole image is decoded, because most damaged files are truncated
and have valid headers.
"""

from collections.abc import Sequence
import dataclasses
import sys
import time

import jax
import numpy as np
import rich.progress

from vit_jax import console
from vit_jax import data
from vit_jax.data import examples
from vit_jax.data.images import decode
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import registry
from vit_jax.experiment import experiment as experiment_lib
from vit_jax.parallel import multihost
from vit_jax.run import counters as counters_lib
from vit_jax.run import workdir
from vit_jax.run import writer

_CHUNK = 64  # Images between two checks of the time limit.
_MAX_EXAMPLES = 2**20


class UnreadableRecorder:
  """Unreadable images of one run, in training and evaluation."""

  def __init__(
      self, experiment: experiment_lib.Experiment, files: workdir.Files):
    self._experiment = experiment
    self._files = files
    self._counter: data.UnreadableCounter | None = None
    self._num_written = 0

  def check_images(self) -> None:
    """Decodes images of all splits of a new run for a limited time.

    Raises:
      ValueError: if unreadable images would end the run.
    """
    config = self._experiment.config
    datasets = {(one.name, one.split): one for one in [
        self._experiment.dataset,
        *(self._experiment.open_data(section.split, section.source)[0]
          for section in config.evals.values())]}
    # None for published data, which are not scanned.
    found = [scan_images(config.data, one) for one in datasets.values()]
    check_scans(config.data, found)
    for result in filter(None, found):
      for one in result.unreadable:  # Training does not report it again.
        self._experiment.unreadable.found[one.data, one.key] = one
      if result.unreadable:
        console.print_lines(f'{result}\nThey are skipped: see {file_name(0)}')

  def start_counter(
      self, counters: counters_lib.Counters) -> data.UnreadableCounter | None:
    """Returns a counter that continues from a checkpoint's counts."""
    section = self._experiment.config.data
    if section.unreadable == 'error':
      return None
    shards, num_shards = multihost.batch_shards(self._experiment.mesh)
    self._counter = data.UnreadableCounter(
        max_share=section.max_unreadable, log=self._experiment.unreadable,
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
    found = self._experiment.unreadable.found.values()
    if len(found) > self._num_written:
      name = file_name(jax.process_index())
      with self._files.explain_errors(name):
        writer.add_rows(
            self._files.path / name, map(dataclasses.asdict, found), step=step)
      self._num_written = len(found)


def describe(counters: counters_lib.Counters) -> str:
  """Returns the summary line of a run that skipped images."""
  return (f'{counters.unreadable:,} of {counters.images:,} images were '
          'unreadable and replaced by others: see '
          + ('unreadable*.jsonl' if jax.process_count() > 1 else file_name(0)))


def file_name(process: int) -> str:
  """Returns the name of a process's list in the workdir."""
  return f'unreadable.{process}.jsonl' if process else 'unreadable.jsonl'


def scan_images(
    config: data.DataConfig, dataset: data.Dataset,
) -> unreadable_lib.Scan | None:
  """Decodes images of a split in random order, for up to `data.check_secs`.

  Returns None for published datasets. Raises a `ValueError` for an error of the
  file system.
  """
  if not config.check_secs or not registry.is_user_data(dataset.name):
    return None
  load = examples.LoadExample(dataset, config, train=False)
  count, rng = dataset.num_examples, np.random.default_rng(0)
  order = (rng.permutation(count) if count <= _MAX_EXAMPLES
           else rng.integers(count, size=_MAX_EXAMPLES))
  found: list[unreadable_lib.Unreadable] = []
  checked, end = 0, time.monotonic() + config.check_secs
  chunks = decode.read_chunks(
      order.tolist(), load.find_unreadable, size=_CHUNK, errors=())
  for chunk, _ in rich.progress.track(
      chunks, f'checking {dataset.split}', total=-(-len(order) // _CHUNK),
      transient=True, disable=not sys.stdout.isatty()):
    for _, bad in chunk:
      found += bad
    checked += len(chunk)
    if time.monotonic() > end:
      break
  return unreadable_lib.Scan(
      f'{dataset.name} {dataset.split}', checked, count, tuple(found))


def check_scans(
    config: data.DataConfig, scans: Sequence[unreadable_lib.Scan | None],
) -> None:
  """Raises a ValueError for images that would end the run.

  The first of `scans` is the training split.
  """
  problems, keys = [], set()
  for number, one in enumerate(scans):
    is_train = number == 0
    skip = config.policy(train=is_train) == 'skip'
    if one is not None and len(one.unreadable) > unreadable_lib.allowed(
        config.max_unreadable if skip else 0, one.checked):
      problems.append(str(one))
      keys.add('unreadable' if is_train or config.eval_unreadable == 'auto'
               else 'eval_unreadable')
  if problems:
    flags = ' '.join(f'--config.data.{key}=skip' for key in sorted(keys))
    raise ValueError(
        '\n'.join(problems) + '\nRepair or remove these images (`data check` '
        f'lists all problems), or skip them with {flags}. '
        f'At most {config.max_unreadable:.0%} (data.max_unreadable) or ten '
        'images, whichever is more, are skipped.')
