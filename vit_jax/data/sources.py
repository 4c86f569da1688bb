"""Where examples come from: random access to one split of one data set.

A source knows its length, gives example i as {'image': bytes of a file or
uint8 pixels, 'label': class index or k-hot vector}, the label alone (without
decoding anything), and a key that names the example in messages. Sources hold
paths and small tables only: they travel to worker processes, and opening one
reads no image.
"""

import bisect
from collections.abc import Mapping
import dataclasses
import functools
import hashlib
import json
import os
import re
import types
import typing
from typing import Any, Protocol

from etils import epath
import numpy as np

from vit_jax import records
from vit_jax.data import datasets
from vit_jax.data import shapes

IMAGE_SUFFIXES = frozenset({
    '.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.apng', '.webp', '.bmp', '.gif',
    '.ppm', '.pgm', '.pbm', '.tif', '.tiff', '.avif', '.jp2'})

# Of a folder without splits, the share of images that `test` gets.
FOLDER_TEST_PERCENT = 10


@typing.runtime_checkable
class Source(Protocol):
  """One split, by index."""

  def __len__(self) -> int:
    ...

  def __getitem__(self, index: int) -> dict[str, Any]:
    ...

  def label(self, index: int) -> Any:
    ...

  def key(self, index: int) -> str:
    ...


@dataclasses.dataclass(frozen=True)
class Opened:
  """A data set with all its splits.

  Attributes:
    splits: sources by name.
    num_classes: entries of a k-hot label, or one more than the largest index.
    class_names: of the classes in order, where known.
    multi_label: labels are k-hot vectors.
    eval_split: the split that published results are on.
  """
  splits: Mapping[str, Source]
  num_classes: int
  class_names: tuple[str, ...] | None = None
  multi_label: bool = False
  eval_split: str = 'test'


def open_source(
    name: str, *, data_dir: str, shapes_config: shapes.ShapesConfig,
    size: tuple[int, int],
) -> Opened:
  """Opens a data set by the name that `data.source` gives.

  Args:
    name: 'digits', 'shapes', a folder, or a TFDS name. A folder is what
      begins with '/', './', '../' or '~', has '://' in it, or exists.
    data_dir: TFDS directory.
    shapes_config: of 'shapes'.
    size: height and width that 'shapes' are drawn in by default.

  Raises:
    ValueError: if there is no such data set, with what to do about it.
  """
  if name == 'digits':
    return _open_digits()
  if name == 'shapes':
    return _open_shapes(shapes_config, size)
  if _is_folder(name):
    return _open_folder(epath.Path(name).expanduser())
  return _open_tfds(name, data_dir)


def _is_folder(name: str) -> bool:
  if name.startswith(('/', './', '../', '~')) or name == '.' or '://' in name:
    return True
  known = name.split(':')[0].split('/')[0] in datasets.DATASETS
  return not known and epath.Path(name).is_dir()


def stable_hash(text: str) -> int:
  """Returns 64 bits that are the same on every machine, unlike `hash`."""
  return int.from_bytes(
      hashlib.blake2b(text.encode(), digest_size=8).digest(), 'little')


@dataclasses.dataclass(frozen=True)
class Expected:
  """A split that is known of, but not at hand: a length to plan with."""
  name: str
  num_examples: int

  def __len__(self) -> int:
    return self.num_examples

  def __getitem__(self, index: int) -> dict[str, Any]:
    raise ValueError(f'{self.name} was only planned with, not opened.')

  def label(self, index: int) -> Any:
    return self[index]

  def key(self, index: int) -> str:
    return str(index)


def expect_source(name: str) -> Opened:
  """Returns what the table says of a data set, without looking for its files.

  Raises:
    ValueError: if the table does not hold its sizes.
  """
  row = datasets.facts(name)
  if not row.num_examples or row.num_classes is None:
    known = [n for n, r in datasets.DATASETS.items() if r.num_examples]
    raise ValueError(
        f'The sizes of {name!r} are not in the table of data sets '
        f'(vit_jax/data/datasets.py).{records.nearest(name, known)} Known: '
        f'{", ".join(known)}.')
  return Opened(
      {split: Expected(name, count)
       for split, count in row.num_examples.items()},
      row.num_classes, multi_label=bool(row.multi_label),
      eval_split=row.eval_split)


