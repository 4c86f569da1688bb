"""Training and evaluation batches from a config section.

  open.open_dataset      selects examples; decodes nothing
  examples.LoadExample   reads and decodes an example, and applies operations
  train_batches          shuffled every epoch, augmented, endless
  eval_batches           every example once, in order, the last batch padded
  on_device.prepare      returns the function that prepares a batch on a device

**The batch at a step is a pure function of (seed, step).** Grain computes
example i of the endless shuffled stream from the seed and i alone, so there is
no state to save, and neither hosts nor workers nor restarts change a batch.
"""

from collections.abc import Generator, Sequence
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from typing import Literal

from absl import flags
import grain
import jax
import numpy as np

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data import mixture
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.splits import class_sampling
from vit_jax.exceptions import UserError

Batches = Generator[examples.HostBatch, None, None]  # Closing ends workers.

# A worker starts in about 5 s, so it must save more than that in each pass.
_SECS_PER_WORKER = 10.0
_MAX_WORKERS = 8  # Each holds `data.prefetch` batches in memory.
_TIMED_EXAMPLES, _TIMED_SECS = 8, 0.5  # For the cost of an example.


def train_batches(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset, *, seed: int,
    batch_size: int, start_step: int = 0, shards: Sequence[int] = (0,),
    num_shards: int = 1,
    unreadable: unreadable_lib.UnreadableCounter | None = None,
) -> Batches:
  """Yields some shards of global batch start_step, start_step + 1, ...

  An epoch is every example once (or as many draws, with `data.sampling`);
  batches continue across epochs.

  Args:
    config: the section.
    dataset: training examples.
    seed: seed of order and augmentation.
    batch_size: global batch size.
    start_step: first batch to yield.
    shards: indices of the shards that this process reads.
    num_shards: number of equal shards of a batch.
    unreadable: counts unreadable images.

  Yields:
    `image` [b, height, width, channels] of `data.dtype`; `label` int32 [b],
    int32 [b, max_labels] padded with -1, or float32 [b, targets] standardised;
    `mask` float32 [b] of ones. b = batch_size / num_shards * len(shards).

  Raises:
    UserError: if the batch size does not divide into shards; while iterating,
      for an unreadable image, with its name.
  """
  load = examples.LoadExample(dataset, config, train=True)
  seed %= 2**32  # Grain's seeds have 32 bits.
  stream = shuffled_epochs(dataset.num_examples, seed=seed)
  if config.mixture:
    stream = stream.map_with_index(mixture.mixer().order(
        config.mixture, dataset.source, seed=seed, batch_size=batch_size))
  if config.sampling != 'natural':
    stream = stream.map_with_index(registry.load(registry.SAMPLER)(
        class_sampling.class_labels(dataset, setting='data.sampling'),
        sampling=config.sampling, seed=seed))
  stream = stream.random_map(load).batch(_shard_size(batch_size, num_shards))
  workers = config.num_workers
  return _iterate(
      _select(stream, shards, num_shards, start_step), load,
      choose_workers(load) if workers == 'auto' else workers, unreadable)


