"""The examples that a run trains on and evaluates, as sets to compare.

A checkpoint stores, for each set, hashes of the keys and of the labels. So a
resumed run, or an evaluation, finds out which images were trained on, whatever
setting or file has changed. Keys do not depend on the place of a source, so a
dataset that was moved is the same set.

Sets of more than `MAX_KEYS` examples are compared by their number and some of
their keys. Labels of prepared files, which could only be decoded one by one,
are compared by the names and sizes of the files.
"""

import base64
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from jaxtyping import Int64, Shaped, UInt32, UInt64
import numpy as np

from vit_jax.data import dataset as dataset_lib
from vit_jax.data import renumbered
from vit_jax.data.sources import files
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets

MAX_KEYS = 2_000_000
_SAMPLE = 1000  # Keys of larger sets that are compared.
_UNKNOWN = 0  # Hash of a label that is not read.


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleSet:
  """A set of examples.

  Attributes:
    count: number of examples.
    origin: where they come from; '' if the run trains on that source.
    fingerprint: of prepared files and, in a large set, of some keys.
    keys: sorted hashes of the keys; None in a large set.
    labels: hashes of the labels, in the order of `keys`.
    places: index of each key in `dataset`.
    dataset: the open examples; None if the set is read from a checkpoint.
  """
  count: int
  origin: str = ''
  fingerprint: str = ''
  keys: UInt64[np.ndarray, 'keys'] | None = None
  labels: UInt32[np.ndarray, 'keys'] | None = None
  places: Int64[np.ndarray, 'keys'] | None = None
  dataset: dataset_lib.Dataset | None = None

  def equals(self, other: 'ExampleSet') -> bool:
    """Whether the examples and their labels are the same, as far as known."""
    if self.keys is None or other.keys is None:
      return (self.count, self.fingerprint) == (other.count, other.fingerprint)
    return np.array_equal(self.keys, other.keys) and not len(
        self.relabelled(other)) and self.fingerprint == other.fingerprint

  def relabelled(self, other: 'ExampleSet') -> UInt64[np.ndarray, '_']:
    """Returns the keys of both sets whose labels differ."""
    assert self.keys is not None and other.keys is not None
    assert self.labels is not None and other.labels is not None
    both, ours, theirs = np.intersect1d(
        self.keys, other.keys, assume_unique=True, return_indices=True)
    one, two = self.labels[ours], other.labels[theirs]
    return both[(one != two) & (one != _UNKNOWN) & (two != _UNKNOWN)]

  def names(self, keys: UInt64[np.ndarray, '_']) -> list[str]:
    """Returns the keys with these hashes."""
    assert self.keys is not None and self.places is not None
    assert self.dataset is not None
    return [self.dataset.source.key(int(i)) for i in self.places[
        np.searchsorted(self.keys, keys)]]

  def to_plain(self) -> dict[str, Any]:
    """Returns the set as plain data."""
    return {'count': self.count, 'origin': self.origin,
            'fingerprint': self.fingerprint, **{
                name: encode(array) for name, array in (
                    ('keys', self.keys), ('labels', self.labels))
                if array is not None}}

  @classmethod
  def of_plain(cls, plain: Mapping[str, Any]) -> 'ExampleSet':
    """Returns the set of `to_plain`."""
    keys, labels = (
        decode(plain[name], dtype) if name in plain else None
        for name, dtype in (('keys', np.uint64), ('labels', np.uint32)))
    return cls(
        plain['count'], plain['origin'], plain['fingerprint'], keys, labels)


def origin_of(source: str) -> str:
  """Returns a source without links, or without the version of a dataset."""
  return files.identity(source) if files.is_path(source) else (
      source.partition(':')[0])


