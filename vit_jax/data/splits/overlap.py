"""Detects examples that a training split shares with a held-out split."""

import os

from jaxtyping import UInt64
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data.splits import random_subsets


def overlap(one: dataset_lib.Dataset, other: dataset_lib.Dataset) -> bool:
  """Returns whether two selections of a dataset share an example.

  Data that is published under two names counts as different.
  """
  return bool(np.isin(_hashes(one), _hashes(other)).any())


def _hashes(dataset: dataset_lib.Dataset) -> UInt64[np.ndarray, 'examples']:
  """Returns a 64-bit hash that identifies each example.

  Keys of numbered sources include the dataset's name; keys of a folder are
  relative to its path.
  """
  path = os.path.abspath(os.path.expanduser(dataset.name))
  return random_subsets.hash_keys(dataset.source, prefix=f'{path} ')
