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
import contextlib
import dataclasses
import multiprocessing
import os
import re
import signal
import threading
from typing import Any, Literal

from absl import flags
import grain
import jax
import jax.numpy as jnp
from jaxtyping import Float32, Int, Int32
import numpy as np

from vit_jax import records
from vit_jax.data import bands
from vit_jax.data import decoding
from vit_jax.data import exclude as exclude_lib
from vit_jax.data import headers
from vit_jax.data import mixing
from vit_jax.data import protocol
from vit_jax.data import rows
from vit_jax.data import sampling as sampling_lib
from vit_jax.data import scaling
from vit_jax.data import shapes as shapes_lib
from vit_jax.data import sources
from vit_jax.data import splits
from vit_jax.data import subsets
from vit_jax.data import targets as targets_lib
from vit_jax.data import transforms
from vit_jax.data import unreadable as unreadable_lib

HostBatch = dict[str, np.ndarray]
_MEASURED = 512  # Images, of which mean and std are measured.
Batches = Generator[HostBatch, None, None]  # Close it to end its workers.


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The section `data` of a config.

  Attributes:
    source: 'digits', 'shapes', a TFDS name ('cifar10',
      'oxford_iiit_pet:4.0.0'), or a path: a folder of images, a table, Parquet
      files, tar shards; docs/data.md.
    data_dir: TFDS directory; default $TFDS_DATA_DIR or ~/tensorflow_datasets.
    split: TFDS split string, for every source: 'train', 'train[:98%]'.
    target: 'single', 'multi' or 'regression': the kind of label that a table
      at a path has; 'auto' tells it from the values (`targets`).
    table: which column of it is what, where names do not say.
    examples_per_class: keep only that many of each class of `split`, the same
      ones in every run.
    num_examples: keep only that many of `split`, chosen at random, the same
      ones in every run: the first million is part of the first two.
    fraction: the same, as a share of `split`.
    sampling: how often training draws a class: 'natural', as it occurs;
      'balanced', all equally often; 'sqrt', by the root of its examples. An
      epoch stays as many draws as there are examples; see `sampling`.
    exclude: a file of keys, a line each, of examples of `split` to leave out
      before anything else is chosen: `main.py deduplicate` writes one.
    resolution: of the batch, one side or (height, width), in pixels;
      operations without a size of their own use it.
    channels: 1 (grey) or 3 (RGB) of pictures, which `decoding.decode` makes
      of whatever files there are; or any number, such as 13 of Sentinel-2,
      which files must have: see `bands.decode`.
    dtype: of pixels on their way to the device: 'uint8', 'uint16' or 'float32'.
    value_range: pixel values that become 0 and 1: (0, 255) of uint8; of others
      it must be said, such as (0, 10000) of reflectances in uint16. Values
      beyond it are not cut off.
    train_ops: image operations, for example ({'op': 'inception_crop'},
      {'op': 'flip'}); decoding comes first by itself.
    eval_ops: the same for evaluation.
    mean: of images in [0, 1], subtracted on the device; one number or one for
      each channel. 'measured', of both: that of each channel in 512 images of
      the training split, when a run begins; kept with its checkpoints.
    std: the same, divided by. 0.5 and 0.5 make the value range [-1, 1].
    target_mean: of data whose labels are numbers, that of each in the training
      split: they are learned as (label - mean) / std. Left out, it is measured
      when a run begins, and kept with its checkpoints.
    target_std: the same, divided by.
    max_labels: the most labels that an image may have, where it has several: a
      batch holds so many indices for each, whatever the number of classes.
    unreadable: what training does about an image that cannot be read: 'error',
      or 'skip' it, count and name it, and take the next example that can be;
      see `unreadable`.
    eval_unreadable: what evaluation does; 'skip' leaves the image out.
    max_unreadable: the share of images that may be skipped before that is an
      error after all; ten always may.
    max_pixels: the most that an image may have. A header that says more is an
      error before anything is decoded: each thread takes four bytes for each.
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
  target: targets_lib.Kind = 'auto'
  table: rows.TableConfig = rows.TableConfig()
  examples_per_class: int | None = None
  num_examples: int | None = None
  fraction: float | None = None
  sampling: sampling_lib.Sampling = 'natural'
  exclude: str = ''
  resolution: int | tuple[int, int] = 32
  channels: int = 3
  dtype: bands.Dtype = 'uint8'
  value_range: tuple[float, float] | None = None
  train_ops: tuple[dict[str, Any], ...] = ({'op': 'resize'},)
  eval_ops: tuple[dict[str, Any], ...] = ({'op': 'resize'},)
  mean: float | tuple[float, ...] | Literal['measured'] = 0.5
  std: float | tuple[float, ...] | Literal['measured'] = 0.5
  target_mean: tuple[float, ...] = ()
  target_std: tuple[float, ...] = ()
  max_labels: int = 32
  unreadable: unreadable_lib.Policy = 'error'
  eval_unreadable: unreadable_lib.Policy = 'error'
  max_unreadable: float = 0.01
  max_pixels: int = headers.MAX_PIXELS
  mixup: float = 0.0
  cutmix: float = 0.0
  num_workers: int = 0
  num_threads: int = 2
  prefetch: int = 4
  shapes: shapes_lib.ShapesConfig = shapes_lib.ShapesConfig()

  def __post_init__(self):
    if self.channels < 1:
      raise ValueError(
          'channels must be 1 (grey), 3 (RGB) or any other number of them; got '
          f'{self.channels}.')
    self._check_value_range()
    for name in ('mean', 'std'):
      value = getattr(self, name)
      if isinstance(value, tuple) and len(value) not in (1, self.channels):
        raise ValueError(
            f'{name} must be one number or one for each of the '
            f'{self.channels} channels; got {value}.')
    if (self.mean == 'measured') != (self.std == 'measured'):
      raise ValueError(
          "mean and std are 'measured' together; got "
          f'{self.mean!r} and {self.std!r}.')
    if self.std != 'measured' and not np.all(np.asarray(self.std) > 0):
      raise ValueError(f'std must be positive; got {self.std}.')
    scaling.check_scale(self.target_mean, self.target_std)
    for name, least in (('mixup', 0), ('cutmix', 0), ('num_workers', 0),
                        ('num_threads', 1), ('prefetch', 1),
                        ('max_labels', 1)):
      if getattr(self, name) < least:
        raise ValueError(
            f'{name} must be at least {least}; got {getattr(self, name)}.')
    if not 0 <= self.max_unreadable <= 1:
      raise ValueError(
          'max_unreadable is a share of the images, from 0 to 1; got '
          f'{self.max_unreadable}.')
    if not 1 <= self.max_pixels <= headers.LARGEST:
      raise ValueError(
          f"max_pixels must be from 1 to {headers.LARGEST:,}, Pillow's own "
          f'bound; got {self.max_pixels:,}.')
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

  def _check_value_range(self) -> None:
    if self.value_range is None and self.dtype != 'uint8':
      raise ValueError(
          f'dtype {self.dtype} needs value_range, the pixel values that become '
          '0 and 1: [0, 65535], or [0, 10000] of reflectances.')
    if self.value_range is not None and not (
        -np.inf < self.value_range[0] < self.value_range[1] < np.inf):
      raise ValueError(
          'value_range is a lower and a higher pixel value; got '
          f'{self.value_range}.')

  @property
  def is_picture(self) -> bool:
    """Whether images are 8-bit grey or RGB, of whatever files."""
    return self.dtype == 'uint8' and self.channels in (1, 3)

  @property
  def value_scale(self) -> dict[str, Any]:
    """Mean, std and range of pixels, as `mixing.normalize` takes them.

    Raises:
      ValueError: if they are still to be measured.
    """
    if 'measured' in (self.mean, self.std):
      raise ValueError(
          "data.mean is 'measured', but nobody has: see `data.measured`.")
    return {'mean': self.mean, 'std': self.std, 'value_range': self.value_range}

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
        where='train_ops' if train else 'eval_ops',
        any_channels=not self.is_picture)


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
    targets: names of the numbers that labels are, if they are no classes.
    description: how its files were understood, in words; perhaps ''.
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
  targets: tuple[str, ...] = ()
  description: str = ''
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
    understood = rows.Understood(config.target, config.table)
    if source is None:
      sources.check_understood(name, understood)
    opened = sources.open_source(
        name, data_dir=config.data_dir, shapes_config=config.shapes,
        size=config.size, understood=understood)
  wanted = config.split if split is None else split or opened.eval_split
  examples = splits.select_split(opened, wanted, name=name)
  excluded = None
  if split is source is None:
    if config.exclude and not expected:  # A plan is of the whole.
      examples, excluded = exclude_lib.exclude(
          examples, config.exclude, name=f'{name} {wanted}')
    examples = _thin_out(
        examples, config, name=f'{name} {wanted}', expected=expected,
        targets=bool(opened.targets))
  return Dataset(
      name=name, split=wanted, source=examples, num_classes=opened.num_classes,
      class_names=opened.class_names, multi_label=opened.multi_label,
      eval_split=opened.eval_split, targets=opened.targets,
      description=opened.description, excluded=excluded,
      splits=tuple(opened.splits))


