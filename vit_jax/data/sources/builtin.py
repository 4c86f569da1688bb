"""A dataset that needs no files: scikit-learn's digits."""

import dataclasses
import functools
from typing import Any

from jaxtyping import Integer, UInt8
import numpy as np

from vit_jax.data import config as data_config
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource(protocol.Source):
  """A split in memory; `indices` are positions in the published dataset."""
  name: str
  images: UInt8[np.ndarray, 'examples height width channels']
  labels: Integer[np.ndarray, 'examples']
  indices: Integer[np.ndarray, 'examples']

  def __len__(self) -> int:
    return len(self.labels)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {'image': self.images[index], 'label': int(self.labels[index])}

  def key(self, index: int) -> str:
    return f'{self.name} {self.indices[index]}'


def digits(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Opens the source 'digits', which has no settings."""
  del name, config
  return open_digits()


@functools.cache
def open_digits() -> protocol.DatasetSplits:
  """Returns scikit-learn's 1,797 handwritten digits, 8 x 8 grey pixels.

  Test part of Alpaydin and Kaynak, Optical Recognition of Handwritten Digits,
  UCI (https://doi.org/10.24432/C50P49). It has no official split: every fifth
  digit of each class, in hash order, is `test` (360), the rest `train` (1,437).
  """
  # The import takes 1.7 s.
  from sklearn import datasets as sklearn_datasets  # pylint: disable=g-import-not-at-top
  values, labels = sklearn_datasets.load_digits(return_X_y=True)
  images = np.round(values.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
  order = sorted(
      range(len(labels)),
      key=lambda i: (labels[i], split_strings.stable_hash(f'digits {i}')))
  test = np.sort(order[::5])
  train = np.setdiff1d(np.arange(len(labels)), test)
  return protocol.DatasetSplits(
      {split: ArraySource('digits', images[indices], labels[indices], indices)
       for split, indices in (('train', train), ('test', test))},
      num_classes=10, class_names=tuple(map(str, range(10))))
