"""Datasets prepared by TensorFlow Datasets, read without TensorFlow."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import json
import math
import os
from typing import Any

from etils import epath
from jaxtyping import Integer, UInt64
import numpy as np

from vit_jax import exceptions
from vit_jax import registry
from vit_jax import schema
from vit_jax import untrusted
from vit_jax.data import config as data_config
from vit_jax.data import known_datasets
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import protocol
from vit_jax.data.sources import tfds_folders
from vit_jax.data.splits import groups as groups_lib
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

_BLOCK = 1000  # Records that are read together for their labels.
_SAMPLE = 100  # Labels of a split that are read to find out if it has any.
_MASK, _FILE = 'segmentation_mask', 'file_name'  # Features of some datasets.


@dataclasses.dataclass(frozen=True, eq=False)
class TfdsSource(protocol.Source):
  """One split.

  Attributes:
    name: dataset and split, for keys.
    records: serialised examples by index.
    features: TFDS features that are read.
    image: name of the image feature.
    read_label: returns the label of an example without its images.
    decode: decodes the image feature; None leaves it undecoded.
    groups: hash of the group of each example, if there are groups.
    folder: folder of the files.
  """
  name: str
  records: Any
  features: Any
  image: str
  read_label: Callable[[Mapping[str, Any]], Any]
  decode: Callable[[bytes], np.ndarray] | None = None
  groups: UInt64[np.ndarray, 'examples'] | None = None
  folder: str = ''

  @functools.cached_property
  def _skipped(self) -> dict[str, Any]:
    """Decoders that leave images undecoded, by feature."""
    import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
    return {name: tfds.decode.SkipDecoding()
            for name, feature in self.features.items()
            if name == self.image or isinstance(feature, tfds.features.Image)}

  @functools.cached_property
  def _others(self) -> Any:
    """Decoders of features besides images and outputs of teachers."""
    return _select(self.features, {
        name for name in {*self.features} - {*self._skipped}
        if not name.startswith(protocol.TEACHER)})

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    with exceptions.replaced_by(_explain_record):
      example = self.features.deserialize_example_np(
          self.records[index], decoders=self._skipped)
      image = example[self.image]
      found = {**example, 'label': self.read_label(example),
               'image': self.decode(image) if self.decode else image}
    if _MASK in example:
      found[protocol.SEGMENTATION] = example[_MASK]
    if _FILE in example:  # ImageNet; other label sets refer to it.
      found[_FILE] = bytes(example[_FILE]).decode()
    return found

  def label(self, index: int) -> Any:
    with (exceptions.naming(self.key(index)),
          exceptions.replaced_by(_explain_record)):
      return self._parse_label(self.records[index])

  def _parse_label(self, record: bytes) -> Any:
    return self.read_label(self._others.deserialize_example_np(record))

  def labels_of(self, indices: Integer[np.ndarray, '_']) -> Iterable[Any]:
    # Many records are read together in a fraction of the time.
    for start in range(0, len(indices), _BLOCK):
      block = indices[start:start + _BLOCK].tolist()
      try:
        found = [*map(self._parse_label, self.records.__getitems__(block))]
      except Exception:  # One by one, which names the damaged record.
        found = [*map(self.label, block)]
      yield from found

  def groups_of(
      self, indices: Integer[np.ndarray, '_'],
  ) -> UInt64[np.ndarray, '_'] | None:
    return None if self.groups is None else self.groups[indices]

  def key(self, index: int) -> str:
    return f'{self.name} {index}'

  @property
  def numbering(self) -> tuple[str, int]:
    return self.name, 0

  @property
  def fingerprint(self) -> str:
    split = f'-{self.name.rpartition(" ")[2]}.'
    sizes = {path.name: path.stat().length for path in (
        epath.Path(self.folder).iterdir() if self.folder else ())
             if split in path.name and not path.name.startswith('.')}
    return f'{split_strings.stable_hash(json.dumps(sorted(sizes.items())))}'


def _explain_record(error: Exception) -> Exception | None:
  """Returns the error of a record that ArrayRecord or TFDS could not read."""
  if isinstance(error, (OSError, ValueError, MemoryError)):
    return None
  # ArrayRecord raises a RuntimeError for damage and for failing file systems:
  # 'pread() failed: Input/output error'.
  if isinstance(error, RuntimeError) and '() failed: ' in str(error):
    return OSError(str(error))
  return UserError(
      f'its record is damaged: {type(error).__name__}: {error}. Copy or '
      'prepare the files again.')


def open_source(
    name: str, config: data_config.DataConfig) -> protocol.DatasetSplits:
  """Opens 'NAME[/CONFIG][:VERSION]' in `data_dir` or TFDS's default directory.

  Raises:
    UserError: if it is missing or not readable, with the command that prepares
      or converts it.
  """
  return _open(tfds_folders.find(name, config.data_dir), name)


def open_folder(
    paths: Sequence[epath.Path], config: columns_lib.LabelConfig, *, where: str,
) -> protocol.DatasetSplits:
  """Opens a folder with a `dataset_info.json`, or with versions of it."""
  del config, where
  folder, = paths
  if not (folder / 'dataset_info.json').exists():
    folder = folder / tfds_folders.versions(folder)[-1]
  info = tfds_folders.read_info(folder)
  name = info.name or folder.parent.name
  return _open(folder, '/'.join(filter(None, [name, info.config_name])))


def _select(features: Any, names: Iterable[str]) -> Any:
  """Returns TFDS features without those that are not needed."""
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  return tfds.features.FeaturesDict(
      {name: features[name] for name in names if name in features})


def _open(folder: epath.Path, name: str) -> protocol.DatasetSplits:
  facts = known_datasets.facts(name)
  records_of, features = tfds_folders.open_records(folder)
  label = facts.label or ('label' if 'label' in features else 'labels')
  for feature in (facts.image, *filter(None, [facts.label])):
    schema.check_name(feature, list(features), what=f'feature of {name}')
  opened = interpret_label(
      features[label], facts, name=f'{name}.{label}') if (
          label in features) else protocol.DatasetSplits(
              {}, num_classes=1, no_labels=f'{name} has no labels: its '
              f'features are {", ".join(features)}.')
  fields = {name: features[name] for name in features
            if name.startswith(protocol.TEACHER)}
  # Keys lack the version, so subsets are the same with and without it.
  splits: dict[str, protocol.Source] = {
      split: TfdsSource(
          f'{name.partition(":")[0]} {split}', records,
          _select(features, (facts.image, label, _MASK, _FILE, *fields)),
          facts.image, _label_reader(opened, label), folder=os.fspath(folder),
          groups=registry.load(registry.GROUPS)(
              folder, split, len(records)) if (
              tfds_folders.GROUP in features) else None)
      for split, records in records_of.items()}
  if {*splits} == {*split_strings.names('+'.join(facts.parts.values()))}:
    # Configs of earlier versions select parts of `full`.
    whole = dataclasses.replace(opened, splits=splits)
    splits = {**splits, **{
        part: split_strings.select_split(whole, split, name=name)
        for part, split in facts.parts.items()}}
  unlabelled = tuple(split for split, source in splits.items() if (
      _is_unlabelled(source, every=opened.kind in ('multi', 'regression'))))
  eval_split = facts.eval_split  # The published split, else a guess.
  labelled = [split for split in splits if split not in unlabelled]
  if not known_datasets.is_known(name) and set(labelled) - {'train'}:
    eval_split = split_strings.choose_eval_split(labelled)
  return dataclasses.replace(
      opened, splits=splits, eval_split=eval_split, unlabelled=unlabelled,
      fields=fields, description='; '.join([
          *map(protocol.describe_unlabelled, unlabelled),
          *groups_lib.check_undivided(splits, where=name, divided='allow')]))


def _label_reader(
    opened: protocol.Metadata, label: str,
) -> Callable[[Mapping[str, Any]], Any]:
  """Returns the function from an example to its label, 0 without labels."""
  if opened.no_labels:
    return lambda example: 0
  if opened.targets:
    return lambda example: np.atleast_1d(np.asarray(example[label], np.float32))
  parse: Callable[[Any], Any] = np.asarray if opened.multi_label else int
  return lambda example: parse(example[label])


def _is_unlabelled(source: protocol.Source, *, every: bool) -> bool:
  """Whether each label is empty, -1 or NaN, or all of its values are.

  Reads a sample or, as single labels may be empty, `every` label up to the
  first one.
  """
  step = 1 if every else max(1, len(source) // _SAMPLE)
  labels = (np.asarray(source.label(i)) for i in range(0, len(source), step))
  try:
    return len(source) > 0 and all(
        np.all((label == -1) | (label != label)) for label in labels)
  except (OSError, UserError):  # Damaged: reported when it is used.
    return False


def interpret_label(
    feature: Any, facts: known_datasets.DatasetFacts, *, name: str,
) -> protocol.DatasetSplits:
  """Returns the kind of label of a TFDS feature 'DATASET.FEATURE', no splits.

  Raises:
    UserError: if the number of classes is unknown.
  """
  import tensorflow_datasets as tfds  # pylint: disable=g-import-not-at-top
  label = name.rpartition('.')[2]
  if isinstance(feature, tfds.features.Tensor) and len(
      feature.shape) < 2 and None not in feature.shape and np.issubdtype(
          feature.np_dtype, np.floating):
    targets = _targets(feature.doc.desc, label, math.prod(feature.shape))
    return protocol.DatasetSplits({}, num_classes=len(targets), targets=targets)
  element = getattr(feature, 'feature', feature)  # Unwraps a sequence.
  num_classes = getattr(element, 'num_classes', None) or facts.num_classes
  if num_classes is None:
    raise UserError(
        f'The feature {name} is {feature!r}, which does not declare its number '
        'of classes. Add a row to vit_jax/data/known_datasets.py.')
  names = tuple(getattr(element, 'names', None) or ())
  is_list = element is not feature
  return protocol.DatasetSplits(
      {}, num_classes=num_classes,
      # TFDS invents '0', '1', ... for classes without names.
      class_names=(
          None if names == tuple(map(str, range(len(names)))) else names),
      multi_label=is_list if facts.multi_label is None else facts.multi_label)


def _targets(text: str | None, label: str, count: int) -> tuple[str, ...]:
  """Returns the names of regression targets.

  `data prepare` writes them, as JSON, into the feature's description.
  """
  try:
    names = untrusted.parse_json(text or '')
  except UserError:
    names = None
  if isinstance(names, list) and len(names) == count:
    return tuple(map(str, names))
  return (label,) if count == 1 else tuple(f'{label}_{i}' for i in range(count))
