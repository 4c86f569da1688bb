"""Every source gives the right examples, and says what to do when it cannot."""

import io
import json

from array_record.python import array_record_module
import numpy as np
from PIL import Image
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from vit_jax.data import shapes
from vit_jax.data import sources


def _open(name, data_dir=''):
  return sources.open_source(
      str(name), data_dir=str(data_dir), shapes_config=shapes.ShapesConfig(),
      size=(16, 16))


def _image(value, suffix='.png'):
  buffer = io.BytesIO()
  Image.new('L', (6, 5), value).save(
      buffer, Image.registered_extensions()[suffix.lower()])
  return buffer.getvalue()


def _write(path, value=0):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(_image(value, path.suffix))


# ---------------------------------------------------------------------- digits


def test_digits_are_split_once_and_evenly_over_the_classes():
  opened = _open('digits')
  train, test = opened.splits['train'], opened.splits['test']
  assert (len(train), len(test)) == (1437, 360)
  assert not set(train.indices) & set(test.indices)
  counts = np.bincount(test.labels)
  assert counts.min() >= 34 and counts.max() <= 38
  assert opened.class_names == tuple('0123456789')
  example = train[0]
  assert example['image'].shape == (8, 8, 1)
  assert train.images.max() == 255 and train.images.min() == 0


def test_digit_split_never_changes():
  # Results are compared over years: these are the examples of `test`.
  indices = _open('digits').splits['test'].indices
  assert indices[:8].tolist() == [8, 9, 14, 16, 26, 28, 36, 42]
  assert int(indices.sum()) == 323972


# ---------------------------------------------------------------- split strings


@pytest.mark.parametrize('split,expected', [
    ('train', range(1437)), ('train[:98%]', range(1408)),
    ('train[98%:]', range(1408, 1437)), ('train[-10:]', range(1427, 1437)),
    ('train[5:9]', range(5, 9))])
def test_split_strings_select_ranges(split, expected):
  opened = _open('digits')
  source = sources.select_split(opened, split, name='digits')
  train = opened.splits['train']
  assert [source.key(i) for i in range(len(source))] == [
      train.key(i) for i in expected]
  assert [source.label(i) for i in range(len(source))] == [
      train.label(i) for i in expected]


def test_split_strings_add_splits():
  opened = _open('digits')
  source = sources.select_split(opened, 'train[:3]+test[2:4]', name='digits')
  assert [source.key(i) for i in range(len(source))] == [
      opened.splits['train'].key(i) for i in range(3)] + [
          opened.splits['test'].key(i) for i in (2, 3)]
  np.testing.assert_array_equal(
      source[4]['image'], opened.splits['test'][3]['image'])
  with pytest.raises(IndexError):
    source[5]


@pytest.mark.parametrize('split,words', [
    ('trian', "Did you mean 'train'"), ('train[', 'Cannot read the split'),
    ('train[:5000]', 'train 1,437'), ('train[7:7]', 'has no examples'),
    ('train[:1shard]', 'Count in examples')])
def test_wrong_splits_are_named(split, words):
  with pytest.raises(ValueError, match=words):
    sources.select_split(_open('digits'), split, name='digits')


def test_examples_per_class_are_balanced_and_nested():
  train = _open('digits').splits['train']
  few = sources.select_per_class(train, 10, name='digits')
  more = sources.select_per_class(train, 20, name='digits')
  labels = [few.label(i) for i in range(len(few))]
  assert np.bincount(labels).tolist() == [10] * 10
  assert set(few.indices) < set(more.indices)
  assert few[3]['label'] == few.label(3) == train.label(int(few.indices[3]))


def test_too_many_examples_per_class_is_an_error():
  with pytest.raises(ValueError, match='fewer of some classes.*0: 142'):
    sources.select_per_class(
        _open('digits').splits['train'], 143, name='digits')
  with pytest.raises(ValueError, match='one label per image'):
    sources.select_per_class(
        _open('shapes').splits['train'], 1, name='shapes')