# ------------------------------------------------------- selections of examples


@dataclasses.dataclass(frozen=True)
class Concatenated:
  """Ranges of splits in a row: what a split string such as 'a[:10]+b' means."""
  parts: tuple[tuple[Source, int, int], ...]  # source, first, last + 1

  @functools.cached_property
  def _ends(self) -> list[int]:
    return np.cumsum([last - first for _, first, last in self.parts]).tolist()

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> dict[str, Any]:
    source, i = self._find(index)
    return source[i]

  def label(self, index: int) -> Any:
    source, i = self._find(index)
    return source.label(i)

  def key(self, index: int) -> str:
    source, i = self._find(index)
    return source.key(i)

  def _find(self, index: int) -> tuple[Source, int]:
    if not 0 <= index < len(self):
      raise IndexError(f'Example {index} of {len(self)}.')
    part = bisect.bisect_right(self._ends, index)
    source, _, last = self.parts[part]
    return source, last - (self._ends[part] - index)


@dataclasses.dataclass(frozen=True, eq=False)
class Subset:
  """Chosen examples of a source, in the source's order."""
  source: Source
  indices: np.ndarray

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[int(self.indices[index])]

  def label(self, index: int) -> Any:
    return self.source.label(int(self.indices[index]))

  def key(self, index: int) -> str:
    return self.source.key(int(self.indices[index]))


def select_split(opened: Opened, split: str, *, name: str) -> Source:
  """Returns the examples that a TFDS split string selects.

  Args:
    opened: the data set.
    split: for example 'train', 'train[:98%]', 'train[:800]+validation[:200]'
      (https://www.tensorflow.org/datasets/splits).
    name: of the data set, for messages.

  Raises:
    ValueError: for a string that is no split, an unknown split or no examples.
  """
  if split in opened.splits:
    source = opened.splits[split]
  else:
    source = Concatenated(tuple(
        (opened.splits[part], first, last)
        for part, first, last in _parse_split(opened.splits, split, name)))
  if not len(source):
    raise ValueError(f'The split {split!r} of {name} has no examples.')
  return source


def _parse_split(
    splits: Mapping[str, Source], split: str, name: str,
) -> list[tuple[str, int, int]]:
  if 'shard' in split:
    raise ValueError(
        f'The split {split!r} of {name} counts in shards, which depend on how '
        'the files were written. Count in examples or in percent.')
  for part in split.split('+'):
    records.check_name(
        part.split('[')[0].strip(), list(splits), what=f'split of {name}')
  tfds = _import_tfds()
  # All that the parser asks of a split is its length.
  lengths = {key: types.SimpleNamespace(num_examples=len(source))
             for key, source in splits.items()}
  try:
    absolute = tfds.core.ReadInstruction.from_spec(split).to_absolute(lengths)
  except ValueError as error:
    raise ValueError(
        f'Cannot read the split {split!r} of {name}: '
        f'{str(error).splitlines()[0]} Write for example "train", '
        '"train[:98%]", "train[100:200]" or "train+test". Lengths: '
        + ', '.join(f'{k} {len(v):,}' for k, v in splits.items()) + '.'
    ) from error
  return [
      (a.splitname, a.from_ or 0, len(splits[a.splitname]) if a.to is None
       else a.to) for a in absolute]


