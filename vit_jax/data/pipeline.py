"""From a config's section `data` to batches: one image's way from disk.

  open_dataset     which examples there are; nothing is decoded
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

from collections.abc import Callable, Generator, Mapping, Sequence
import dataclasses
import multiprocessing
import os
import signal
import threading
from typing import Any

from absl import flags
import grain
import jax
import jax.numpy as jnp
from jaxtyping import Int, Int32
import numpy as np

from vit_jax import records
from vit_jax.data import exclude as exclude_lib
from vit_jax.data import mixing
from vit_jax.data import protocol
from vit_jax.data import shapes as shapes_lib
from vit_jax.data import sources
from vit_jax.data import splits
from vit_jax.data import subsets
from vit_jax.data import transforms

HostBatch = dict[str, np.ndarray]
Batches = Generator[HostBatch, None, None]  # Close it to end its workers.


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The section `data` of a config.

  Attributes:
    source: 'digits', 'shapes', a folder of images (`train/class/*.jpg` or
      `class/*.jpg`), or a TFDS name: 'cifar10', 'oxford_iiit_pet:4.0.0'.
    data_dir: TFDS directory; default $TFDS_DATA_DIR or ~/tensorflow_datasets.
    split: TFDS split string, for every source: 'train', 'train[:98%]'.
    examples_per_class: keep only that many of each class of `split`, the same
      ones in every run.
    num_examples: keep only that many of `split`, chosen at random, the same
      ones in every run: the first million is part of the first two.
    fraction: the same, as a share of `split`.
    exclude: a file of keys, a line each, of examples of `split` to leave out
      before anything else is chosen: `main.py deduplicate` writes one.
    resolution: of the batch, one side or (height, width), in pixels;
      operations without a size of their own use it.
    channels: 1 (grey) or 3 (RGB).
    train_ops: image operations, for example ({'op': 'inception_crop'},
      {'op': 'flip'}); decoding comes first by itself.
    eval_ops: the same for evaluation.
    mean: of images in [0, 1], subtracted on the device; one number or one for
      each channel.
    std: the same, divided by. 0.5 and 0.5 make the value range [-1, 1].
    max_labels: the most labels that an image may have, where it has several: a
      batch holds so many indices for each, whatever the number of classes.
    mixup: alpha of mixup's Beta distribution; 0 is off.
    cutmix: alpha of CutMix's. With both on, a batch gets one at random.
    num_workers: processes that read and augment; 0 for threads in this one.
    num_threads: in each process; more than two help where reading waits for a
      network, not where decoding fills the cores (Python's global lock).
    prefetch: batches that each process holds ready: the bound of its memory.
    shapes: of the source 'shapes'.
  """
  source: str = 'digits'
  data_dir: str = ''
  split: str = 'train'
  examples_per_class: int | None = None
  num_examples: int | None = None
  fraction: float | None = None
  exclude: str = ''
  resolution: int | tuple[int, int] = 32
  channels: int = 3
  train_ops: tuple[dict[str, Any], ...] = ({'op': 'resize'},)
  eval_ops: tuple[dict[str, Any], ...] = ({'op': 'resize'},)
  mean: float | tuple[float, ...] = 0.5
  std: float | tuple[float, ...] = 0.5
  max_labels: int = 32
  mixup: float = 0.0
  cutmix: float = 0.0
  num_workers: int = 0
  num_threads: int = 2
  prefetch: int = 4
  shapes: shapes_lib.ShapesConfig = shapes_lib.ShapesConfig()

  def __post_init__(self):
    if self.channels not in (1, 3):
      raise ValueError(
          f'channels must be 1 (grey) or 3 (RGB); got {self.channels}.')
    for name in ('mean', 'std'):
      value = getattr(self, name)
      if isinstance(value, tuple) and len(value) not in (1, self.channels):
        raise ValueError(
            f'{name} must be one number or one for each of the '
            f'{self.channels} channels; got {value}.')
    if not np.all(np.asarray(self.std) > 0):
      raise ValueError(f'std must be positive; got {self.std}.')
    for name, least in (('mixup', 0), ('cutmix', 0), ('num_workers', 0),
                        ('num_threads', 1), ('prefetch', 1),
                        ('max_labels', 1)):
      if getattr(self, name) < least:
        raise ValueError(
            f'{name} must be at least {least}; got {getattr(self, name)}.')
    for name in ('examples_per_class', 'num_examples', 'fraction'):
      value = getattr(self, name)
      if value is not None and value <= 0:
        raise ValueError(
            f'{name} must be positive, or none for all; got {value}.')
    if self.fraction is not None and self.fraction > 1:
      raise ValueError(
          f'fraction is a share of the split, at most 1; got {self.fraction}.')
    if [self.examples_per_class, self.num_examples, self.fraction].count(
        None) < 2:
      raise ValueError(
          'examples_per_class, num_examples and fraction each say how many '
          'examples to keep. Give one of them.')
    # To build them is to check them: a misspelt setting shows at once.
    self.build_ops(train=True)
    self.build_ops(train=False)

  @property
  def size(self) -> tuple[int, int]:
    """Height and width of the batch."""
    return transforms.height_width(self.resolution)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels of the batch."""
    return (*self.size, self.channels)

  def build_ops(self, *, train: bool) -> tuple[transforms.Op, ...]:
    """Returns the operations of training, or of evaluation."""
    return transforms.build(
        self.train_ops if train else self.eval_ops, size=self.size,
        where='train_ops' if train else 'eval_ops')


def parse(section: Mapping[str, Any]) -> DataConfig:
  """Parses the section `data`; see `DataConfig` for its keys."""
  return records.parse(DataConfig, section, where='data')


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
  """A split, opened: facts, and random access to undecoded examples.

  Attributes:
    name: as `data.source` gives it.
    split: as a split string.
    source: `source[i]` is {'image': bytes | uint8 array, 'label': int | list}.
    num_classes: of the whole data set.
    class_names: in the order of the class indices, where known.
    multi_label: labels are lists of class indices.
    eval_split: the split of this data set that published results are on.
    excluded: what `data.exclude` left out.
    splits: all that the data set has.
  """
  name: str
  split: str
  source: protocol.Source
  num_classes: int
  class_names: tuple[str, ...] | None
  multi_label: bool
  eval_split: str
  excluded: exclude_lib.Excluded | None = None
  splits: tuple[str, ...] = ()

  @property
  def num_examples(self) -> int:
    return len(self.source)

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[index]


def open_dataset(
    config: DataConfig, *, split: str | None = None, source: str | None = None,
    expected: bool = False,
) -> Dataset:
  """Opens a data set; reads no images (labels, if `examples_per_class`).

  Args:
    config: the section.
    split: instead of the section's; '' is the one that results are published
      on. It is opened whole: `exclude`, `examples_per_class`, `num_examples`
      and `fraction` thin out the section's own split alone, so that the
      evaluation of a small training set is on all test images.
    source: instead of the section's; opened whole as well.
    expected: takes the sizes of a public data set from the table, without its
      files: enough to plan and to compile, not to read.

  Raises:
    ValueError: if there is no such data set or split, with what to do.
  """
  name = config.source if source is None else source
  if expected and name not in ('digits', 'shapes'):
    opened = sources.expect_source(name)
  else:
    opened = sources.open_source(
        name, data_dir=config.data_dir, shapes_config=config.shapes,
        size=config.size)
  wanted = config.split if split is None else split or opened.eval_split
  examples = splits.select_split(opened, wanted, name=name)
  excluded = None
  if split is source is None:
    if config.exclude and not expected:  # A plan is of the whole.
      examples, excluded = exclude_lib.exclude(
          examples, config.exclude, name=f'{name} {wanted}')
    examples = _thin_out(
        examples, config, name=f'{name} {wanted}', expected=expected)
  return Dataset(
      name=name, split=wanted, source=examples, num_classes=opened.num_classes,
      class_names=opened.class_names, multi_label=opened.multi_label,
      eval_split=opened.eval_split, excluded=excluded,
      splits=tuple(opened.splits))


def _thin_out(
    examples: protocol.Source, config: DataConfig, *, name: str,
    expected: bool,
) -> protocol.Source:
  """Returns those of the section's split that it wants."""
  if config.examples_per_class is not None:
    return splits.select_per_class(
        examples, config.examples_per_class, name=name)
  count = config.num_examples
  if config.fraction is not None:
    count = max(1, round(config.fraction * len(examples)))
  if count is None:
    return examples
  if expected:  # A plan asks how many, not which.
    subsets.check_count(count, len(examples), name=name)
    return splits.Concatenated(((examples, 0, count),))
  return subsets.select_random(examples, count, name=name)


