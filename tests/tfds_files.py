"""Writes TFDS datasets without TensorFlow."""

import json
import struct

from array_record.python import array_record_module
import google_crc32c
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2


def _serialise(values):
  example = tf_example_pb2.Example()
  for key, value in values.items():
    feature = example.features.feature[key]
    if value and isinstance(value[0], bytes):
      feature.bytes_list.value.extend(value)
    elif value and isinstance(value[0], float):
      feature.float_list.value.extend(value)
    else:
      feature.int64_list.value.extend(value)
  return example.SerializeToString()


def framed(record):
  """Returns a TFRecord: a length and bytes, each with its masked CRC-32C."""
  def masked_crc(part):
    crc = google_crc32c.value(part)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) % 2**32

  return b''.join(part + struct.pack('<I', masked_crc(part))
                  for part in (struct.pack('<Q', len(record)), record))


def _write_records(path, records, form):
  if form == 'array_record':
    writer = array_record_module.ArrayRecordWriter(str(path), 'group_size:1')
    for record in records:
      writer.write(record)
    writer.close()
  else:
    path.write_bytes(b''.join(map(framed, records)))


def write(root, name, version, features, splits, *, form='array_record'):
  """Writes a dataset and returns its folder.

  Args:
    root: the data directory.
    name: of the dataset, or of the dataset and its config: 'mnist/rgb'.
    version: such as '1.0.0'.
    features: TFDS features by name.
    splits: by split, examples as lists of int, float or bytes by flat feature
      name.
    form: 'array_record' or 'tfrecord'.
  """
  folder = root / name / version
  folder.mkdir(parents=True)
  base = name.split('/')[0]
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': base, 'version': version, 'fileFormat': form,
      'moduleName': 'somewhere', 'splits': [
          {'name': split, 'numBytes': '1',
           'shardLengths': [str(len(examples))],
           'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}'}
          for split, examples in splits.items()]}))
  tfds.features.FeaturesDict(features).save_config(folder)
  for split, examples in splits.items():
    _write_records(folder / f'{base}-{split}.{form}-00000-of-00001',
                   map(_serialise, examples), form)
  return folder