# --------------------------------------------------------------------- folders


def test_folder_with_splits(tmp_path):
  for i, path in enumerate(['train/cat/a.JPG', 'train/cat/deep/b.png',
                            'train/dog/c.webp', 'val/dog/d.bmp']):
    _write(tmp_path / path, value=10 * i)
  (tmp_path / 'train/cat/notes.txt').write_text('no image')
  (tmp_path / 'train/cat/.hidden.png').write_bytes(b'')
  opened = _open(tmp_path)
  assert opened.class_names == ('cat', 'dog')
  assert opened.splits['train'].paths == (
      'train/cat/a.JPG', 'train/cat/deep/b.png', 'train/dog/c.webp')
  assert opened.splits['train'].labels.tolist() == [0, 0, 1]
  assert opened.splits['val'][0]['label'] == 1
  assert opened.splits['val'][0]['image'] == _image(30, '.bmp')
  assert opened.eval_split == 'val'


def test_one_level_folder_is_split_by_name_for_ever(tmp_path):
  for i in range(200):
    _write(tmp_path / f'class{i % 2}' / f'{i}.png')
  before = _open(tmp_path)
  train, test = before.splits['train'].paths, before.splits['test'].paths
  assert len(train) + len(test) == 200 and not set(train) & set(test)
  assert 8 <= len(test) <= 35
  _write(tmp_path / 'class0' / 'new.png')
  after = _open(tmp_path)
  assert set(train) <= set(after.splits['train'].paths)
  assert set(test) <= set(after.splits['test'].paths)


def test_folder_errors_say_what_was_expected(tmp_path):
  with pytest.raises(ValueError, match='There is no folder .*/nowhere'):
    _open(tmp_path / 'nowhere')
  (tmp_path / 'class').mkdir()
  (tmp_path / 'class' / 'readme.txt').write_text('')
  with pytest.raises(ValueError, match='Found no images .*It holds: class'):
    _open(tmp_path)


# ------------------------------------------------------------------------ TFDS

IMAGE_FEATURE = {
    'pythonClassName': 'tensorflow_datasets.core.features.image_feature.Image',
    'image': {'dtype': 'uint8', 'encodingFormat': 'png',
              'shape': {'dimensions': ['-1', '-1', '1']}}}
CLASS_LABEL = {
    'pythonClassName':
        'tensorflow_datasets.core.features.class_label_feature.ClassLabel',
    'classLabel': {'numClasses': '3'}}
SEQUENCE = {
    'pythonClassName':
        'tensorflow_datasets.core.features.sequence_feature.Sequence',
    'sequence': {'feature': CLASS_LABEL, 'length': '-1'}}


def _prepare_tfds(root, *, name='tiny', version='1.0.0', labels=((0,), (2,)),
                  label_key='label', label_feature=None, names=('a', 'b', 'c')):
  """Writes a data set in the form that TFDS prepares it: no TensorFlow."""
  folder = root / name / version
  folder.mkdir(parents=True)
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': name.split('/')[0], 'version': version,
      'fileFormat': 'array_record',
      'moduleName': 'somewhere', 'splits': [{
          'name': 'train', 'numBytes': '1', 'shardLengths': [str(len(labels))],
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }]}))
  (folder / 'features.json').write_text(json.dumps({
      'pythonClassName':
          'tensorflow_datasets.core.features.features_dict.FeaturesDict',
      'featuresDict': {'features': {
          'image': IMAGE_FEATURE, label_key: label_feature or CLASS_LABEL}}}))
  (folder / f'{label_key}.labels.txt').write_text('\n'.join(names) + '\n')
  base = name.split('/')[0]
  writer = array_record_module.ArrayRecordWriter(
      str(folder / f'{base}-train.array_record-00000-of-00001'),
      'group_size:1')
  for i, values in enumerate(labels):
    example = tf_example_pb2.Example()
    feature = example.features.feature
    feature['image'].bytes_list.value.append(_image(i))
    feature[label_key].int64_list.value.extend(values)
    writer.write(example.SerializeToString())
  writer.close()
  return folder