def select_per_class(source: Source, count: int, *, name: str) -> Subset:
  """Returns `count` examples of each class, chosen by a hash of their keys.

  The choice depends on the examples alone: no seed, and the first ten are
  among the first twenty. Reads every label once.

  Raises:
    ValueError: if a class has fewer, or labels are not one class each.
  """
  by_class: dict[int, list[tuple[int, int]]] = {}
  for index in range(len(source)):
    label = source.label(index)
    if np.ndim(label):
      raise ValueError(
          f'examples_per_class needs one label per image, but {name} has '
          'several. Take a part of the split instead, such as "train[:1000]".')
    by_class.setdefault(int(label), []).append(
        (stable_hash(source.key(index)), index))
  few = {label: len(entries) for label, entries in sorted(by_class.items())
         if len(entries) < count}
  if few:
    raise ValueError(
        f'examples_per_class is {count}, but {name} has fewer of some classes '
        f'(class: examples): {few}.')
  chosen = [index for entries in by_class.values()
            for _, index in sorted(entries)[:count]]
  return Subset(source, np.sort(np.array(chosen)))


# -------------------------------------------------------------------- embedded


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays:
  """A split that fits into memory."""
  name: str
  images: np.ndarray  # uint8 [examples, height, width, channels]
  labels: np.ndarray  # [examples]
  indices: np.ndarray  # of each example in the data set as published

  def __len__(self) -> int:
    return len(self.labels)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {'image': self.images[index], 'label': int(self.labels[index])}

  def label(self, index: int) -> int:
    return int(self.labels[index])

  def key(self, index: int) -> str:
    return f'{self.name} {self.indices[index]}'


@functools.cache
def _open_digits() -> Opened:
  """Returns scikit-learn's 1,797 real handwritten digits, 8 x 8 grey.

  Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI
  (https://doi.org/10.24432/C50P49), its test part. There is no official split
  of it: every fifth of each class, in the order of a hash, is `test` (360);
  the others are `train` (1,437).
  """
  from sklearn import datasets as sklearn_datasets  # pylint: disable=g-import-not-at-top
  # Its 1.7 s of imports are paid only where digits are read.
  values, labels = sklearn_datasets.load_digits(return_X_y=True)
  images = np.round(values.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
  order = sorted(
      range(len(labels)),
      key=lambda i: (labels[i], stable_hash(f'digits {i}')))
  test = np.sort(order[::5])
  train = np.setdiff1d(np.arange(len(labels)), test)
  splits = {
      split: Arrays('digits', images[indices], labels[indices], indices)
      for split, indices in (('train', train), ('test', test))}
  return Opened(splits, 10, tuple(str(digit) for digit in range(10)))


def _open_shapes(
    config: shapes.ShapesConfig, size: tuple[int, int]) -> Opened:
  if config.size is not None:
    size = ((config.size, config.size) if isinstance(config.size, int)
            else config.size)
  multi = config.label == 'multi'
  names = shapes.class_names(config)
  return Opened(shapes.splits(config, size=size), len(names), names,
                multi_label=multi)


# --------------------------------------------------------------- image folders


@dataclasses.dataclass(frozen=True, eq=False)
class Files:
  """Image files with a class each."""
  root: str
  paths: tuple[str, ...]  # relative to the root, sorted
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.paths)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {'image': (epath.Path(self.root) / self.paths[index]).read_bytes(),
            'label': int(self.labels[index])}

  def label(self, index: int) -> int:
    return int(self.labels[index])

  def key(self, index: int) -> str:
    return self.paths[index]


def _open_folder(root: epath.Path) -> Opened:
  """Opens a folder of images in either of the usual layouts.

  - `train/class/*.jpg`, beside other splits (`test`, `val`, ...) of any name;
  - `class/*.jpg`: split by a hash of the relative path, which no added or
    removed file changes: 10 % are `test`, the rest is `train`.

  Classes are numbered in the sorted order of their names, over all splits.
  Images may lie in deeper folders within a class. Hidden files and files that
  are no images by their suffix (in any case) are passed over.
  """
  if not root.is_dir():
    raise ValueError(
        f'There is no folder {root} (data.source). Expected '
        f'{root}/train/CLASS/*.jpg, or {root}/CLASS/*.jpg.')
  folders = _subfolders(root)
  if 'train' in folders and _subfolders(root / 'train'):
    files = {split: _list_split(root, split) for split in folders}
    files = {split: found for split, found in files.items() if found}
  else:
    everything = _list_split(root, '')
    files = {'train': [], 'test': []}
    for path, name in everything:
      is_test = stable_hash(path) % 100 < FOLDER_TEST_PERCENT
      files['test' if is_test else 'train'].append((path, name))
  names = sorted({name for found in files.values() for _, name in found})
  if not names:
    there = ', '.join(sorted(p.name for p in root.iterdir())[:8])
    raise ValueError(
        f'Found no images in {root}. Expected {root}/train/CLASS/*.jpg, or '
        f'{root}/CLASS/*.jpg, with one of the suffixes '
        f'{" ".join(sorted(IMAGE_SUFFIXES))}. It holds: {there or "nothing"}.')
  number = {name: i for i, name in enumerate(names)}
  splits = {
      split: Files(os.fspath(root), tuple(path for path, _ in found),
                   np.array([number[name] for _, name in found], np.int32))
      for split, found in files.items()}
  return Opened(
      splits, len(names), tuple(names),
      eval_split=next((s for s in ('test', 'val', 'validation', 'valid')
                       if s in splits), 'train'))


