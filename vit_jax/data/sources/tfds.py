"""Data sets that TensorFlow Datasets prepared, read without TensorFlow."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import math
import os
import re
from typing import Any

from etils import epath
import numpy as np

from vit_jax import schema
from vit_jax.data import known_datasets
from vit_jax.data.images import unreadable
from vit_jax.data.sources import image_files
from vit_jax.data.sources import protocol
from vit_jax.data.sources import tfrecords
from vit_jax.data.splits import split_strings as split_strings_lib


@dataclasses.dataclass(frozen=True)
class _Label:
  """What labels are; see `protocol.DatasetSplits`."""
  multi_label: bool
  num_classes: int
  names: tuple[str, ...] | None = None
  targets: tuple[str, ...] = ()

  def of(self, value: Any) -> Any:
    if self.targets:
      return np.atleast_1d(np.asarray(value, np.float32))
    return np.asarray(value) if self.multi_label else int(value)


@dataclasses.dataclass(frozen=True, eq=False)
class Tfds:
  """A split that TensorFlow Datasets prepared.

  Attributes:
    name: data set and split, for messages.
    records: its examples, by index; images come as the bytes of their file.
    image: the image's feature.
    label_feature: the label's.
    label_facts: what a label is.
  """
  name: str
  records: Any
  image: str
  label_feature: str
  label_facts: _Label

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    example = self.records[index]
    found = {'image': example[self.image], 'label': self._label(example)}
    if 'file_name' in example:  # Of ImageNet, which other labels go by.
      found['file_name'] = bytes(example['file_name']).decode()
    # Of `data prepare`: what it was called before. Some have a number there.
    if isinstance(example.get('key'), bytes):
      found[unreadable.PREPARED_FROM] = example['key'].decode(errors='replace')
    return found

  def label(self, index: int) -> Any:
    return self._label(self.records[index])

  def key(self, index: int) -> str:
    return f'{self.name} {index}'

  @property
  def numbering(self) -> tuple[str, int]:
    return self.name, 0

  def _label(self, example: Mapping[str, Any]) -> Any:
    return self.label_facts.of(example[self.label_feature])


class NotPrepared(ValueError):
  """A data set is not there, or not in a form that can be read.

  Attributes:
    command: what prepares or converts it.
  """

  def __init__(self, message: str, command: str):
    super().__init__(message)
    self.command = command


def find(name: str, data_dir: str) -> epath.Path:
  """Returns the folder of 'name[/config][:version]', a '*' for any number.

  Raises:
    NotPrepared: if it is not in the directory, or in TFDS's own where that is
      '', or in files that have no random access.
  """
  root = epath.Path(
      data_dir or os.environ.get('TFDS_DATA_DIR')
      or '~/tensorflow_datasets').expanduser()
  folder = _find_version(name, root)
  _format(folder)
  return folder


def open_records(
    name: str, data_dir: str, *, undecoded: Sequence[str],
) -> dict[str, Any]:
  """Returns random access to each split: examples with all features.

  Args:
    name: see `find`.
    data_dir: see `find`.
    undecoded: features, where there are such, to leave as the bytes of a file.
  """
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  folder = find(name, data_dir)
  builder = tfds.builder_from_directory(folder)
  decoders = {feature: tfds.decode.SkipDecoding() for feature in undecoded
              if feature in builder.info.features}
  return _random_access(builder, folder, decoders)


def _random_access(
    builder: Any, folder: epath.Path, decoders: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the examples of each split."""
  if _format(folder) == 'array_record':
    # Of a split without examples, it would not read even the others.
    return {split: builder.as_data_source(
        split, decoders=decoders, file_format='array_record')
            if info.num_examples else ()
            for split, info in builder.info.splits.items()}
  return {split: tfrecords.Examples(
      tfrecords.open_records(info.filepaths, counts=info.shard_lengths),
      builder.info.features, decoders)
          for split, info in builder.info.splits.items()}


def open_tfds(name: str, data_dir: str) -> protocol.DatasetSplits:
  """Opens 'name[/config][:version]' in a directory, or in TFDS's own.

  Raises:
    ValueError: if it is not there or not in files that can be read, with the
      command that prepares or converts it.
  """
  return _open(find(name, data_dir), name)


def open_folder(folder: epath.Path) -> protocol.DatasetSplits:
  """Opens a folder that holds a `dataset_info.json`, or versions that do."""
  if not (folder / 'dataset_info.json').exists():
    folder = folder / _versions(folder)[-1]
  _format(folder)
  info = json.loads((folder / 'dataset_info.json').read_text())
  name = info.get('name') or folder.parent.name
  config = info.get('configName')
  return _open(folder, f'{name}/{config}' if config else name)


def is_prepared(folder: epath.Path) -> bool:
  """Whether TFDS prepared what a folder holds."""
  return (folder / 'dataset_info.json').exists() or bool(_versions(folder))


