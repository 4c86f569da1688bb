"""Reads, decodes, transforms and checks an example: one row of a host batch."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Float32, Float64, Int32, UInt8
import numpy as np

from vit_jax import registry
from vit_jax.data import config as data_config
from vit_jax.data import dataset as dataset_lib
from vit_jax.data.images import ops as ops_lib
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import protocol
from vit_jax.exceptions import UserError

HostBatch = dict[str, np.ndarray]


def padding(
    config: data_config.DataConfig, dataset: dataset_lib.Dataset) -> HostBatch:
  """Returns the batch row of no example: zeros, of mask 0."""
  row = {'image': np.zeros(config.image_shape, config.dtype),
         'label': np.zeros((), np.int32), 'mask': np.zeros((), np.float32)}
  if dataset.targets:
    row['label'] = np.full(len(dataset.targets), np.nan, np.float32)
  elif dataset.multi_label:
    row['label'] = np.full(config.max_labels, -1, np.int32)
  if dataset.masks:
    row[protocol.SEGMENTATION] = np.zeros(config.size, np.uint8)
  for name, field in dataset.fields.items():
    row[name] = np.zeros(field.shape, field.np_dtype)
  if config.unreadable == 'skip':
    row[unreadable_lib.KEY] = np.asarray(unreadable_lib.NONE)
  return row


@dataclasses.dataclass(frozen=True, eq=False)
class LoadExample:
  """Maps (index, generator) to a batch row.

  Indices beyond the dataset give `padding`.
  """
  dataset: dataset_lib.Dataset
  config: data_config.DataConfig
  train: bool
  ops: tuple[ops_lib.Operation, ...] = dataclasses.field(init=False)
  masks: Any = dataclasses.field(init=False)  # A `MaskReader`, if it has masks.

  def __post_init__(self):
    object.__setattr__(self, 'ops', self.config.build_ops(train=self.train))
    object.__setattr__(self, 'masks', self.dataset.masks and registry.load(
        registry.MASKS).MaskReader(
            self.dataset, self.config, self.ops, train=self.train))

  def __call__(self, index: int, rng: np.random.Generator) -> HostBatch:
    row = padding(self.config, self.dataset)
    if index >= self.dataset.num_examples:
      return row
    found, unreadable = self._read_next(
        index, self.config.unreadable, replace=self.train)
    if unreadable:
      row[unreadable_lib.KEY] = np.asarray(index)
    if found is None:
      return row
    read, image, example = found
    with self.dataset.naming(read):
      if self.masks:
        image, row[protocol.SEGMENTATION] = self.masks.apply(
            example, image, self._generator(rng))
        row['image'] = ops_lib.to_array(image, size=self.config.size)
      else:
        row['image'] = self.apply_ops(image, rng)
      if not self.dataset.is_unlabelled:  # Labels may be -1.
        row['label'] = self._encode_label(example['label'])
      row['mask'] = np.asarray(1, np.float32)
      return row | {name: example[name] for name in self.dataset.fields}

  def image(self, index: int) -> np.ndarray:
    """Returns the pixels of an example after the operations."""
    index, image, _ = self._readable(index)
    with self.dataset.naming(index):
      return self.apply_ops(image, np.random.default_rng(0))

  def original(self, index: int) -> tuple[np.ndarray, str]:
    """Returns the pixels of an example as stored, and its name."""
    index, image, _ = self._readable(index)
    return ops_lib.pixels(image), self.dataset.source.key(index)

  def original_mask(self, index: int) -> UInt8[np.ndarray, 'height width']:
    """Returns the mask of an example at the size of the image as stored."""
    index, image, example = self._readable(index)
    with self.dataset.naming(index):
      return self.masks.read_original(example, image.size)

  def _readable(self, index: int) -> tuple[int, ops_lib.Picture, Any]:
    """Returns index, image and record of an example, or of its replacement."""
    found, _ = self._read_next(index, self.config.unreadable, replace=True)
    assert found is not None
    return found

  def find_unreadable(self, index: int) -> list[unreadable_lib.Unreadable]:
    """Returns example `index` and, in training, its unreadable successors."""
    return self._read_next(index, 'skip', replace=self.train)[1]

  def _read_next(
      self, index: int, policy: unreadable_lib.Policy, *, replace: bool,
  ) -> tuple[tuple[int, ops_lib.Picture, Any] | None,
             list[unreadable_lib.Unreadable]]:
    """Returns index, image and record of an example, and unreadable examples.

    The policy 'skip' replaces an unreadable example with the next readable one
    or, if not `replace`, with None.
    """
    unreadable: list[unreadable_lib.Unreadable] = []
    count = self.dataset.num_examples
    tries = min(unreadable_lib.MAX_REPLACEMENTS, count - 1) * replace
    for at in range(index, index + 1 + tries):
      try:
        return (at % count, *self._read(at % count)), unreadable
      except unreadable_lib.UnreadableError as error:
        if policy == 'error':
          raise unreadable_lib.UnreadableError(
              f'{str(error).rstrip(".")}. Repair or remove it, or skip '
              'unreadable images with --config.data.unreadable=skip (except '
              'training images of few-shot evaluation or probes); `data '
              'check` lists them.') from error
        unreadable.append(unreadable_lib.Unreadable(
            self.dataset.title,
            self.dataset.source.key(at % count), str(error)))
    if not replace:
      return None, unreadable
    raise UserError(
        f'{unreadable[0].error} The {tries} examples after it are unreadable '
        'as well; data.unreadable=skip only handles occasional ones.')

  def _read(self, index: int) -> tuple[ops_lib.Picture, Any]:
    """Returns the decoded image of an example, and its other fields."""
    with self.dataset.naming(index, kind=unreadable_lib.UnreadableError):
      cache, max_bytes = self.dataset.cache, self.config.cache_mib * 2**20
      example = cache.get(index) or self.dataset[index]
      image = self.config.decode(example['image'])
      # Masks and fields are not cached.
      if max_bytes and index not in cache and not (
          self.dataset.masks or self.dataset.fields):
        pixels = ops_lib.pixels(image)
        if cache.num_bytes + pixels.nbytes <= max_bytes:
          cache[index] = {'image': pixels, 'label': example['label']}
          cache.num_bytes += pixels.nbytes
      return image, example

  def _encode_label(
      self, label: Any,
  ) -> Int32[np.ndarray, '...'] | Float32[np.ndarray, 'targets']:
    """Returns a class index, a list padded with -1, or scaled targets."""
    if self.dataset.targets:
      values = to_vector(label, self.dataset.targets)  # NaN stays NaN.
      return ((values - self.config.target_mean)
              / self.config.target_std).astype(np.float32)
    indices = np.unique(np.asarray(label, np.int64))
    num_classes, max_labels = self.dataset.num_classes, self.config.max_labels
    invalid = indices[(indices < 0) | (indices >= num_classes)]
    if invalid.size:
      raise UserError(
          f'it has the label {invalid[0]}, but there are {num_classes:,} '
          'classes, numbered from 0.')
    if not self.dataset.multi_label:
      return np.asarray(label, np.int32)
    if len(indices) > max_labels:
      raise UserError(
          f'it has {len(indices)} labels, but data.max_labels is {max_labels}. '
          f'Use --config.data.max_labels={len(indices)} or more.')
    padded = np.full(max_labels, -1, np.int32)
    padded[:len(indices)] = indices
    return padded

  def apply_ops(
      self, image: ops_lib.Picture, rng: np.random.Generator,
  ) -> np.ndarray:
    """Returns the pixels of an image after the operations."""
    rng = self._generator(rng)
    for op in self.ops:
      image = op(image, rng)
    return ops_lib.to_array(image, size=self.config.size)

  def _generator(self, rng: np.random.Generator) -> np.random.Generator:
    """Returns the generator of the operations of an example."""
    # In evaluation the same for every image, as in predictions.
    return rng if self.train else np.random.default_rng(0)


def to_vector(
    label: Any, targets: Sequence[str]) -> Float64[np.ndarray, 'targets']:
  """Returns a label as a vector; raises UserError if it is invalid."""
  values = np.asarray(label, np.float64)
  if values.shape != (len(targets),):
    raise UserError(
        f'its label has the shape {values.shape}, but there are '
        f'{len(targets)} targets: {", ".join(targets)}.')
  if np.isinf(values).any():
    raise UserError(
        f'its label {values.tolist()} is not finite. Use NaN or an empty cell '
        'for a missing value.')
  return values