def _thin_out(
    examples: protocol.Source, config: DataConfig, *, name: str,
    expected: bool, targets: bool,
) -> protocol.Source:
  """Returns those of the section's split that it wants."""
  if config.examples_per_class is not None:
    if targets:
      raise ValueError(
          f'examples_per_class is {config.examples_per_class}, but the labels '
          f'of {name} are numbers to predict. Use num_examples or fraction.')
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


def measured(
    config: DataConfig, dataset: Dataset, *, expected: bool = False,
) -> DataConfig:
  """Returns the section with what it leaves to be measured filled in.

  Args:
    config: the section.
    dataset: what is trained on; every label is read where labels are numbers,
      and 512 images where `mean` is to be measured.
    expected: there is nothing to read: zero and one stand for what it would be.
  """
  if config.mean == 'measured':
    mean, std = ((0.5, 0.5) if expected else
                 _measure_pixels(config, dataset))
    config = dataclasses.replace(config, mean=mean, std=std)
  if not dataset.targets or config.target_mean:
    return config
  count = len(dataset.targets)
  means, stds = ((0.0,) * count, (1.0,) * count) if expected else (
      scaling.measure(dataset.source, dataset.targets,
                          name=f'{dataset.name} {dataset.split}'))
  return dataclasses.replace(config, target_mean=means, target_std=stds)