def _open(folder: epath.Path, name: str) -> protocol.DatasetSplits:
  # It takes a while to import, and not every source needs it.
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  # From the files alone: the code that once prepared them needs TensorFlow.
  builder = tfds.builder_from_directory(folder)
  facts = known_datasets.facts(name)
  features = builder.info.features
  image = _feature(features, facts.image, name=name)
  label = _feature(
      features, facts.label or ('label' if 'label' in features else 'labels'),
      name=name)
  found = _label_facts(features[label], facts, what=f'{name}.{label}')
  examples = _random_access(
      builder, folder, {image: tfds.decode.SkipDecoding()})
  splits: dict[str, protocol.Source] = {
      # Without the version: to write it down chooses no other subset.
      split: Tfds(f'{name.partition(":")[0]} {split}', of_split, image, label,
                  found)
      for split, of_split in examples.items()}
  opened = protocol.DatasetSplits(
      splits, found.num_classes, found.names, found.multi_label,
      targets=found.targets)
  if set(facts.parts) - set(splits):  # Whoever prepared all of them, said so.
    splits = {part: split_strings_lib.select_split(opened, split, name=name)
              for part, split in facts.parts.items()}
  return dataclasses.replace(
      opened, splits=splits,
      eval_split=_eval_split(name, facts, list(splits)))


def _eval_split(
    name: str, facts: known_datasets.DatasetFacts, splits: Sequence[str]) -> str:
  """Returns the table's; of a data set without a row, one that there is."""
  if name.partition(':')[0].partition('/')[0] in known_datasets.DATASETS:
    return facts.eval_split
  return next((s for s in ('test', 'validation', 'val', 'valid', 'dev')
               if s in splits), facts.eval_split)


def _feature(features: Any, feature: str, *, name: str) -> str:
  return schema.check_name(
      feature, list(features), what=f'feature of {name}')


def _label_facts(
    feature: Any, facts: known_datasets.DatasetFacts, *, what: str,
) -> _Label:
  """Returns what the labels of a TFDS feature are."""
  targets = _targets(feature, what.rpartition('.')[2])
  if targets:
    return _Label(False, len(targets), None, targets)
  entry = getattr(feature, 'feature', feature)  # Of a sequence, its element.
  multi_label = facts.multi_label
  if multi_label is None:
    multi_label = entry is not feature
  num_classes = facts.num_classes or getattr(entry, 'num_classes', None)
  if num_classes is None:
    raise ValueError(
        f'The feature {what} is {feature!r}, which does not say how many '
        'classes there are. Add a row to vit_jax/data/known_datasets.py.')
  names = None
  # Where no names were given, TFDS makes up '0', '1', ...: no names at all.
  if getattr(entry, 'names', None) and any(
      not n.isdigit() for n in entry.names):
    names = tuple(entry.names)
  return _Label(multi_label, num_classes, names)


def _targets(feature: Any, label: str) -> tuple[str, ...]:
  """Returns the names of a label's numbers; () if it is no fixed row of them.

  `data prepare` writes them, as JSON, into the description of the feature.
  """
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  if not isinstance(feature, tfds.features.Tensor) or not np.issubdtype(
      feature.np_dtype, np.floating):
    return ()
  if len(feature.shape) > 1 or None in feature.shape:
    return ()
  count = math.prod(feature.shape)
  try:
    names = json.loads(feature.doc.desc or '')
  except ValueError:  # In words, or none.
    names = None
  if isinstance(names, list) and len(names) == count:
    return tuple(map(str, names))
  return (label,) if count == 1 else tuple(f'{label}_{i}' for i in range(count))


def _find_version(name: str, root: epath.Path) -> epath.Path:
  """Returns the folder `root/name[/config]/version`, by default the newest.

  Raises:
    ValueError: if there is none, with the command that prepares it.
  """
  path, _, version = name.partition(':')
  wanted = path if '*' in version else name
  command = f'tfds build {wanted} --data_dir={root} --file_format=array_record'
  folder = root / path
  found = _versions(folder)
  if not found and folder.is_dir():
    configs = {
        p: _versions(folder / p) for p in image_files.subfolders(folder)}
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
    raise NotPrepared(
        f'{path} is prepared in {folder} in the version(s) '
        f'{", ".join(found)}, not in {version}.', command)
  here = (', '.join(image_files.subfolders(root)) if root.is_dir()
          else 'no such directory')
  raise NotPrepared(
      f'No data set {name!r} in {root} (there: {here or "nothing"}).'
      f'{schema.nearest(path, [*known_datasets.DATASETS])} '
      'Prepare it once, on any machine, with\n'
      '  pip install tensorflow tensorflow-datasets\n'
      f'  {command}\n'
      'or give the directory that has it as --config.data.data_dir=DIR. '
      'For a folder of images, write its path with a slash: ./my_images.',
      command)


def _versions(folder: epath.Path) -> list[str]:
  """Returns the prepared versions below a folder, oldest first."""
  if not folder.is_dir():
    return []
  found = [p for p in image_files.subfolders(folder)
           if re.fullmatch(r'\d+\.\d+\.\d+', p)
           and (folder / p / 'dataset_info.json').exists()]
  return sorted(found, key=lambda v: tuple(int(n) for n in v.split('.')))


def _format(folder: epath.Path) -> str:
  """Returns the format to read: 'array_record' or 'tfrecord'.

  Raises:
    NotPrepared: if the files are of another, with the command to convert.
  """
  info = json.loads((folder / 'dataset_info.json').read_text())
  # One directory can hold several formats: a conversion in place adds one.
  formats = [info.get('fileFormat', 'tfrecord'),
             *info.get('alternativeFileFormats', ())]
  for known in ('array_record', 'tfrecord'):
    if known in formats:
      return known
  command = (f'tfds convert_format --dataset_version_dir={folder} '
             '--out_file_format=array_record')
  raise NotPrepared(
      f'{folder} holds {" and ".join(formats)} files; training reads '
      'ArrayRecord and TFRecord. Convert them once (adds files beside the '
      'others) with\n'
      '  pip install tensorflow tensorflow-datasets\n'
      f'  {command}', command)
