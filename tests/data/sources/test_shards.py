"""Data as ImageNet-21k has it: several files and labels, many classes."""

import io
import json

from array_record.python import array_record_module
import jax
import numpy as np
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from vit_jax import data

CLASSES, SHARDS = 21_843, (4, 2, 3)
FEATURES = 'tensorflow_datasets.core.features'
LABELS = [[0, 21_842, 7 * i] if i % 4 else [] for i in range(sum(SHARDS))]


def write(root):
  """Writes images whose brightness is their number, over three files."""
  folder = root / 'big' / '1.0.0'
  folder.mkdir(parents=True)
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': 'big', 'version': '1.0.0', 'fileFormat': 'array_record',
      'moduleName': 'somewhere', 'splits': [{
          'name': 'train', 'numBytes': '1',
          'shardLengths': [str(length) for length in SHARDS],
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }]}))
  label = {'pythonClassName': f'{FEATURES}.class_label_feature.ClassLabel',
           'classLabel': {'numClasses': str(CLASSES)}}
  (folder / 'features.json').write_text(json.dumps({
      'pythonClassName': f'{FEATURES}.features_dict.FeaturesDict',
      'featuresDict': {'features': {
          'image': {'pythonClassName': f'{FEATURES}.image_feature.Image',
                    'image': {'dtype': 'uint8', 'encodingFormat': 'png',
                              'shape': {'dimensions': ['-1', '-1', '3']}}},
          'labels': {
              'pythonClassName': f'{FEATURES}.sequence_feature.Sequence',
              'sequence': {'feature': label, 'length': '-1'}}}}}))
  number = 0
  for shard, length in enumerate(SHARDS):
    writer = array_record_module.ArrayRecordWriter(
        str(folder / f'big-train.array_record-{shard:05}-of-00003'),
        'group_size:1')
    for _ in range(length):
      buffer = io.BytesIO()
      Image.new('RGB', (8, 8), (number,) * 3).save(buffer, 'PNG')
      feature = (example := tf_example_pb2.Example()).features.feature
      feature['image'].bytes_list.value.append(buffer.getvalue())
      feature['labels'].int64_list.value.extend(LABELS[number])
      writer.write(example.SerializeToString())
      number += 1
    writer.close()


def test_every_label_of_every_file_arrives_k_hot(tmp_path):
  write(tmp_path)
  config = data.parse({
      'source': 'big', 'data_dir': str(tmp_path), 'resolution': 8,
      'max_labels': 3})
  dataset = data.open_dataset(config)
  assert (dataset.num_classes, dataset.multi_label) == (CLASSES, True)
  assert dataset.num_examples == 9
  prepare = data.prepare(config, num_classes=CLASSES, multi_label=True)
  stream = data.train_batches(config, dataset, seed=0, batch_size=3)
  seen = []
  for _ in range(3):  # An epoch.
    batch = next(stream)
    assert batch['label'].shape == (3, 3)  # Sparse, on the host.
    hot = prepare(batch, jax.random.key(0), train=True)['label']
    assert hot.shape == (3, CLASSES)
    for image, row in zip(batch['image'], np.asarray(hot)):
      number = int(image[0, 0, 0])
      seen.append(number)
      assert set(np.flatnonzero(row)) == set(LABELS[number])
      assert row.sum() == len(set(LABELS[number]))
  stream.close()
  assert sorted(seen) == list(range(9))