def _measure_pixels(
    config: DataConfig, dataset: Dataset,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns mean and std of each channel in images of a split, in [0, 1].

  Of as many as `_MEASURED`, evenly apart, as evaluation reads them.

  Raises:
    ValueError: if a channel is the same everywhere.
  """
  load = _Load(dataset, config, train=False)
  count = min(_MEASURED, dataset.num_examples)
  low, high = config.value_range or (0.0, 255.0)
  sums = np.zeros((2, config.channels))
  for i in range(count):
    image = load.image(i * dataset.num_examples // count).astype(np.float64)
    scaled = (image - low) / (high - low)
    sums += [scaled.mean((0, 1)), np.square(scaled).mean((0, 1))]
  mean, square = sums / count
  variance = square - np.square(mean)
  if not np.all(variance > 1e-12):
    channel = int(np.argmin(np.nan_to_num(variance)))
    raise ValueError(
        f'data.std cannot be measured: channel {channel} is {mean[channel]:g} '
        f'in all of {count} images of {dataset.name} {dataset.split}. Give '
        'data.mean and data.std, one for each channel.')
  # Four digits: the same on a machine whose JPEG decoder rounds otherwise.
  return (tuple(float(f'{m:.4g}') for m in mean),
          tuple(float(f'{s:.4g}') for s in np.sqrt(variance)))


def check_training(config: DataConfig, dataset: Dataset) -> None:
  """Raises if a data set cannot be trained on in the way that is asked for."""
  sampling_lib.check(
      config.sampling, multi_label=dataset.multi_label,
      targets=dataset.targets, name=dataset.name)


def class_labels(
    dataset: Dataset, *, asked: str) -> Int[np.ndarray, 'examples']:
  """Returns the class of each example; see `sampling.class_labels`."""
  return sampling_lib.class_labels(
      dataset.source, num_classes=dataset.num_classes,
      name=f'{dataset.name} {dataset.split}', asked=asked)


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
  config: DataConfig
  train: bool
  ops: tuple[transforms.Op, ...] = dataclasses.field(init=False)

  def __post_init__(self):
    object.__setattr__(
        self, 'ops', self.config.build_ops(train=self.train))

  @property
  def policy(self) -> unreadable_lib.Policy:
    """What is done about what cannot be read."""
    config = self.config
    return config.unreadable if self.train else config.eval_unreadable

  def __call__(self, index: int, rng: np.random.Generator) -> HostBatch:
    if index >= self.dataset.num_examples:
      return self._padding(unreadable_lib.NONE)
    found, at = unreadable_lib.NONE, index
    try:
      label, picture = self._read(index)
    except unreadable_lib.UnreadableError as error:
      if self.policy == 'error':
        raise
      found = index
      if not self.train:
        return self._padding(found)
      at, label, picture = self._next(index, error)
    with self._named(at):
      return self._row(
          self._finished(picture, rng), self._label(label), mask=1, found=found)

  def image(self, index: int) -> np.ndarray:
    """Returns the pixels of an example, where nothing is random."""
    try:
      _, picture = self._read(index)
    except unreadable_lib.UnreadableError as error:
      if self.config.unreadable == 'error':
        raise
      index, _, picture = self._next(index, error)
    with self._named(index):
      return self._finished(picture, np.random.default_rng(0))

  def unreadable(self, index: int) -> list[unreadable_lib.Unreadable]:
    """Returns what is unreadable from an example on, until one that is not.

    In training; in evaluation, what is wrong with the example alone.
    """
    bad: list[unreadable_lib.Unreadable] = []
    count = self.dataset.num_examples
    for at in range(index, index + (count if self.train else 1)):
      try:
        self._read(at % count)
        break
      except unreadable_lib.UnreadableError as error:
        bad.append(unreadable_lib.Unreadable(
            f'{self.dataset.name} {self.dataset.split}',
            self.dataset.source.key(at % count), str(error)))
    return bad

  def _next(
      self, index: int, error: ValueError,
  ) -> tuple[int, Any, transforms.Picture]:
    """Returns the next example that can be read, its label and its pixels."""
    count = self.dataset.num_examples
    tries = min(unreadable_lib.TRIES, count - 1)
    for at in range(index + 1, index + 1 + tries):
      with contextlib.suppress(unreadable_lib.UnreadableError):
        return (at % count, *self._read(at % count))
    raise ValueError(
        f'{error} Nor can the {tries} examples after it be read: '
        'data.unreadable=skip is for a few.') from error

  def _read(self, index: int) -> tuple[Any, transforms.Picture]:
    with self._named(index, bad=unreadable_lib.UnreadableError):
      example = self.dataset[index]
      return example['label'], self._decoded(example['image'])

  @contextlib.contextmanager
  def _named(
      self, index: int, *, bad: type[ValueError] = ValueError,
  ) -> Generator[None, None, None]:
    """Says of which example an error is: Grain loses sight of it.

    Args:
      index: of the example.
      bad: what a ValueError becomes.
    """
    try:
      yield
    except Exception as error:
      kind = bad if isinstance(error, ValueError) else ValueError
      raise kind(
          f'Example {index} of {self.dataset.name}, split '
          f'{self.dataset.split!r} ({self.dataset.source.key(index)}): {error}'
      ) from error

  def _padding(self, found: int) -> HostBatch:
    image = np.zeros(self.config.image_shape, self.config.dtype)
    return self._row(image, self._no_label(), mask=0, found=found)

  def _row(
      self, image: np.ndarray, label: np.ndarray, *, mask: int, found: int,
  ) -> HostBatch:
    row = {'image': image, 'label': label, 'mask': np.asarray(mask, np.float32)}
    if self.policy == 'skip':
      row[unreadable_lib.KEY] = np.asarray(found, np.int64)
    return row

  def _no_label(self) -> np.ndarray:
    if self.dataset.targets:
      return np.full(len(self.dataset.targets), np.nan, np.float32)
    return self._label([] if self.dataset.multi_label else 0)

  def _label(
      self, label: Any,
  ) -> Int32[np.ndarray, '...'] | Float32[np.ndarray, 'targets']:
    """Returns a class index, a list of them padded with -1, or numbers.

    Raises:
      ValueError: if one of a list is no class (-1, above all, is no label), or
        there are more than there is room for.
    """
    if self.dataset.targets:
      return scaling.standardise(
          label, self.dataset.targets, mean=self.config.target_mean,
          std=self.config.target_std)
    if not self.dataset.multi_label:
      return np.asarray(label, np.int32)
    indices = np.unique(np.asarray(label, np.int64)).astype(np.int32)
    classes, room = self.dataset.num_classes, self.config.max_labels
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

  def _decoded(self, data: bytes | np.ndarray) -> transforms.Picture:
    config = self.config
    if config.is_picture:
      return decoding.decode(
          data, channels=config.channels, max_pixels=config.max_pixels)
    return bands.decode(data, channels=config.channels, dtype=config.dtype,
                        max_pixels=config.max_pixels)

  def _finished(
      self, image: transforms.Picture, rng: np.random.Generator,
  ) -> np.ndarray:
    for op in self.ops:
      image = op(image, rng)
    return transforms.to_array(image, size=self.config.size)


def train_batches(
    config: DataConfig, dataset: Dataset, *, seed: int, batch_size: int,
    start_step: int = 0, parts: Sequence[int] = (0,), num_parts: int = 1,
    tally: unreadable_lib.Tally | None = None,
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
  load = _Load(dataset, config, train=True)
  stream = (
      grain.MapDataset.range(dataset.num_examples)
      # Grain takes 32 bits.
      .seed(seed % 2**32)
      .shuffle()
      .repeat())
  if config.sampling != 'natural':
    check_training(config, dataset)
    stream = stream.map_with_index(sampling_lib.build(
        class_labels(dataset, asked='data.sampling'),
        num_classes=dataset.num_classes, sampling=config.sampling,
        seed=seed % 2**32))
  stream = stream.random_map(load).batch(_rows_of_part(batch_size, num_parts))
  return _counted(
      _iterate(config, _choose(stream, parts, num_parts, start_step)), load,
      tally)


def eval_batches(
    config: DataConfig, dataset: Dataset, *, batch_size: int,
    parts: Sequence[int] = (0,), num_parts: int = 1,
    tally: unreadable_lib.Tally | None = None,
) -> Batches:
  """Yields some rows of a pass over every example, in order.

  As `train_batches`, but once. The last batch is filled up with zeros whose
  `mask` is 0; there are as many batches of any parts.
  """
  load = _Load(dataset, config, train=False)
  num_batches = -(-dataset.num_examples // batch_size)
  stream = (
      grain.MapDataset.range(num_batches * batch_size)
      .seed(0)
      .random_map(load)
      .batch(_rows_of_part(batch_size, num_parts)))
  return _counted(
      _iterate(config, _choose(stream, parts, num_parts)), load, tally)


def _counted(
    batches: Batches, load: _Load, tally: unreadable_lib.Tally | None,
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


def _join(parts: Sequence[HostBatch]) -> HostBatch:
  return {name: np.concatenate([part[name] for part in parts])
          for name in parts[0]}


def _iterate(
    config: DataConfig, batches: grain.MapDataset) -> Batches:
  """Reads ahead, in threads or in processes, a bounded number of batches."""
  headers.keep_memory()
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


def _died(config: DataConfig, error: str) -> str:
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
  headers.keep_memory()
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
    targets: bool = False,
) -> Callable[..., dict[str, jax.Array]]:
  """Returns the device's part, (batch, key, train) -> batch; to be jitted.

  `image` becomes float32, (image / 255 - mean) / std, or with `value_range` for
  0 and 255. `label` becomes k-hot
  float32 [batch, classes] where an example has several. In training with mixup
  or CutMix it becomes soft [batch, classes]; else an index stays as it is, and
  so do numbers (`targets`), which mixup blends.
  """
  return mixing.prepare(
      **config.value_scale, mixup_alpha=config.mixup,
      cutmix_alpha=config.cutmix, num_classes=num_classes,
      multi_label=multi_label, targets=targets)


def abstract_batch(
    config: DataConfig, dataset: Dataset, batch_size: int,
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
