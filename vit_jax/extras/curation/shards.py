"""Writes one shard of tf.train.Example records.

Shards are contiguous ranges of examples, so that 'train[:90%]' selects the same
examples before and after. Each record also stores the example's key in its
source. A shard gets its name once it is complete, so a restarted command keeps
the shards that exist. A hidden JSON file beside each one holds its counts.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import dataclasses
import functools
import json
from typing import Any

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax import data
from vit_jax import untrusted
from vit_jax.data import examples
from vit_jax.data.images import decode
from vit_jax.data.images import image_file
from vit_jax.data.images import unreadable as unreadable_lib
from vit_jax.data.sources import tfds_folders
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError
from vit_jax.extras.curation import selection as selection_lib
from vit_jax.extras.curation import stored_images
from vit_jax.extras.curation import taught as taught_lib

FORMAT = 'array_record'
KEY, FILE_NAME = 'key', 'file_name'


@dataclasses.dataclass(frozen=True)
class Features:
  """Features of a prepared dataset, beside its classes.

  Attributes:
    label: name of the label feature; '' if there are no labels.
    channels: 1 if all images of a sample are grey, else 3.
    encoding: 'jpeg' or 'png' if all images of a sample are, else ''.
    file_name: whether examples have a file name.
    groups: whether examples have groups.
    taught: outputs of teachers that examples have.
  """
  label: str
  channels: int
  encoding: str
  file_name: bool
  groups: bool
  image_format: stored_images.ImageFormat
  taught: taught_lib.Taught | None = None

  def write(self, folder: epath.Path, dataset: data.Dataset) -> None:
    """Writes features.json and the class names, as TFDS does."""
    import tensorflow_datasets as tfds
    label: Any
    if dataset.targets:
      names = json.dumps(dataset.targets, ensure_ascii=False)
      label = tfds.features.Tensor(
          shape=(len(dataset.targets),), dtype=np.float32,
          doc=tfds.features.Documentation(desc=names))
    elif dataset.class_names:
      label = tfds.features.ClassLabel(names=list(dataset.class_names))
    else:
      label = tfds.features.ClassLabel(num_classes=dataset.num_classes)
    features = {
        'image': tfds.features.Image(
            shape=(None, None, self.channels),
            encoding_format=self.encoding or None),
        **({self.label: tfds.features.Sequence(label)
            if dataset.multi_label else label} if self.label else {}),
        KEY: tfds.features.Text()}
    if self.file_name:
      features[FILE_NAME] = tfds.features.Text()
    if self.groups:
      features[tfds_folders.GROUP] = tfds.features.Scalar(np.int64)
    if self.taught:
      features[self.taught.name] = tfds.features.Tensor(
          shape=(self.taught.length,), dtype=np.float16, encoding='bytes',
          doc=tfds.features.Documentation(desc=self.taught.declaration))
    tfds.features.FeaturesDict(features).save_config(folder)


def infer_features(
    dataset: data.Dataset, sample: Sequence[Mapping[str, Any]], *,
    image_format: stored_images.ImageFormat, label: str | None,
    taught: taught_lib.Taught | None = None,
) -> Features:
  """Returns the features of a dataset, inferred from a sample.

  The sample has encoded images. The default label is 'label' or 'labels'.
  """
  headers = {_header(example['image']) for example in sample} - {('', '')}
  formats = {form for form, _ in headers}
  return Features(
      label='' if dataset.no_labels else label or (
          'labels' if dataset.multi_label else 'label'),
      channels=1 if all(mode in ('1', 'L') for _, mode in headers) else 3,
      encoding=(formats.pop().lower()
                if formats in ({'JPEG'}, {'PNG'}) else ''),
      file_name=all(FILE_NAME in example for example in sample),
      # The crops of an image are never divided.
      groups=(split_strings.groups(dataset.source) is not None
              or (taught is not None and taught.crops > 1)),
      image_format=image_format, taught=taught)


def _header(image: bytes) -> tuple[str, str]:
  """Returns format and mode of an image file; '' if it is unreadable."""
  try:
    with image_file.open_image(image) as opened:
      return str(opened.format), opened.mode
  except UserError:
    return '', ''


@dataclasses.dataclass(frozen=True)
class Shard:
  """Examples `first` to `last - 1` of a split, and the file for them.

  Attributes:
    crops: crops of each image to store, with outputs of teachers; 0 stores the
      images.
  """
  selection: selection_lib.Selection
  first: int
  last: int
  folder: str
  name: str
  features: Features
  crops: int = 0

  @property
  def path(self) -> epath.Path:
    """Path of the shard."""
    return epath.Path(self.folder) / self.name

  @property
  def facts_path(self) -> epath.Path:
    """Path of the JSON file with the counts of a finished shard."""
    return epath.Path(self.folder) / f'.{self.name}.json'


def finished(shard: Shard) -> dict[str, Any] | None:
  """Returns the counts that `write` stored of a finished shard, or None."""
  return untrusted.read_json(shard.facts_path) if shard.path.exists() else None


def write(shard: Shard, outputs: taught_lib.Outputs | None = None) -> None:
  """Writes the readable examples of a shard, unless it is finished.

  `outputs` computes those of the teachers, if any.

  Raises:
    UserError: naming an example that cannot be stored.
  """
  if shard.path.exists():
    return
  from array_record.python import array_record_module
  load = examples.LoadExample(
      shard.selection.open(), shard.selection.config, train=shard.crops > 1)
  read_together = max(decode.CHUNK, outputs.batch_size if outputs else 0)
  num_bytes = 0
  unreadable: list[unreadable_lib.Unreadable] = []
  written: list[int] = []
  with atomic_files.create(shard.path) as path:
    # One record per group, as TFDS writes them, for fast random access.
    with contextlib.closing(array_record_module.ArrayRecordWriter(
        str(path), 'group_size:1')) as writer:
      for records, failed in decode.read_chunks(
          range(shard.first, shard.last),
          functools.partial(_read_records, load, shard),
          errors=(unreadable_lib.UnreadableError,),
          size=max(1, read_together // max(1, shard.crops))):
        unreadable += [
            unreadable_lib.Unreadable(
                shard.selection.name, load.dataset.source.key(index),
                str(error)) for index, error in failed]
        for index, record in _serialize(records, shard.features, outputs):
          written.append(index)
          writer.write(record)
          num_bytes += len(record)
    # First, because the shard counts as finished once it has its name.
    atomic_files.write_json(shard.facts_path, {
        'examples': len(written), 'record_bytes': num_bytes,
        'groups': _groups(load, written) if shard.features.groups else [],
        'unreadable': [dataclasses.asdict(one) for one in unreadable]})


def _groups(
    load: examples.LoadExample, indices: Sequence[int]) -> list[int]:
  """Returns the hashes of the groups of examples in increasing order."""
  source, chosen = load.dataset.source, np.asarray(indices, int)
  found = split_strings.groups(source, chosen)
  if found is None:  # Only `data.val_source` has none.
    found = split_strings.stable_hashes(map(source.key, indices), len(indices))
  return found.view(np.int64).tolist()  # Records have no unsigned numbers.


def _read_records(
    load: examples.LoadExample, shard: Shard, index: int,
) -> list[tuple[Any, np.ndarray]]:
  """Returns the records and pixels of an example; raises as training would.

  Records of images that are stored as they are have no pixels.
  """
  dataset, taught = load.dataset, shard.features.taught
  encode = shard.features.image_format.encode
  with dataset.naming(index, kind=unreadable_lib.UnreadableError):
    example = dataset[index]
    if taught is None:
      image = encode(example['image'])
      load.config.decode(image)
      found = [(image, np.empty(0))]
    else:
      crops = [taught.crop(
          load, example['image'], key=dataset.source.key(index), number=number)
               for number in range(shard.crops)]
      found = [(encode(crop), crop) for crop in crops]
  return [(_record(load, shard.features, index, {**example, 'image': image}),
           pixels) for image, pixels in found]


def _serialize(
    read: Iterable[tuple[int, list[tuple[Any, np.ndarray]]]],
    features: Features, outputs: taught_lib.Outputs | None,
) -> list[tuple[int, bytes]]:
  """Returns index and serialised record of examples, with outputs if any."""
  rows = [(index, record, pixels)
          for index, found in read for record, pixels in found]
  if features.taught and rows:
    assert outputs is not None
    vectors = outputs(np.stack([pixels for _, _, pixels in rows]))
    for (_, record, _), vector in zip(rows, vectors, strict=True):
      record.features.feature[features.taught.name].bytes_list.value.append(
          vector.astype(np.float16).tobytes())
  return [(index, record.SerializeToString(deterministic=True))
          for index, record, _ in rows]


def _record(
    load: examples.LoadExample, features: Features, index: int,
    example: Mapping[str, Any],
) -> Any:
  """Returns the record of an example, with its image as it is stored."""
  from tensorflow_datasets.proto import tf_example_pb2
  dataset = load.dataset
  message = tf_example_pb2.Example()
  feature = message.features.feature
  feature['image'].bytes_list.value.append(example['image'])
  values = np.atleast_1d(np.asarray(example['label']))
  if dataset.targets:
    feature[features.label].float_list.value.extend(
        values.astype(np.float32).tolist())
  elif features.label:
    feature[features.label].int64_list.value.extend(values.astype(int).tolist())
  feature[KEY].bytes_list.value.append(
      dataset.source.key(index).encode(errors='surrogatepass'))
  if features.file_name:
    feature[FILE_NAME].bytes_list.value.append(
        example[FILE_NAME].encode(errors='surrogatepass'))
  if features.groups:
    feature[tfds_folders.GROUP].int64_list.value.extend(_groups(load, [index]))
  return message