def shuffled_epochs(length: int, *, seed: int) -> grain.MapDataset:
  """Returns the endless stream of indices, shuffled every epoch."""
  # Grain rounds the length of `repeat()` up beyond an index.
  return grain.MapDataset.range(length).seed(seed).shuffle().repeat(
      2**62 // length)


def eval_batches(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset, *,
    batch_size: int, shards: Sequence[int] = (0,), num_shards: int = 1,
    unreadable: unreadable_lib.UnreadableCounter | None = None,
) -> Batches:
  """Yields some shards of one ordered pass over all examples.

  Like `train_batches`, but the last batch is padded with zeros of mask 0; every
  shard has the same number of batches. `data.num_workers` is an upper limit:
  passes too short to repay the start of workers use threads only.
  """
  load = examples.LoadExample(dataset, config, train=False)
  num_batches = -(-dataset.num_examples // batch_size)
  stream = (
      grain.MapDataset.range(num_batches * batch_size)
      .seed(0)
      .random_map(load)
      .batch(_shard_size(batch_size, num_shards)))
  return _iterate(
      _select(stream, shards, num_shards), load,
      choose_workers(load, most=config.num_workers), unreadable)


def choose_workers(
    load: examples.LoadExample, *, most: int | Literal['auto'] = 'auto',
    cores: int | None = None,
) -> int:
  """Returns the number of worker processes for passes over a dataset.

  One for each 10 s that a pass would take in a single thread, as measured on a
  few examples, and at most `most`. 'auto' is at most 8 and half of the cores
  that are left after reserving two for training.
  """
  if isinstance(most, int):
    limit = most
  else:
    # A scheduler such as Slurm may give this process only some; not on macOS.
    cores = cores or (
        len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity')
        else os.cpu_count() or 1)
    limit = min(_MAX_WORKERS, max(0, cores - 2) // 2)
  if not limit:
    return 0
  secs = _secs_per_example(load) * load.dataset.num_examples
  return min(limit, int(secs / _SECS_PER_WORKER))


def _secs_per_example(load: examples.LoadExample) -> float:
  """Returns the median time to load a few examples."""
  times = [time.perf_counter()]
  count = load.dataset.num_examples
  for index in range(0, count, max(1, count // _TIMED_EXAMPLES)):
    with contextlib.suppress(UserError):  # Unreadable: reported when used.
      load.image(index)
    times.append(time.perf_counter())
    if times[-1] - times[0] > _TIMED_SECS:
      break
  return float(np.median(np.diff(times)))


def _shard_size(batch_size: int, num_shards: int) -> int:
  if batch_size < 1 or batch_size % num_shards:
    raise UserError(
        f'Batch size {batch_size} does not divide into {num_shards} shards. '
        f'Use a multiple of {num_shards}.')
  return batch_size // num_shards


def _select(
    stream: grain.MapDataset, shards: Sequence[int], num_shards: int,
    start_step: int = 0,
) -> grain.MapDataset:
  """Joins the chosen shards of each batch; `stream` yields all in order."""
  selected = [
      stream.slice(slice(start_step * num_shards + shard, None, num_shards))
      for shard in shards]
  if len(selected) == 1:
    return selected[0]
  return grain.experimental.ZipMapDataset(selected).map(_join)


def _join(shards: Sequence[examples.HostBatch]) -> examples.HostBatch:
  return {name: np.concatenate([shard[name] for shard in shards])
          for name in shards[0]}


def _iterate(
    batches: grain.MapDataset, load: examples.LoadExample, num_workers: int,
    counter: unreadable_lib.UnreadableCounter | None,
) -> Batches:
  """Prefetches a bounded number of batches in threads or processes.

  Removes the indices of unreadable examples from batches and counts them.
  """
  config = load.config
  counter = counter or unreadable_lib.UnreadableCounter()
  stream = batches.to_iter_dataset(grain.ReadOptions(
      num_threads=min(config.num_threads, config.prefetch),
      prefetch_buffer_size=config.prefetch))
  if num_workers:
    # Grain reads absl flags, which notebooks and tests do not parse.
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()
    stream = stream.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=num_workers),
        worker_init_fn=_start_worker)
  iterator = iter(stream)
  try:
    for batch in iterator:
      if unreadable_lib.KEY in batch:
        counter.add(batch.pop(unreadable_lib.KEY), load.find_unreadable)
      yield batch
  except RuntimeError as error:
    if 'terminated unexpectedly' not in str(error):
      raise
    raise UserError(
        f'{error} The kernel kills processes (exit code -9) when memory runs '
        f'out: reduce data.num_workers ({num_workers}), data.prefetch '
        f'({config.prefetch}) or data.max_pixels ({config.max_pixels:,}).'
    ) from error
  finally:
    iterator.close()  # Ends the worker processes.


def _start_worker(index: int, count: int) -> None:
  """Makes a worker process ignore signals and exit with its parent.

  Ctrl-C and SIGTERM reach the whole process group, but the parent still needs
  batches while it saves.
  """
  del index, count
  for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)

  def exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
      parent.join()
      os._exit(1)

  threading.Thread(target=exit_with_parent, daemon=True).start()


def abstract_batch(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset,
    batch_size: int,
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes and dtypes of a host batch."""
  return {name: jax.ShapeDtypeStruct((batch_size, *array.shape), array.dtype)
          for name, array in examples.padding(config, dataset).items()
          if name != unreadable_lib.KEY}
