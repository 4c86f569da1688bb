"""Section `data` of a config: which images, and what is made of them."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

import numpy as np

from vit_jax import schema
from vit_jax.data import label_scaling
from vit_jax.data.augment import ops as ops_lib
from vit_jax.data.images import limits
from vit_jax.data.images import multichannel
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import label_rules as label_rules_lib
from vit_jax.data.sources import shapes as shapes_lib
from vit_jax.data.splits import class_sampling as class_sampling_lib


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
    cache_mib: memory for decoded images, in MiB: those of a small data set are
      then read and decoded once, not in each epoch. Each process of
      `num_workers` has as much. What has no room is read each time.
    shapes: of the source 'shapes'.
  """
  source: str = 'digits'
  data_dir: str = ''
  split: str = 'train'
  target: label_rules_lib.Kind = 'auto'
  table: columns_lib.TableConfig = columns_lib.TableConfig()
  examples_per_class: int | None = None
  num_examples: int | None = None
  fraction: float | None = None
  sampling: class_sampling_lib.Sampling = 'natural'
  exclude: str = ''
  resolution: int | tuple[int, int] = 32
  channels: int = 3
  dtype: multichannel.Dtype = 'uint8'
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
  max_pixels: int = limits.MAX_PIXELS
  mixup: float = 0.0
  cutmix: float = 0.0
  num_workers: int = 0
  num_threads: int = 2
  prefetch: int = 4
  cache_mib: int = 0
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
    label_scaling.check_scale(self.target_mean, self.target_std)
    for name, least in (('mixup', 0), ('cutmix', 0), ('num_workers', 0),
                        ('num_threads', 1), ('prefetch', 1),
                        ('cache_mib', 0), ('max_labels', 1)):
      if getattr(self, name) < least:
        raise ValueError(
            f'{name} must be at least {least}; got {getattr(self, name)}.')
    if not 0 <= self.max_unreadable <= 1:
      raise ValueError(
          'max_unreadable is a share of the images, from 0 to 1; got '
          f'{self.max_unreadable}.')
    if not 1 <= self.max_pixels <= limits.LARGEST:
      raise ValueError(
          f"max_pixels must be from 1 to {limits.LARGEST:,}, Pillow's own "
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
    return ops_lib.height_width(self.resolution)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels of the batch."""
    return (*self.size, self.channels)

  def build_ops(self, *, train: bool) -> tuple[ops_lib.Op, ...]:
    """Returns the operations of training, or of evaluation."""
    return ops_lib.build(
        self.train_ops if train else self.eval_ops, size=self.size,
        where='train_ops' if train else 'eval_ops',
        any_channels=not self.is_picture)


def parse(section: Mapping[str, Any]) -> DataConfig:
  """Parses the section `data`; see `DataConfig` for its keys."""
  return schema.parse(DataConfig, section, where='data')