def _subfolders(path: epath.Path) -> list[str]:
  return sorted(p.name for p in path.iterdir()
                if p.is_dir() and not p.name.startswith('.'))


def _list_split(root: epath.Path, split: str) -> list[tuple[str, str]]:
  """Returns (path relative to the root, class) of a split's images, sorted."""
  folder = root / split if split else root
  found = []
  for name in _subfolders(folder):
    relative = f'{split}/{name}' if split else name
    found += [(path, name) for path in _list_images(root, relative)]
  return found


def _list_images(root: epath.Path, relative: str) -> list[str]:
  paths = []
  for path in sorted((root / relative).iterdir(), key=lambda p: p.name):
    if path.name.startswith('.'):
      continue
    below = f'{relative}/{path.name}'
    # The suffix first: to ask for the kind of each file is slow on a network.
    if path.suffix.lower() in IMAGE_SUFFIXES:
      paths.append(below)
    elif not path.suffix and path.is_dir():
      paths += _list_images(root, below)
  return paths


# -------------------------------------------------------- TensorFlow Datasets


@dataclasses.dataclass(frozen=True, eq=False)
class Tfds:
  """A split that TensorFlow Datasets prepared as ArrayRecord files.

  Attributes:
    name: data set and split, for messages.
    records: TFDS's own random access; images come as the bytes of their file.
    image: the image's feature.
    label_feature: the label's.
    num_classes: length of a k-hot label, or None for a class index.
  """
  name: str
  records: Any
  image: str
  label_feature: str
  num_classes: int | None

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.records[index]
    return {'image': example[self.image], 'label': self._label(example)}

  def label(self, index: int) -> Any:
    return self._label(self.records[index])

  def key(self, index: int) -> str:
    return f'{self.name} {index}'

  def _label(self, example: Mapping[str, Any]) -> Any:
    value = example[self.label_feature]
    if self.num_classes is None:
      return int(value)
    label = np.zeros(self.num_classes, np.float32)
    label[np.asarray(value, np.int64)] = 1
    return label


def _import_tfds() -> Any:
  """Imports TFDS here only: it takes a while, and not every source needs it."""
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  return tfds


def _open_tfds(name: str, data_dir: str) -> Opened:
  root = epath.Path(
      data_dir or os.environ.get('TFDS_DATA_DIR')
      or '~/tensorflow_datasets').expanduser()
  folder = _find_version(name, root)
  _check_format(folder)
  tfds = _import_tfds()
  # From the files alone: the code that once prepared them needs TensorFlow.
  builder = tfds.builder_from_directory(folder)
  facts = datasets.facts(name)
  features = builder.info.features
  image = _feature(features, facts.image, name=name)
  label = _feature(
      features, facts.label or ('label' if 'label' in features else 'labels'),
      name=name)
  multi_label, num_classes, names = _label_facts(
      features[label], facts, what=f'{name}.{label}')
  splits = {
      split: Tfds(
          f'{name} {split}',
          builder.as_data_source(
              split, decoders={image: tfds.decode.SkipDecoding()},
              file_format='array_record'),
          image, label, num_classes if multi_label else None)
      for split in builder.info.splits}
  return Opened(splits, num_classes, names, multi_label, facts.eval_split)


