"""Writes data sets of any number of tiny images, in each format.

Class folders are hard links of a few files.
"""

import io
import json
import os
import pathlib
import struct
import sys
import tarfile

import numpy as np
from PIL import Image
import pyarrow as pa
import pyarrow.parquet as pq

NUM_CLASSES, SHARD = 1000, 20_000
LINKS = 10_000  # Per file; ext4 allows 65,000.


def png():
  """Returns the smallest image file."""
  file = io.BytesIO()
  Image.new('L', (1, 1)).save(file, 'png')
  return file.getvalue()


def write_parquet(folder, count):
  """Writes shards of images and class names."""
  for first in range(0, count, SHARD):
    rows = range(first, min(count, first + SHARD))
    pq.write_table(pa.table({
        'image': [png()] * len(rows),
        'label': [f'class {i % NUM_CLASSES}' for i in rows]}),
        folder / f'{first:09}.parquet', row_group_size=1000)
  return folder


def write_tar(folder, count):
  """Writes shards of an image and a class index for each key."""
  blocks = []
  for kind, content in (('png', png()), ('cls', b'0000')):
    member = tarfile.TarInfo(f'{0:09}.{kind}')
    member.size = len(content)
    blocks.append(np.frombuffer(member.tobuf() + content.ljust(512, b'\0'),
                                np.uint8))
  empty = np.concatenate(blocks)
  for first in range(0, count, SHARD):
    rows = np.arange(first, min(count, first + SHARD))
    members = np.tile(empty, (len(rows), 1))
    digits = rows[:, None] // 10**np.arange(9)[::-1] % 10
    labels = rows[:, None] % NUM_CLASSES // 10**np.arange(4)[::-1] % 10
    members[:, 1536:1540] += labels.astype(np.uint8)
    for header in (0, 1024):  # Header and content have 512 bytes each.
      members[:, header:header + 9] += digits.astype(np.uint8)
      # The checksum is a sum of bytes: six octal digits.
      old = int(bytes(empty[header + 148:header + 154]), 8)
      total = old + digits.sum(axis=1, keepdims=True)
      members[:, header + 148:header + 154] = (
          total // 8**np.arange(6)[::-1] % 8 + ord('0'))
    (folder / f'{first:09}.tar').write_bytes(
        members.tobytes() + bytes(2 * 512))
  return folder


def write_array_record(folder, count, form='array_record'):
  """Writes shards as TensorFlow Datasets does."""
  from array_record.python import array_record_module
  import tensorflow_datasets as tfds
  from tensorflow_datasets.proto import tf_example_pb2
  sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))
  from vit_jax.data.sources import tfrecords
  folder = folder / 'tiny' / '1.0.0'
  folder.mkdir(parents=True)
  starts = range(0, count, SHARD)
  lengths = [min(count - first, SHARD) for first in starts]
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': 'tiny', 'version': '1.0.0', 'fileFormat': form, 'splits': [{
          'name': 'train', 'numBytes': '1', 'shardLengths': lengths,
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }]}))
  tfds.features.FeaturesDict({
      'image': tfds.features.Image(shape=(None, None, 1)),
      'label': tfds.features.ClassLabel(num_classes=NUM_CLASSES)}).save_config(
          folder)
  records = []
  for label in range(NUM_CLASSES):
    example = tf_example_pb2.Example()
    example.features.feature['image'].bytes_list.value.append(png())
    example.features.feature['label'].int64_list.value.append(label)
    records.append(example.SerializeToString())
  framed = [b''.join(
      part + struct.pack('<I', tfrecords.masked_crc(part))
      for part in (struct.pack('<Q', len(record)), record))
            for record in records]
  for shard, (first, length) in enumerate(zip(starts, lengths)):
    path = folder / f'tiny-train.{form}-{shard:05}-of-{len(starts):05}'
    labels = [i % NUM_CLASSES for i in range(first, first + length)]
    if form == 'tfrecord':
      path.write_bytes(b''.join(framed[label] for label in labels))
      continue
    writer = array_record_module.ArrayRecordWriter(
        os.fspath(path), 'group_size:1')
    for label in labels:
      writer.write(records[label])
    writer.close()
  return folder


def write_tfrecord(folder, count):
  """Writes shards as TensorFlow Datasets does."""
  return write_array_record(folder, count, form='tfrecord')


def write_folders(folder, count):
  """Writes class folders of hard links to a few files."""
  for i in range(NUM_CLASSES):
    (folder / f'class {i}').mkdir()
  for i in range(count):
    original = folder / f'.{i // LINKS}.png'
    if not i % LINKS:
      original.write_bytes(png())
    os.link(original, folder / f'class {i % NUM_CLASSES}' / f'{i:09}.png')
  return folder


def write_csv(folder, count):
  """Writes class folders and a table of their images."""
  write_folders(folder, count)
  table = folder / 'labels.csv'
  with open(table, 'w') as file:
    file.write('path,label\n')
    file.writelines(
        f'class {i % NUM_CLASSES}/{i:09}.png,class {i % NUM_CLASSES}\n'
        for i in range(count))
  return table


WRITERS = {
    'array_record': write_array_record, 'tfrecord': write_tfrecord,
    'tar': write_tar, 'parquet': write_parquet, 'csv': write_csv,
    'folders': write_folders}
