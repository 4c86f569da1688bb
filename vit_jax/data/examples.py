"""One row of a batch: an example is read, decoded, augmented and checked."""

from collections.abc import Generator
import contextlib
import dataclasses
from typing import Any

from jaxtyping import Float32, Int32
import numpy as np

from vit_jax.data import config as config_lib
from vit_jax.data import dataset as dataset_lib
from vit_jax.data import label_scaling
from vit_jax.data.augment import ops as ops_lib
from vit_jax.data.images import decode
from vit_jax.data.images import multichannel
from vit_jax.data.images import unreadable as unreadable_lib

HostBatch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
  """An example as it was read.

  Attributes:
    label: as its source has it.
    picture: its pixels.
  """
  label: Any
  picture: ops_lib.Picture


@dataclasses.dataclass(frozen=True, eq=False)
class Load:
  """Makes row `index` of a batch: read, decode, augment, check.

  Indices beyond the data set are padding: zeros, with mask 0.
  """
  dataset: dataset_lib.Dataset
  config: config_lib.DataConfig
  train: bool
  ops: tuple[ops_lib.Op, ...] = dataclasses.field(init=False)

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
      read = self._read(index)
    except unreadable_lib.UnreadableError as error:
      if self.policy == 'error':
        raise self._advised(error) from error
      found = index
      if not self.train:
        return self._padding(found)
      at, read = self._next(index, error)
    with self._named(at):
      return self._row(
          self._augmented(read.picture, rng), self._label(read.label), mask=1,
          found=found)

  def image(self, index: int) -> np.ndarray:
    """Returns the pixels of an example, where nothing is random."""
    rng = np.random.default_rng(0)
    try:
      read = self._read(index)
    except unreadable_lib.UnreadableError as error:
      if self.config.unreadable == 'error':
        raise self._advised(error) from error
      index, read = self._next(index, error)
    with self._named(index):
      return self._augmented(read.picture, rng)

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

  def _next(self, index: int, error: ValueError) -> tuple[int, Reading]:
    """Returns the next example that can be read, and its index."""
    count = self.dataset.num_examples
    tries = min(unreadable_lib.TRIES, count - 1)
    for at in range(index + 1, index + 1 + tries):
      with contextlib.suppress(unreadable_lib.UnreadableError):
        return at % count, self._read(at % count)
    raise ValueError(
        f'{error} Nor can the {tries} examples after it be read: '
        'data.unreadable=skip is for a few.') from error

  def _advised(
      self, error: unreadable_lib.UnreadableError,
  ) -> unreadable_lib.UnreadableError:
    """Returns the error with what can be done, for it ends the run."""
    skip = ('go on without such images by --config.data.unreadable=skip'
            if self.train else 'leave such images out of evaluations (but for '
            'few-shot probes) by --config.data.eval_unreadable=skip')
    return unreadable_lib.UnreadableError(
        f'{error} Remove it, or {skip}; `data check` names all of them.')

  def _read(self, index: int) -> Reading:
    """Reads and decodes an example."""
    with self._named(index, bad=unreadable_lib.UnreadableError):
      cache, room = self.dataset.cache, self.config.cache_mib * 2**20
      held = cache.get(index) if room else None
      example = held or self.dataset[index]
      label = example['label']
      with unreadable_lib.named_as_before(example):
        picture = self._decoded(example['image'])
      if room and not held:
        cache.put(index, label, ops_lib.pixels(picture), max_bytes=room)
      return Reading(label, picture)

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
      return label_scaling.standardise(
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

  def _decoded(self, data: bytes | np.ndarray) -> ops_lib.Picture:
    config = self.config
    if config.is_picture:
      return decode.decode(
          data, channels=config.channels, max_pixels=config.max_pixels)
    return multichannel.decode(
        data, channels=config.channels, dtype=config.dtype,
        max_pixels=config.max_pixels)

  def _augmented(
      self, image: ops_lib.Picture, rng: np.random.Generator) -> np.ndarray:
    for op in self.ops:
      image = op(image, rng)
    return ops_lib.to_array(image, size=self.config.size)
