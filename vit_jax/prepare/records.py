"""Examples as tf.train.Example records, and their features for TFDS.

Each record also stores the example's key in its source.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import json
from typing import Any

from etils import epath
import numpy as np

from vit_jax import data
from vit_jax.data.images import limits
from vit_jax.prepare import images

KEY, FILE_NAME = 'key', 'file_name'
_SAMPLE = 64  # Examples that determine the features.


@dataclasses.dataclass(frozen=True)
class Features:
  """Features of a prepared dataset.

  Attributes:
    label: name of the label feature.
    num_classes: number of classes.
    names: class names, or () if unknown.
    multi_label: a label is a list of classes.
    channels: 1 if all images of a sample are grey, else 3.
    encoding: 'jpeg' or 'png' if all images of a sample are, else ''.
    file_name: examples have a file name.
    targets: names of the numbers of a regression label.
    image_format: how images are stored.
  """
  label: str
  num_classes: int
  names: tuple[str, ...]
  multi_label: bool
  channels: int
  encoding: str
  file_name: bool
  targets: tuple[str, ...] = ()
  image_format: images.ImageFormat = images.UNCHANGED

  def write(self, folder: epath.Path) -> None:
    """Writes features.json and the class names, as TFDS does."""
    import tensorflow_datasets as tfds
    label = (
        tfds.features.Tensor(
            shape=(len(self.targets),), dtype=np.float32,
            doc=tfds.features.Documentation(
                desc=json.dumps(self.targets, ensure_ascii=False)))
        if self.targets else
        tfds.features.ClassLabel(names=list(self.names)) if self.names
        else tfds.features.ClassLabel(num_classes=self.num_classes))
    features = {
        'image': tfds.features.Image(
            shape=(None, None, self.channels),
            encoding_format=self.encoding or None),
        self.label: (
            tfds.features.Sequence(label) if self.multi_label else label),
        KEY: tfds.features.Text()}
    if self.file_name:
      features[FILE_NAME] = tfds.features.Text()
    tfds.features.FeaturesDict(features).save_config(folder)


def sample(
    dataset: data.Dataset, image_format: images.ImageFormat,
) -> list[dict[str, Any]]:
  """Returns evenly chosen examples, with images as they are stored."""
  chosen = np.unique(np.linspace(
      0, len(dataset) - 1, min(_SAMPLE, len(dataset))).astype(int))
  examples = [dataset[index] for index in chosen.tolist()]
  return [{**example, 'image': image_format.encode(example['image'])}
          for example in examples]


def infer_features(
    dataset: data.Dataset, examples: Sequence[Mapping[str, Any]], *,
    image_format: images.ImageFormat, label: str | None = None,
) -> Features:
  """Returns the features of a dataset, inferred from a sample.

  Args:
    dataset: the source.
    examples: result of `sample`.
    image_format: how images are stored.
    label: name of the label feature; default 'label', or 'labels' for several.
  """
  headers = {_header(example['image']) for example in examples}
  formats = {form for form, _ in headers}
  return Features(
      label=label or ('labels' if dataset.multi_label else 'label'),
      num_classes=dataset.num_classes, names=dataset.class_names or (),
      multi_label=dataset.multi_label,
      channels=1 if all(mode in ('1', 'L') for _, mode in headers) else 3,
      encoding=(formats.pop().lower()
                if formats in ({'JPEG'}, {'PNG'}) else ''),
      file_name=all(FILE_NAME in example for example in examples),
      targets=dataset.targets, image_format=image_format)


def _header(image: bytes) -> tuple[str, str]:
  """Returns format and mode of an image file; '' if it is unreadable."""
  try:
    with limits.open_image(image) as opened:
      return str(opened.format), opened.mode
  except ValueError:
    return '', ''


def serialise(
    example: Mapping[str, Any], features: Features, *, key: str) -> bytes:
  """Returns an example with an encoded image as a record."""
  from tensorflow_datasets.proto import tf_example_pb2
  message = tf_example_pb2.Example()
  feature = message.features.feature
  feature['image'].bytes_list.value.append(example['image'])
  label = feature[features.label]
  (label.float_list if features.targets else label.int64_list).value.extend(
      _label_values(example['label']))
  feature[KEY].bytes_list.value.append(key.encode())
  if features.file_name:
    feature[FILE_NAME].bytes_list.value.append(example[FILE_NAME].encode())
  return message.SerializeToString(deterministic=True)


def _label_values(label: Any) -> list[int] | list[float]:
  values = np.atleast_1d(np.asarray(label))
  is_float = np.issubdtype(values.dtype, np.floating) and values.size
  return values.astype(np.float32 if is_float else int).tolist()


class Digest:
  """Hash of the keys, labels and image bytes of a sequence of examples."""

  def __init__(self):
    self._hash = hashlib.blake2b(digest_size=16)
    self.examples = 0

  def add(self, key: str, label: Any, image: bytes) -> None:
    """Adds the next example."""
    for part in (key.encode(), image, repr(_label_values(label)).encode()):
      self._hash.update(len(part).to_bytes(8, 'little') + part)
    self.examples += 1

  def add_record(self, record: bytes, features: Features) -> None:
    """Adds the example of a record."""
    from tensorflow_datasets.proto import tf_example_pb2
    feature = tf_example_pb2.Example.FromString(record).features.feature
    label = feature[features.label]
    self.add(feature[KEY].bytes_list.value[0].decode(),
             list((label.float_list if features.targets
                   else label.int64_list).value),
             feature['image'].bytes_list.value[0])

  def hexdigest(self) -> str:
    """Returns the hash of all examples added."""
    return self._hash.hexdigest()