def _feature(features: Any, feature: str, *, name: str) -> str:
  return records.check_name(
      feature, list(features), what=f'feature of {name}')


def _label_facts(
    feature: Any, facts: datasets.DatasetFacts, *, what: str,
) -> tuple[bool, int, tuple[str, ...] | None]:
  """Returns (multi_label, num_classes, class_names) of a TFDS feature."""
  entry = getattr(feature, 'feature', feature)  # Of a sequence, its element.
  multi_label = facts.multi_label
  if multi_label is None:
    multi_label = entry is not feature
  num_classes = facts.num_classes or getattr(entry, 'num_classes', None)
  if num_classes is None:
    raise ValueError(
        f'The feature {what} is {feature!r}, which does not say how many '
        'classes there are. Add a row to vit_jax/data/datasets.py.')
  names = None
  # Where no names were given, TFDS makes up '0', '1', ...: no names at all.
  if getattr(entry, 'names', None) and any(
      not n.isdigit() for n in entry.names):
    names = tuple(entry.names)
  return multi_label, num_classes, names


def _find_version(name: str, root: epath.Path) -> epath.Path:
  """Returns the folder `root/name[/config]/version`, by default the newest.

  Raises:
    ValueError: if there is none, with the command that prepares it.
  """
  path, _, version = name.partition(':')
  folder = root / path
  found = _versions(folder)
  if not found and folder.is_dir():
    configs = {p: _versions(folder / p) for p in _subfolders(folder)}
    configs = {p: versions for p, versions in configs.items() if versions}
    if len(configs) > 1:
      raise ValueError(
          f'{path} has several configs in {root}; write one of '
          + ', '.join(f'{path}/{config}' for config in configs) + '.')
    if configs:
      config, found = configs.popitem()
      folder = folder / config
  pattern = re.compile(
      re.escape(version or '*').replace(r'\*', '.*'))
  matching = [v for v in found if pattern.fullmatch(v)]
  if matching:
    return folder / matching[-1]
  if found:
    raise ValueError(
        f'{path} is prepared in {folder} in the version(s) '
        f'{", ".join(found)}, not in {version}.')
  here = ', '.join(_subfolders(root)) if root.is_dir() else 'no such directory'
  raise ValueError(
      f'No data set {name!r} in {root} (there: {here or "nothing"}).'
      f'{records.nearest(path, [*datasets.DATASETS])} '
      'Prepare it once, on any machine, with\n'
      '  pip install tensorflow tensorflow-datasets\n'
      f'  tfds build {name} --data_dir={root} --file_format=array_record\n'
      'or give the directory that has it as --config.data.data_dir=DIR. '
      'For a folder of images, write its path with a slash: ./my_images.')


def _versions(folder: epath.Path) -> list[str]:
  """Returns the prepared versions below a folder, oldest first."""
  if not folder.is_dir():
    return []
  found = [p for p in _subfolders(folder) if re.fullmatch(r'\d+\.\d+\.\d+', p)
           and (folder / p / 'dataset_info.json').exists()]
  return sorted(found, key=lambda v: tuple(int(n) for n in v.split('.')))


def _check_format(folder: epath.Path) -> None:
  """Raises where the files are not ArrayRecord, with the command to convert."""
  info = json.loads((folder / 'dataset_info.json').read_text())
  # One directory can hold several formats: a conversion in place adds one.
  formats = [info.get('fileFormat', 'tfrecord'),
             *info.get('alternativeFileFormats', ())]
  if 'array_record' in formats:
    return
  raise ValueError(
      f'{folder} holds {" and ".join(formats)} files, which have '
      'no random access; training reads ArrayRecord. Convert them once (adds '
      'files beside the others) with\n'
      '  pip install tensorflow tensorflow-datasets\n'
      f'  tfds convert_format --dataset_version_dir={folder} '
      '--out_file_format=array_record')