def test_tfds_gives_undecoded_images_labels_and_names(tmp_path):
  _prepare_tfds(tmp_path)
  opened = _open('tiny', tmp_path)
  source = opened.splits['train']
  assert len(source) == 2 and not opened.multi_label
  assert opened.num_classes == 3 and opened.class_names == ('a', 'b', 'c')
  assert source[1] == {'image': _image(1), 'label': 2}
  assert source.label(0) == 0 and source.key(1) == 'tiny train 1'


def test_tfds_directory_may_come_from_the_environment(tmp_path, monkeypatch):
  _prepare_tfds(tmp_path)
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  assert len(_open('tiny').splits['train']) == 2


def test_tfds_sequences_of_labels_are_k_hot(tmp_path):
  _prepare_tfds(tmp_path, labels=((0, 2), ()), label_key='labels',
                label_feature=SEQUENCE)
  opened = _open('tiny', tmp_path)
  assert opened.multi_label and opened.num_classes == 3
  assert opened.splits['train'].label(0).tolist() == [1, 0, 1]
  assert opened.splits['train'].label(1).tolist() == [0, 0, 0]


def test_tfds_takes_the_newest_version_or_the_one_asked_for(tmp_path):
  _prepare_tfds(tmp_path, version='2.0.0', labels=((0,),))
  _prepare_tfds(tmp_path, version='10.0.0', labels=((0,),) * 3)
  for name, expected in (('tiny', 3), ('tiny:2.0.0', 1), ('tiny:2.*.*', 1)):
    assert len(_open(name, tmp_path).splits['train']) == expected
  with pytest.raises(ValueError, match='2.0.0, 10.0.0, not in 3.0.0'):
    _open('tiny:3.0.0', tmp_path)


def test_tfds_config_is_found_where_there_is_one(tmp_path):
  _prepare_tfds(tmp_path, name='tiny/rgb')
  assert len(_open('tiny', tmp_path).splits['train']) == 2
  _prepare_tfds(tmp_path, name='tiny/grey')
  with pytest.raises(ValueError, match='tiny/grey, tiny/rgb'):
    _open('tiny', tmp_path)
  assert len(_open('tiny/grey', tmp_path).splits['train']) == 2


def test_missing_tfds_gets_the_command_that_prepares_it(tmp_path):
  with pytest.raises(ValueError) as error:
    _open('cifar1', tmp_path)
  assert (f'tfds build cifar1 --data_dir={tmp_path} '
          '--file_format=array_record') in str(error.value)
  assert "Did you mean 'cifar10'" in str(error.value)


def test_tfrecords_get_the_command_that_converts_them(tmp_path):
  folder = _prepare_tfds(tmp_path)
  records = folder / 'tiny-train.array_record-00000-of-00001'
  records.rename(folder / 'tiny-train.tfrecord-00000-of-00001')
  info = folder / 'dataset_info.json'
  info.write_text(info.read_text().replace('array_record', 'tfrecord'))
  with pytest.raises(ValueError) as error:
    _open('tiny', tmp_path)
  assert (f'tfds convert_format --dataset_version_dir={folder} '
          '--out_file_format=array_record') in str(error.value)


def test_tfds_converted_in_place_is_read(tmp_path):
  folder = _prepare_tfds(tmp_path)
  info = json.loads((folder / 'dataset_info.json').read_text())
  info |= {'fileFormat': 'tfrecord', 'alternativeFileFormats': ['array_record']}
  (folder / 'dataset_info.json').write_text(json.dumps(info))
  assert _open('tiny', tmp_path).splits['train'].label(1) == 2
