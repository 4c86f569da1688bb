"""From a config's section `data` to batches: one image's way from disk.

  opening          which examples there are; nothing is decoded
  loading          one of them: read, decoded, augmented, checked
  train_batches    shuffled each epoch, augmented, without end
  eval_batches     every example once, in order, the last batch padded
  prepare          on the device: value range, mixup, CutMix

An index is drawn (a shuffle of the whole data set, new in each epoch), the
source reads that example, `transforms` decode and augment it with a generator
of its own, rows are stacked to a batch of bytes, and `mixing` makes numbers of
it on the device.

**The batch at a step is a pure function of (seed, step).** Grain computes the
i-th example of the endless shuffled stream from the seed and i alone. A
process takes the rows that are its own; a restart begins at its step. There
is no state to save, whatever the number of hosts and workers was before.
"""

from collections.abc import Callable, Generator, Sequence
import contextlib
import multiprocessing
import os
import re
import signal
import threading

from absl import flags
import grain
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data import config as config_lib
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import examples
from vit_jax.data.augment import mixup
from vit_jax.data.images import limits
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.splits import class_sampling as class_sampling_lib

# Close it to end its workers.
Batches = Generator[examples.HostBatch, None, None]


def train_batches(
    config: config_lib.DataConfig, dataset: dataset_lib.Dataset, *, seed: int,
    batch_size: int, start_step: int = 0, parts: Sequence[int] = (0,),
    num_parts: int = 1, tally: unreadable_lib.Tally | None = None,
) -> Batches:
  """Yields some rows of global batch start_step, start_step + 1, ...

  Rows run on from one epoch into the next: each epoch is every example once,
  whether or not the batch size divides it; or as many draws, where
  `data.sampling` draws some classes more often.

  Args:
    config: the section.
    dataset: what to train on.
    seed: of order and augmentation.
    batch_size: global.
    start_step: the first batch to yield.
    parts: which of the equal parts of each batch to read: those that this
      process's devices hold. Nothing is read of the others.
    num_parts: how many parts a batch has.
    tally: counts what could not be read.

  Yields:
    `image` [b, height, width, channels] of `data.dtype`, `label` int32 [b] or,
    where an example has several, [b, max_labels] padded with -1, or where
    labels are numbers, float32 [b, targets], standardised; `mask` float32 [b]
    of ones, with b = batch_size / num_parts * len(parts).

  Raises:
    ValueError: for a batch size that does not divide; while iterating, for an
      image that cannot be read, naming it.
  """
  load = examples.Load(dataset, config, train=True)
  stream = (
      grain.MapDataset.range(dataset.num_examples)
      # Grain takes 32 bits.
      .seed(seed % 2**32)
      .shuffle()
      .repeat())
  if config.sampling != 'natural':
    dataset_lib.check_training(config, dataset)
    stream = stream.map_with_index(class_sampling_lib.build(
        dataset_lib.class_labels(dataset, asked='data.sampling'),
        num_classes=dataset.num_classes, sampling=config.sampling,
        seed=seed % 2**32))
  stream = stream.random_map(load).batch(_rows_of_part(batch_size, num_parts))
  return _counted(
      _iterate(config, _choose(stream, parts, num_parts, start_step)), load,
      tally)


