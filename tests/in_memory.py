"""Datasets made of arrays."""

import dataclasses

import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data import renumbered
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol


class Arrays(protocol.Source):
  """A source of images and labels."""

  def __init__(self, images, labels):
    self._images, self._labels = images, labels

  def __len__(self):
    return len(self._labels)

  def __getitem__(self, index):
    return {'image': self._images[index], 'label': self._labels[index]}

  def key(self, index):
    return f'image {index}'


@dataclasses.dataclass(frozen=True)
class Numbers(protocol.Source):
  """Numbered examples that are their own labels."""
  length: int

  numbering = ('numbers', 0)

  def __len__(self):
    return self.length

  def __getitem__(self, index):
    return {'image': np.zeros((1, 1, 1), np.uint8), 'label': index}

  def key(self, index):
    return f'numbers {index}'


class Recording(protocol.Source):
  """A source that records in `read` which examples are read."""

  def __init__(self, source):
    self._source = source
    self.read = []
    self.label, self.key = source.label, source.key

  def __len__(self):
    return len(self._source)

  def __getitem__(self, index):
    self.read.append(index)
    return self._source[index]


def opened(splits, **facts):
  """Returns an opened dataset with (images, labels) by split."""
  return protocol.DatasetSplits(
      {name: Arrays(*arrays) for name, arrays in splits.items()}, **facts)


def brightness(count, *, seed=0):
  """Returns grey images and two regression targets, some missing.

  The targets are the brightness in percent plus 1000, and its negative.
  """
  rng = np.random.default_rng(seed)
  images = np.broadcast_to(
      rng.integers(0, 256, (count, 1, 1, 1), np.uint8), (count, 8, 8, 3)).copy()
  level = images[:, 0, 0, 0].astype(np.float32) / 2.55
  labels = np.stack([1000 + level, -level], axis=-1)
  labels[::5, 1] = np.nan
  return images, labels


RARE_LABELS = np.array([0] * 70 + [1] * 25 + [3] * 5)  # No class 2.
RARE_IMAGES = np.broadcast_to(
    np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 2, 2, 3))
RARE = dataset_lib.Dataset(
    name='rare', split='train', source=Arrays(RARE_IMAGES, RARE_LABELS),
    num_classes=4)


def number_classes_backwards(monkeypatch):
  """Makes every source number its classes in reverse."""
  def reversed_classes(*args, open_splits=open_source.open_splits, **options):
    opened = open_splits(*args, **options)
    return dataclasses.replace(
        opened, class_names=opened.class_names[::-1], splits={
            name: renumbered.Renumbered(
                source, tuple(reversed(range(opened.num_classes))))
            for name, source in opened.splits.items()})

  monkeypatch.setattr(open_source, 'open_splits', reversed_classes)
