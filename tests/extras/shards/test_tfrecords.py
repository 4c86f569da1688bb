"""Random access to TFDS's TFRecord files; damaged files are errors."""

import json

from array_record.python import array_record_module
from etils import epath
from PIL import Image
import pytest
import tensorflow_datasets as datasets

from tests import own_data
from tests import pictures
from tests import tfds_files
from vit_jax import data
from vit_jax.data.sources import tfds as tfds_lib
from vit_jax.extras.shards import tfrecords

FEATURES = {
    'image': datasets.features.Image(
        shape=(None, None, 1), encoding_format='png'),
    'label': datasets.features.ClassLabel(num_classes=3)}


def png(value):
  return pictures.encode(Image.new('L', (2, 2), value))


@pytest.fixture
def folder(tmp_path):
  """Seven examples in two files, with an empty file between them."""
  folder = tfds_files.write(tmp_path, 'tiny', '1.0.0', FEATURES, {'train': [
      {'image': [png(i)], 'label': [i % 3]} for i in range(7)]})
  source = folder / 'tiny-train.array_record-00000-of-00001'
  reader = array_record_module.ArrayRecordReader(str(source))
  records = [tfds_files.framed(record) for record in reader.read_all()]
  source.unlink()
  for i, part in enumerate((records[:4], [], records[4:])):
    (folder / f'tiny-train.tfrecord-{i:05}-of-00003').write_bytes(
        b''.join(part))
  path = folder / 'dataset_info.json'
  info = json.loads(path.read_text())
  del info['fileFormat']  # As older TFDS versions wrote it.
  info['splits'][0]['shardLengths'] = ['4', '0', '3']
  path.write_text(json.dumps(info))
  return epath.Path(folder)


def open_tfds(folder):
  return tfds_lib.open_source(
      'tiny', data.parse({'data_dir': str(folder.parent.parent)}))


@pytest.mark.parametrize(('content', 'crc'), [
    # RFC 3720, appendix B.4.
    (bytes(32), 0x8a9136aa), (bytes(range(32)), 0x46dd794e)])
def test_the_checksum_is_the_published_one(content, crc):
  assert tfrecords.masked_crc(content) == (
      (crc >> 15 | crc << 17) + 0xa282ead8) % 2**32


def test_examples_are_read_by_index(folder):
  by_name = open_tfds(folder)
  for opened in (by_name, own_data.open_path(folder),
                 own_data.open_path(folder.parent)):
    train = opened.splits['train']
    assert len(train) == 7 and opened.num_classes == 3
    for i in (6, 0, 3, 4, 1, 2, 5):
      assert train[i] == {'image': png(i), 'label': i % 3}
    assert train.key(4) == 'tiny train 4'
  (folder / 'tiny-train.tfrecord-00000-of-00003').unlink()
  with pytest.raises(ValueError, match='1 of 2 files are missing .*00000-of'):
    open_tfds(folder)


def test_a_changed_file_is_scanned_again(folder):
  own_data.open_path(folder)
  last = folder / 'tiny-train.tfrecord-00002-of-00003'
  last.write_bytes(last.read_bytes() + tfds_files.framed(b'more'))
  with pytest.raises(ValueError, match='has 4 records, but .* says 3'):
    own_data.open_path(folder)


@pytest.mark.parametrize(('damage', 'message'), [
    (lambda b: b[:-1], 'is truncated: it ends at byte'),
    (lambda b: b[:5], 'is truncated: it ends at byte 5'),
    (lambda b: b'\0' + b[1:], 'damaged at byte 0: the checksum of a length'),
    (lambda b: b[:-6] + b'x' + b[-5:], 'checksum of its record differs')])
def test_a_damaged_file_is_an_error(folder, damage, message):
  last = folder / 'tiny-train.tfrecord-00002-of-00003'
  last.write_bytes(damage(last.read_bytes()))
  with pytest.raises(ValueError, match=f'{last} .*{message}'):
    open_tfds(folder).splits['train'][6]