def eval_batches(
    config: config_lib.DataConfig, dataset: dataset_lib.Dataset, *,
    batch_size: int, parts: Sequence[int] = (0,), num_parts: int = 1,
    tally: unreadable_lib.Tally | None = None,
) -> Batches:
  """Yields some rows of a pass over every example, in order.

  As `train_batches`, but once. The last batch is filled up with zeros whose
  `mask` is 0; there are as many batches of any parts.
  """
  load = examples.Load(dataset, config, train=False)
  num_batches = -(-dataset.num_examples // batch_size)
  stream = (
      grain.MapDataset.range(num_batches * batch_size)
      .seed(0)
      .random_map(load)
      .batch(_rows_of_part(batch_size, num_parts)))
  return _counted(
      _iterate(config, _choose(stream, parts, num_parts)), load, tally)


def _counted(
    batches: Batches, load: examples.Load, tally: unreadable_lib.Tally | None,
) -> Batches:
  """Takes from batches what they say of unreadable images, and counts it."""
  if load.policy == 'error':
    return batches
  counts = tally or unreadable_lib.Tally(max_share=load.config.max_unreadable)

  def taken() -> Batches:
    with contextlib.closing(batches):
      for batch in batches:
        counts.add(batch.pop(unreadable_lib.KEY), load.unreadable)
        yield batch

  return taken()


def _rows_of_part(batch_size: int, num_parts: int) -> int:
  if batch_size < 1 or batch_size % num_parts:
    raise ValueError(
        f'Batch size {batch_size} does not divide into {num_parts} parts. Use '
        f'a multiple of {num_parts}.')
  return batch_size // num_parts


def _choose(
    stream: grain.MapDataset, parts: Sequence[int], num_parts: int,
    start_step: int = 0,
) -> grain.MapDataset:
  """Returns the batches from `start_step` on: of each, its chosen parts.

  Args:
    stream: all parts of all batches, one after the other.
    parts: numbers of the parts to join.
    num_parts: how many a batch has.
    start_step: the first batch.
  """
  of_each = [stream.slice(slice(start_step * num_parts + part, None, num_parts))
             for part in parts]
  if len(of_each) == 1:
    return of_each[0]
  return grain.experimental.ZipMapDataset(of_each).map(_join)


def _join(parts: Sequence[examples.HostBatch]) -> examples.HostBatch:
  return {name: np.concatenate([part[name] for part in parts])
          for name in parts[0]}


def _iterate(
    config: config_lib.DataConfig, batches: grain.MapDataset) -> Batches:
  """Reads ahead, in threads or in processes, a bounded number of batches."""
  limits.keep_memory()
  options = grain.ReadOptions(
      num_threads=min(config.num_threads, config.prefetch),
      prefetch_buffer_size=config.prefetch)
  stream = batches.to_iter_dataset(options)
  if config.num_workers:
    # Grain asks absl for flags of its own; in a notebook or a test, nobody
    # has parsed any.
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()
    stream = stream.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=config.num_workers),
        worker_init_fn=_start_worker)
  iterator = iter(stream)
  try:
    yield from iterator
  except RuntimeError as error:
    if 'terminated unexpectedly' not in str(error):
      raise
    raise RuntimeError(_died(config, str(error))) from error
  finally:
    # Ends the worker processes as soon as nobody wants another batch.
    iterator.close()


def _died(config: config_lib.DataConfig, error: str) -> str:
  """Returns the words for a worker process that is gone; see Grain's error."""
  code = re.search(r'exit code (-?\d+)', error)
  status = int(code.group(1)) if code else 0
  how = (f'killed by {signal.Signals(-status).name}' if status < 0
         else f'with exit code {status}')
  memory = (
      ' The kernel does that where memory runs out: take fewer '
      f'data.num_workers ({config.num_workers}) or a smaller data.prefetch '
      f'({config.prefetch}) or data.max_pixels ({config.max_pixels:,}).'
      ) * (status == -signal.SIGKILL)
  return (f'A process that reads the input has died, {how}.{memory}')


def _start_worker(index: int, count: int) -> None:
  """Binds a worker process to the life of its parent, and to that alone.

  Ctrl-C and a cluster's SIGTERM reach the whole process group; the parent
  still needs batches, or an orderly end, while it saves.
  """
  del index, count
  limits.keep_memory()
  for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)

  def leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
      parent.join()
      os._exit(1)  # A parent that was killed can stop nobody.

  threading.Thread(target=leave_with_parent, daemon=True).start()


def prepare(
    config: config_lib.DataConfig, *, num_classes: int, multi_label: bool,
    targets: bool = False,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns the device's part, (batch, key, train) -> batch; to be jitted.

  `image` becomes float32, (image / 255 - mean) / std, or with `value_range` for
  0 and 255. `label` becomes k-hot
  float32 [batch, classes] where an example has several. In training with mixup
  or CutMix it becomes soft [batch, classes]; else an index stays as it is, and
  so do numbers (`targets`), which mixup blends.
  """
  return mixup.prepare(
      **config.value_scale, mixup_alpha=config.mixup,
      cutmix_alpha=config.cutmix, num_classes=num_classes,
      multi_label=multi_label, targets=targets)


def abstract_batch(
    config: config_lib.DataConfig, dataset: dataset_lib.Dataset,
    batch_size: int,
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns shapes and dtypes of a host batch, without reading anything."""
  labels = jax.ShapeDtypeStruct(
      (batch_size, *((config.max_labels,) * dataset.multi_label)), jnp.int32)
  if dataset.targets:
    labels = jax.ShapeDtypeStruct(
        (batch_size, len(dataset.targets)), jnp.float32)
  return {
      'image': jax.ShapeDtypeStruct(
          (batch_size, *config.image_shape), config.dtype),
      'label': labels,
      'mask': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