def of_dataset(
    dataset: dataset_lib.Dataset, *, sources: Sequence[str],
    origin: str = '',
) -> ExampleSet:
  """Returns the set of the examples of an open dataset.

  Args:
    dataset: the dataset.
    sources: `origin_of` the sources of the run. If there are several, the same
      key in two of them is not the same example.
    origin: see `ExampleSet`.
  """
  count = len(dataset)
  leaves = list(split_strings.leaves(dataset.source))
  prints = [_unwrap(leaf)[1].fingerprint for leaf, _ in leaves]
  if count > MAX_KEYS:
    prints += [dataset.source.key(i) for i in range(0, count, count // _SAMPLE)]
  fingerprint = f'{split_strings.stable_hash(chr(0).join(prints)):016x}' if any(
      prints) else ''
  if count > MAX_KEYS:
    return ExampleSet(count, origin, fingerprint, dataset=dataset)
  hashes, labels = [], []
  for leaf, indices in leaves:
    name, origin_source = _unwrap(leaf)
    of_leaf = origin_of(name or dataset.name) if len(sources) > 1 else ''
    hashes.append(subsets.hash_keys(
        split_strings.Subset(((origin_source, indices),)),
        prefix=f'{of_leaf} ' if of_leaf in sources else ''))
    labels.append(
        np.full(len(indices), _UNKNOWN, np.uint32)
        if leaf.numbering is not None or dataset.no_labels else
        _hash_labels(list(leaf.labels_of(indices))))
  keys, places = np.unique(np.concatenate(hashes), return_index=True)
  return ExampleSet(count, origin, fingerprint, keys, np.concatenate(
      labels)[places], places, dataset)


def _hash_labels(
    labels: Sequence[Any]) -> UInt32[np.ndarray, 'examples']:
  """Returns a hash of each label, which is not `_UNKNOWN`."""
  hashes = (
      subsets.hash_numbers('label', np.array(labels, np.int64))
      if all(isinstance(label, int) for label in labels) else
      np.fromiter(map(_hash_array, labels), np.uint64, len(labels)))
  return np.maximum(hashes.astype(np.uint32), 1)


def _hash_array(label: Any) -> int:
  """Returns a hash of regression targets, or of classes in any order."""
  array = np.asarray(label)
  if array.dtype.kind != 'f':
    array = np.sort(array.astype(np.int64))
  return split_strings.stable_hash(array.tobytes())


@dataclasses.dataclass(frozen=True)
class Record:
  """The sets of a run.

  Attributes:
    sources: the sources that are trained on, without links.
    train: the training examples.
    earlier: sorted hashes of further keys, which were trained on before the
      data changed.
    evals: by evaluator, the examples that it measures on and those that it is
      fitted to, if any.
  """
  sources: tuple[str, ...]
  train: ExampleSet
  evals: Mapping[str, tuple[ExampleSet, ...]]
  earlier: UInt64[np.ndarray, '_'] = dataclasses.field(
      default_factory=lambda: np.zeros(0, np.uint64))

  @property
  def trained(self) -> UInt64[np.ndarray, '_'] | None:
    """Sorted hashes of all keys that were trained on; None if unknown."""
    return None if self.train.keys is None else np.sort(
        np.concatenate([self.train.keys, self.earlier]))

  def to_plain(self) -> dict[str, Any]:
    """Returns the record as plain data; equal sets are stored once."""
    sets: list[ExampleSet] = []

    def place(one: ExampleSet) -> int:
      for i, other in enumerate(sets):
        if one.origin == other.origin and one.equals(other):
          return i
      sets.append(one)
      return len(sets) - 1

    places = {'train': place(self.train), 'evals': {
        name: [*map(place, of)] for name, of in self.evals.items()}}
    return {'sources': list(self.sources), **places,
            'earlier': encode(self.earlier),
            'sets': [one.to_plain() for one in sets]}

  @classmethod
  def of_plain(cls, plain: Mapping[str, Any]) -> 'Record':
    """Returns the record of `to_plain`."""
    sets = [*map(ExampleSet.of_plain, plain['sets'])]
    return cls(
        tuple(plain['sources']), sets[plain['train']],
        {name: tuple(sets[i] for i in of)
         for name, of in plain['evals'].items()},
        decode(plain['earlier'], np.uint64))


def encode(array: Shaped[np.ndarray, '_']) -> str:
  """Returns an array as text for JSON."""
  return base64.b64encode(array.tobytes()).decode()


def decode(text: str, dtype: Any) -> Shaped[np.ndarray, '_']:
  """Returns the array of `encode`."""
  return np.frombuffer(base64.b64decode(text, validate=True), dtype)


def _unwrap(source: protocol.Source) -> tuple[str, protocol.Source]:
  """Returns the name of a source in a mixture or '', and the source itself."""
  name = ''
  while isinstance(source, renumbered.Renumbered):
    name, source = source.name or name, source.source
  return name, source
