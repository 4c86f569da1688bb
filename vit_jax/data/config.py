"""The config section `data`: which images, and their preprocessing."""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any, Literal

import numpy as np

from vit_jax import fields
from vit_jax import registry
from vit_jax import schema
from vit_jax.data import mixture as mixture_lib
from vit_jax.data import value_scale as value_scale_lib
from vit_jax.data.images import decode
from vit_jax.data.images import image_file
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.images import resize as resize_lib
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import files
from vit_jax.data.sources import shapes as shapes_lib
from vit_jax.data.splits import class_sampling
from vit_jax.data.splits import groups as groups_lib
from vit_jax.exceptions import UserError

Scale = float | tuple[float, ...] | Literal['auto', 'measured']
_LEAST_CROP = 0.75  # Of a side; usual crops keep at least that much.


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """The section `data` of a config.

  Attributes:
    source: 'digits', 'shapes', a TFDS name ('cifar10',
      'oxford_iiit_pet:4.0.0'), a path (class folders, a table, Parquet,
      WebDataset tars), or 'hf://datasets/USER/NAME'; docs/data.md.
    mixture: several datasets to train on together, in place of `source` and
      `split`: [{'source': 'a', 'split': 'train', 'weight': 3}, ...];
      docs/data.md.
    val_source: validation data, evaluated as the split `val`. No images of
      `source` are then held out by a hash.
    data_dir: TFDS directory; default: $TFDS_DATA_DIR or ~/tensorflow_datasets.
    split: TFDS split string, for every source: 'train', 'train[:98%]'.
    target: kind of the labels of your files: 'single', 'multi', 'regression',
      'masks', or 'none' for images without labels. By default 'single', but
      labels that look like another kind are an error.
    table: columns of a table with other names than `file_name`, `label` and
      `split`.
    group: images of one group, such as a patient or a scene, are never divided:
      a hold-out, a part of a split and a sample have whole groups. The name of
      a column (tables, Parquet, the Hugging Face Hub, a key of WebDataset's
      JSON) or, for folders of images, a regular expression with one group that
      is searched in each path: '(P\\d+)_'. Shards of `data prepare` keep it.
    divided_groups: 'error' if splits of the data, such as a split column or
      `val_source`, have images of one group; 'allow' makes it a note.
    holdout: fraction of each class held out as `test` if your files have no
      splits.
    examples_per_class: keeps this many examples of each class of `split`, the
      same ones in every run with the same `sample_seed`.
    allow_fewer: whether classes with fewer than `examples_per_class` are kept
      whole; by default, they are an error.
    sample_seed: seed of the choice of `examples_per_class`. A sweep sets it to
      the seed of the run in its final runs.
    num_examples: keeps this many random examples of `split`, the same ones in
      every run; a smaller subset is part of a larger one.
    fraction: like `num_examples`, as a fraction of `split`.
    sampling: frequency of a class in training: 'natural', as in the data;
      'balanced', the same for all; 'sqrt', proportional to the square root of
      its number of examples.
    exclude: file with one key per line of examples of `split` to leave out;
      `main.py deduplicate` writes one.
    resolution: image size in pixels, one side or (height, width); the default
      size of operations. 'auto': that of the weights in `init.checkpoint`, else
      224.
    channels: 1 (grey) or 3 (RGB), converted from any image file; or any other
      number that all files have, such as 13 for Sentinel-2.
    dtype: type of pixels until they reach the device: 'uint8', 'uint16' or
      'float32'.
    value_range: pixel values that become 0 and 1; default: (0, 255), for uint8
      only. Values outside are not clipped.
    train_ops: image operations after decoding, for example
      ({'op': 'inception_crop'}, {'op': 'flip'}).
    eval_ops: image operations for evaluation.
    mean: subtracted on the device from images in [0, 1]; one number or one per
      channel. 'auto': that of the weights in `init.checkpoint`, else 0.5.
      'measured', together with std: measured per channel on 512 training images
      when a run starts, and saved with its checkpoints.
    std: divisor after `mean`. 0.5 and 0.5 give the range [-1, 1].
    target_mean: mean of each regression target; the model learns
      (target - mean) / std. Default: measured when a run starts, and saved.
    target_std: standard deviation of each regression target.
    max_labels: maximum number of labels of an image; the length of label lists.
    unreadable: 'error', or 'skip': training replaces an unreadable image with
      the next readable one, evaluation leaves it out, and both count and list
      it.
    max_pixels: maximum size of an image; larger ones are unreadable. Decoding
      needs 4 to 25 bytes per pixel in each thread.
    mixup: alpha of mixup's Beta distribution; 0 disables it.
    cutmix: alpha of CutMix; with mixup, each batch gets one of both at random.
    num_workers: processes that read and augment; 0 uses threads only, 'auto'
      chooses by the cores and the measured cost of a pass. A script that trains
      with more than 0 needs `if __name__ == '__main__':`.
    num_threads: threads per process. More than two help with slow storage only,
      because of Python's global interpreter lock.
    prefetch: batches that each process prepares ahead; bounds its memory.
    cache_mib: memory for decoded images, in MiB, per process and split, so that
      small datasets decode once.
    shapes: settings of the source 'shapes'.
  """
  source: fields.Both[str] = 'digits'
  mixture: fields.Refused[tuple[mixture_lib.MixtureEntry, ...]] = ()
  val_source: fields.Both[str] = ''
  data_dir: fields.Free[str] = ''
  split: str = 'train'
  target: fields.Both[columns_lib.Kind] = ''
  table: fields.Both[columns_lib.TableConfig] = columns_lib.TableConfig()
  group: fields.Both[str] = ''
  divided_groups: fields.Free[groups_lib.Divided] = 'error'
  holdout: fields.Refused[float] = columns_lib.HOLDOUT
  examples_per_class: int | None = None
  allow_fewer: bool = False
  sample_seed: int = 0
  num_examples: int | None = None
  fraction: float | None = None
  sampling: class_sampling.Sampling = 'natural'
  exclude: str = ''
  resolution: fields.Refused[int | tuple[int, int] | Literal['auto']] = 32
  channels: fields.Both[int] = 3
  dtype: fields.Both[decode.Dtype] = 'uint8'
  value_range: fields.Refused[tuple[float, float] | None] = None
  train_ops: tuple[dict[str, Any], ...] = ({'op': 'resize'},)
  eval_ops: fields.Measured[tuple[dict[str, Any], ...]] = ({'op': 'resize'},)
  mean: fields.Refused[Scale] = 'auto'
  std: fields.Refused[Scale] = 'auto'
  target_mean: fields.Refused[tuple[float, ...]] = ()
  target_std: fields.Refused[tuple[float, ...]] = ()
  max_labels: int = 32
  unreadable: unreadable_lib.Policy = 'error'
  max_pixels: int = image_file.MAX_PIXELS
  mixup: float = 0.0
  cutmix: float = 0.0
  num_workers: fields.Free[int | Literal['auto']] = 0
  num_threads: fields.Free[int] = 2
  prefetch: fields.Free[int] = 4
  cache_mib: fields.Free[int] = 0
  shapes: fields.Both[shapes_lib.ShapesConfig] = shapes_lib.ShapesConfig()

  def __post_init__(self):
    fields.check_range(
        self, 'mixup', 'cutmix', 'cache_mib',
        *('num_workers',) * (self.num_workers != 'auto'))
    fields.check_range(
        self, 'channels', 'num_threads', 'prefetch', 'max_labels',
        'examples_per_class', 'num_examples', low=1)
    fields.check_range(self, 'max_pixels', low=1, most=image_file.LARGEST)
    fields.check_range(self, 'holdout', low=0.001, most=0.9)
    fields.check_range(self, 'fraction', above=0, most=1)
    sizes = (self.examples_per_class, self.num_examples, self.fraction)
    if sizes.count(None) < 2:
      raise UserError(
          'examples_per_class, num_examples and fraction exclude each other. '
          'Give one of them.')
    if self.val_source and self.holdout != columns_lib.HOLDOUT:
      raise UserError(
          'val_source and holdout exclude each other. Give one of them.')
    if self.mixture:
      if self.source == DataConfig.source:
        object.__setattr__(self, 'source', '')
      mixture_lib.mixer().check(self)
    self._check_normalisation()
    self.build_ops(train=True)  # Raises errors in their settings.
    self.build_ops(train=False)

  def _check_normalisation(self) -> None:
    value_scale_lib.check_range(self.value_range, self.dtype)
    for name in ('mean', 'std'):
      value = getattr(self, name)
      if isinstance(value, tuple) and len(value) not in (1, self.channels):
        raise UserError(
            f'{name} must be one number or one for each of the '
            f'{self.channels} channels; got {value}.')
    if (self.mean == 'measured') != (self.std == 'measured'):
      raise UserError(
          "mean and std must both be 'measured', or neither; got "
          f'{self.mean!r} and {self.std!r}.')
    if not isinstance(self.std, str):
      fields.check_range(self, 'std', above=0)
    fields.check_range(self, 'target_mean', low=-math.inf)
    fields.check_range(self, 'target_std', above=0)
    if len(self.target_mean) != len(self.target_std):
      raise UserError(
          'target_mean and target_std must have one number per target, but are '
          f'{self.target_mean} and {self.target_std}. Remove both to measure '
          'them.')

  @property
  def sources(self) -> tuple[str, ...]:
    """The datasets that are trained on."""
    return tuple(dict.fromkeys(
        entry.source for entry in self.mixture)) or (self.source,)

  def own_source(self, source: str) -> str | None:
    """Returns `source` as trained on: None if it is the only one, or ''.

    Paths are compared without their spelling, such as a trailing slash.
    """
    found = next((one for one in self.sources
                  if files.identity(one) == files.identity(source)), source)
    return None if found in ('', self.source) else found

  @property
  def is_picture(self) -> bool:
    """Whether images are 8-bit grey or RGB."""
    return decode.is_picture(channels=self.channels, dtype=self.dtype)

  @property
  def value_scale(self) -> value_scale_lib.ValueScale:
    """Scale of pixels, once measured."""
    if 'measured' in (self.mean, self.std):
      raise UserError('data.mean is not measured yet: call `data.measured`.')
    # Whoever knows weights has replaced 'auto' by theirs.
    mean, std = (0.5 if isinstance(value, str) else value
                 for value in (self.mean, self.std))
    return value_scale_lib.ValueScale(mean, std, self.value_range)

  @property
  def target_scale(self) -> dict[str, tuple[float, ...]]:
    """Scale of regression targets, once measured."""
    return {'target_mean': self.target_mean, 'target_std': self.target_std}

  @property
  def size(self) -> tuple[int, int]:
    """Height and width of the batch."""
    return resize_lib.height_width(
        224 if self.resolution == 'auto' else self.resolution)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels of the batch."""
    return (*self.size, self.channels)

  def decode(self, image: bytes | np.ndarray) -> ops_lib.Picture:
    """Decodes an image; see `decode.decode`."""
    return decode.decode(
        image, channels=self.channels, dtype=self.dtype,
        max_pixels=self.max_pixels)

  def build_ops(self, *, train: bool) -> tuple[ops_lib.Operation, ...]:
    """Returns the image operations of training or evaluation."""
    where = 'train_ops' if train else 'eval_ops'
    return ops_lib.build(
        getattr(self, where), size=self.size, where=where,
        any_channels=not self.is_picture)

  def crop_note(self) -> str:
    """Returns a note if evaluation crops away most of a resized image."""
    sides = [min(op.least) for op in self.build_ops(train=False) if op.least]
    if len(sides) != 2 or sides[1] >= _LEAST_CROP * sides[0]:
      return ''
    return (f'note: evaluation resizes images to {sides[0]} pixels and keeps '
            f'the central {sides[1]} of them: data.eval_ops are for another '
            'resolution. Give the resolution as an argument of the config, '
            f'--config=FILE.py:resolution={self.size[0]}, or set '
            '--config.data.eval_ops.')


def parse(section: Mapping[str, Any]) -> DataConfig:
  """Parses the section `data`, also of earlier versions; see `DataConfig`."""
  earlier = registry.optional(registry.EARLIER_DATA)
  return schema.parse(DataConfig, earlier.translate(
      section) if earlier else section, where='data')