def draw_per_class(
    dataset: Dataset, count: int, *, seeds: Sequence[int],
) -> tuple[Dataset, Int[np.ndarray, 'seeds examples']]:
  """Returns the data set of several draws; see `splits.draw_per_class`."""
  subset, ranks = splits.draw_per_class(
      dataset.source, count, name=f'{dataset.name} {dataset.split}',
      seeds=seeds)
  return dataclasses.replace(dataset, source=subset), ranks


@dataclasses.dataclass(frozen=True, eq=False)
class _Load:
  """Makes row `index` of a batch: read, decode, augment, check.

  Indices beyond the data set are padding: zeros, with mask 0.
  """
  dataset: Dataset
  ops: tuple[transforms.Op, ...]
  image_shape: tuple[int, int, int]
  max_labels: int

  def __call__(self, index: int, rng: np.random.Generator) -> HostBatch:
    if index >= self.dataset.num_examples:
      image = np.zeros(self.image_shape, np.uint8)
      label = self._label([] if self.dataset.multi_label else 0)
      return _row(image, label, mask=0)
    try:
      example = self.dataset[index]
      image = self._image(example['image'], rng)
      label = self._label(example['label'])
    # Grain loses sight of which example it was; the user must not.
    except Exception as error:
      raise ValueError(
          f'Example {index} of {self.dataset.name}, split '
          f'{self.dataset.split!r} ({self.dataset.source.key(index)}): {error}'
      ) from error
    return _row(image, label, mask=1)

  def _label(self, label: Any) -> Int32[np.ndarray, '...']:
    """Returns a class index, or a list of them padded with -1.

    Raises:
      ValueError: if one of a list is no class (-1, above all, is no label), or
        there are more than there is room for.
    """
    if not self.dataset.multi_label:
      return np.asarray(label, np.int32)
    indices = np.unique(np.asarray(label, np.int64)).astype(np.int32)
    classes, room = self.dataset.num_classes, self.max_labels
    wrong = indices[(indices < 0) | (indices >= classes)]
    if wrong.size:
      raise ValueError(
          f'one of its labels is {wrong[0]}, but there are {classes:,} '
          'classes, numbered from 0.')
    if len(indices) > room:
      raise ValueError(
          f'it has {len(indices)} labels, but data.max_labels is {room}. Use '
          f'--config.data.max_labels={len(indices)} or more.')
    padded = np.full(room, -1, np.int32)
    padded[:len(indices)] = indices
    return padded

  def _image(
      self, data: bytes | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    image = transforms.decode(data, channels=self.image_shape[-1])
    for op in self.ops:
      image = op(image, rng)
    return transforms.to_array(image, size=self.image_shape[:2])


def _row(
    image: np.ndarray, label: np.ndarray, *, mask: int) -> HostBatch:
  return {'image': image, 'label': label, 'mask': np.asarray(mask, np.float32)}


def train_batches(
    config: DataConfig, dataset: Dataset, *, seed: int, batch_size: int,
    start_step: int = 0, parts: Sequence[int] = (0,), num_parts: int = 1,
) -> Batches:
  """Yields some rows of global batch start_step, start_step + 1, ...

  Rows run on from one epoch into the next: each epoch is every example once,
  whether or not the batch size divides it.

  Args:
    config: the section.
    dataset: what to train on.
    seed: of order and augmentation.
    batch_size: global.
    start_step: the first batch to yield.
    parts: which of the equal parts of each batch to read: those that this
      process's devices hold. Nothing is read of the others.
    num_parts: how many parts a batch has.

  Yields:
    `image` uint8 [b, height, width, channels], `label` int32 [b] or, where an
    example has several, [b, max_labels] padded with -1, `mask` float32 [b] of
    ones, with b = batch_size / num_parts * len(parts).

  Raises:
    ValueError: for a batch size that does not divide; while iterating, for an
      image that cannot be read, naming it.
  """
  load = _Load(
      dataset, config.build_ops(train=True), config.image_shape,
      config.max_labels)
  stream = (
      grain.MapDataset.range(dataset.num_examples)
      # Grain takes 32 bits.
      .seed(seed % 2**32)
      .shuffle()
      .repeat()
      .random_map(load)
      .batch(_rows_of_part(batch_size, num_parts)))
  return _iterate(config, _choose(stream, parts, num_parts, start_step))


def eval_batches(
    config: DataConfig, dataset: Dataset, *, batch_size: int,
    parts: Sequence[int] = (0,), num_parts: int = 1,
) -> Batches:
  """Yields some rows of a pass over every example, in order.

  As `train_batches`, but once. The last batch is filled up with zeros whose
  `mask` is 0; there are as many batches of any parts.
  """
  load = _Load(
      dataset, config.build_ops(train=False), config.image_shape,
      config.max_labels)
  num_batches = -(-dataset.num_examples // batch_size)
  stream = (
      grain.MapDataset.range(num_batches * batch_size)
      .seed(0)
      .random_map(load)
      .batch(_rows_of_part(batch_size, num_parts)))
  return _iterate(config, _choose(stream, parts, num_parts))


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


def _join(parts: Sequence[HostBatch]) -> HostBatch:
  return {name: np.concatenate([part[name] for part in parts])
          for name in parts[0]}


def _iterate(
    config: DataConfig, batches: grain.MapDataset) -> Batches:
  """Reads ahead, in threads or in processes, a bounded number of batches."""
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
  finally:
    # Ends the worker processes as soon as nobody wants another batch.
    iterator.close()


def _start_worker(index: int, count: int) -> None:
  """Binds a worker process to the life of its parent, and to that alone.

  Ctrl-C and a cluster's SIGTERM reach the whole process group; the parent
  still needs batches, or an orderly end, while it saves.
  """
  del index, count
  for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)

  def leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
      parent.join()
      os._exit(1)  # A parent that was killed can stop nobody.

  threading.Thread(target=leave_with_parent, daemon=True).start()


def prepare(
    config: DataConfig, *, num_classes: int, multi_label: bool,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns the device's part, (batch, key, train) -> batch; to be jitted.

  `image` becomes float32, (image / 255 - mean) / std. `label` becomes k-hot
  float32 [batch, classes] where an example has several. In training with mixup
  or CutMix it becomes soft [batch, classes]; else an index stays as it is.
  """
  return mixing.prepare(
      mean=config.mean, std=config.std, mixup_alpha=config.mixup,
      cutmix_alpha=config.cutmix, num_classes=num_classes,
      multi_label=multi_label)


def abstract_batch(
    config: DataConfig, dataset: Dataset, batch_size: int,
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns shapes and dtypes of a host batch, without reading anything."""
  labels = (config.max_labels,) if dataset.multi_label else ()
  return {
      'image': jax.ShapeDtypeStruct(
          (batch_size, *config.image_shape), jnp.uint8),
      'label': jax.ShapeDtypeStruct((batch_size, *labels), jnp.int32),
      'mask': jax.ShapeDtypeStruct((batch_size,), jnp.float32)}
