"""An example of any source as a record that TensorFlow Datasets reads.

The bytes of an image file stay what they are, unless it is to be smaller
(`pictures`); pixels become PNG, which loses nothing. The key that the source
has for it goes along, so that an example can be found again where it came from.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import hashlib
import json
from typing import Any

from etils import epath
import numpy as np

from vit_jax import data
from vit_jax.data.images import limits
from vit_jax.prepare import images as images_lib

KEY, FILE_NAME = 'key', 'file_name'
_SAMPLE = 64  # Examples that say what all are like.


@dataclasses.dataclass(frozen=True)
class Features:
  """What the examples of a data set hold.

  Attributes:
    label: name of the feature.
    num_classes: of the label.
    names: of the classes, or () where none are known.
    multi_label: a label is a list of classes.
    channels: 1 where all images of a sample are grey, else 3.
    encoding: 'jpeg' or 'png' where all images of a sample are, else ''.
    file_name: whether examples have the name of their file.
    targets: names of the numbers that a label is, if it is no class.
    pictures: what becomes of images.
  """
  label: str
  num_classes: int
  names: tuple[str, ...]
  multi_label: bool
  channels: int
  encoding: str
  file_name: bool
  targets: tuple[str, ...] = ()
  pictures: images_lib.Pictures = images_lib.AS_THEY_ARE

  def write(self, folder: epath.Path) -> None:
    """Writes features.json and the names of the classes, as TFDS does."""
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
    dataset: data.Dataset, pictures: images_lib.Pictures,
) -> list[Mapping[str, Any]]:
  """Returns some examples from all over a data set, with images as stored."""
  chosen = [dataset[int(i)] for i in np.unique(np.linspace(
      0, len(dataset) - 1, min(_SAMPLE, len(dataset))).astype(int))]
  return [{**example, 'image': pictures.stored(example['image'])}
          for example in chosen]


def describe(
    dataset: data.Dataset, examples: Iterable[Mapping[str, Any]], *,
    pictures: images_lib.Pictures, label: str | None = None,
) -> Features:
  """Returns the features of a data set, judging by a sample.

  Args:
    dataset: of any source.
    examples: of it, as `sample` gives them.
    pictures: what becomes of images.
    label: name of the feature; by default 'label', or 'labels' of several.
  """
  examples = list(examples)
  looks = {_look(example['image']) for example in examples}
  formats = {form for form, _ in looks}
  return Features(
      label=label or ('labels' if dataset.multi_label else 'label'),
      num_classes=dataset.num_classes, names=dataset.class_names or (),
      multi_label=dataset.multi_label,
      channels=1 if all(mode in ('1', 'L') for _, mode in looks) else 3,
      encoding=(formats.pop().lower()
                if formats in ({'JPEG'}, {'PNG'}) else ''),
      file_name=all(FILE_NAME in example for example in examples),
      targets=dataset.targets, pictures=pictures)


def _look(image: bytes) -> tuple[str, str]:
  """Returns format and mode of an image file; '' of what is none.

  A file that cannot be read goes along as it is: what is done about it, a run
  says (`data.unreadable`).
  """
  try:
    with limits.open_image(image) as opened:
      return str(opened.format), opened.mode
  except ValueError:
    return '', ''


def serialise(
    example: Mapping[str, Any], features: Features, *, key: str) -> bytes:
  """Returns a record: a tf.train.Example, as TFDS stores them.

  Args:
    example: its image is the bytes that are stored.
    features: of the data set.
    key: that the source has for it.
  """
  from tensorflow_datasets.proto import tf_example_pb2
  message = tf_example_pb2.Example()
  feature = message.features.feature
  feature['image'].bytes_list.value.append(example['image'])
  label = feature[features.label]
  (label.float_list if features.targets else label.int64_list).value.extend(
      _plain(example['label']))
  feature[KEY].bytes_list.value.append(key.encode())
  if features.file_name:
    feature[FILE_NAME].bytes_list.value.append(example[FILE_NAME].encode())
  return message.SerializeToString(deterministic=True)


def _plain(label: Any) -> list[int] | list[float]:
  """Returns a label as the numbers that a record holds of it."""
  values = np.atleast_1d(np.asarray(label))
  is_float = np.issubdtype(values.dtype, np.floating) and values.size
  return values.astype(np.float32 if is_float else int).tolist()


class Digest:
  """What sums up the keys, labels and image bytes of a row of examples."""

  def __init__(self):
    self._hash = hashlib.blake2b(digest_size=16)
    self.examples = 0

  def add(self, key: str, label: Any, image: bytes) -> None:
    """Adds the next example."""
    for part in (key.encode(), image, repr(_plain(label)).encode()):
      self._hash.update(len(part).to_bytes(8, 'little') + part)
    self.examples += 1

  def add_record(self, record: bytes, features: Features) -> None:
    """Adds an example that was read back."""
    from tensorflow_datasets.proto import tf_example_pb2
    feature = tf_example_pb2.Example.FromString(record).features.feature
    label = feature[features.label]
    self.add(feature[KEY].bytes_list.value[0].decode(),
             list((label.float_list if features.targets
                   else label.int64_list).value),
             feature['image'].bytes_list.value[0])

  def hexdigest(self) -> str:
    """Returns the sum so far."""
    return self._hash.hexdigest()
