"""What TFDS prepared is read; what it did not gets the command to run."""

import io
import json

from array_record.python import array_record_module
import numpy as np
from PIL import Image
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2

from vit_jax import data
from vit_jax.data import known_datasets
from vit_jax.data import vtab
from vit_jax.data.sources import tfds as tfds_lib
from vit_jax.data.splits import overlap

IMAGE_FEATURE = {
    'pythonClassName': 'tensorflow_datasets.core.features.image_feature.Image',
    'image': {'dtype': 'uint8', 'encodingFormat': 'png',
              'shape': {'dimensions': ['-1', '-1', '1']}}}
CLASS_LABEL = {
    'pythonClassName':
        'tensorflow_datasets.core.features.class_label_feature.ClassLabel',
    'classLabel': {'numClasses': '3'}}
TEXT = {
    'pythonClassName': 'tensorflow_datasets.core.features.text_feature.Text',
    'text': {}}
SEQUENCE = {
    'pythonClassName':
        'tensorflow_datasets.core.features.sequence_feature.Sequence',
    'sequence': {'feature': CLASS_LABEL, 'length': '-1'}}


def _open(name, data_dir=''):
  return tfds_lib.open_tfds(name, str(data_dir))


def _image(value):
  buffer = io.BytesIO()
  Image.new('L', (6, 5), value).save(buffer, 'PNG')
  return buffer.getvalue()


def _prepare_tfds(root, *, name='tiny', version='1.0.0', labels=((0,), (2,)),
                  label_key='label', label_feature=None, names=('a', 'b', 'c'),
                  files=(), splits=('train',)):
  """Writes a data set in the form that TFDS prepares it: no TensorFlow."""
  folder = root / name / version
  folder.mkdir(parents=True)
  (folder / 'dataset_info.json').write_text(json.dumps({
      'name': name.split('/')[0], 'version': version,
      'fileFormat': 'array_record',
      'moduleName': 'somewhere', 'splits': [{
          'name': split, 'numBytes': '1', 'shardLengths': [str(len(labels))],
          'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      } for split in splits]}))
  (folder / 'features.json').write_text(json.dumps({
      'pythonClassName':
          'tensorflow_datasets.core.features.features_dict.FeaturesDict',
      'featuresDict': {'features': {
          'image': IMAGE_FEATURE, label_key: label_feature or CLASS_LABEL,
          **({'file_name': TEXT} if files else {})}}}))
  (folder / f'{label_key}.labels.txt').write_text('\n'.join(names) + '\n')
  base = name.split('/')[0]
  for split in splits:
    writer = array_record_module.ArrayRecordWriter(
        str(folder / f'{base}-{split}.array_record-00000-of-00001'),
        'group_size:1')
    for i, values in enumerate(labels):
      example = tf_example_pb2.Example()
      feature = example.features.feature
      feature['image'].bytes_list.value.append(_image(i))
      feature[label_key].int64_list.value.extend(values)
      if files:
        feature['file_name'].bytes_list.value.append(files[i].encode())
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


def test_tfds_sequences_of_labels_are_lists_of_any_length(tmp_path):
  _prepare_tfds(tmp_path, labels=((0, 2), ()), label_key='labels',
                label_feature=SEQUENCE)
  opened = _open('tiny', tmp_path)
  assert opened.multi_label and opened.num_classes == 3
  assert opened.splits['train'].label(0).tolist() == [0, 2]
  assert opened.splits['train'].label(1).tolist() == []


def test_tfds_evaluates_on_a_split_that_there_is(tmp_path):
  _prepare_tfds(tmp_path, splits=('train', 'validation'))
  _prepare_tfds(tmp_path, name='both', splits=('test', 'train', 'val'))
  _prepare_tfds(tmp_path, name='cifar10', splits=('train', 'validation'))
  assert _open('tiny', tmp_path).eval_split == 'validation'
  assert _open('both', tmp_path).eval_split == 'test'
  assert _open('cifar10', tmp_path).eval_split == 'test'


def test_a_version_that_is_written_down_chooses_no_other_examples(tmp_path):
  _prepare_tfds(tmp_path)
  plain, versioned = (_open(name, tmp_path).splits['train']
                      for name in ('tiny', 'tiny:1.0.0'))
  assert plain.key(1) == versioned.key(1) == 'tiny train 1'
  assert plain.numbering == versioned.numbering == ('tiny train', 0)


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


def test_other_formats_get_the_command_that_converts_them(tmp_path):
  folder = _prepare_tfds(tmp_path)
  info = folder / 'dataset_info.json'
  info.write_text(info.read_text().replace('array_record', 'riegeli'))
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


def test_the_name_of_a_file_is_beside_its_image(tmp_path):
  files = ('ILSVRC2012_val_00000002.JPEG', 'ILSVRC2012_val_00000001.JPEG')
  _prepare_tfds(tmp_path, files=files)
  source = _open('tiny', tmp_path).splits['train']
  assert tuple(source[i]['file_name'] for i in range(2)) == files


def test_what_results_are_published_on_is_not_trained_on(
    tmp_path, monkeypatch):
  """Of a data set that TFDS has as one split."""
  for name in ('eurosat', 'resisc45'):
    row, task = known_datasets.facts(name), vtab.TASKS[name]
    assert row.parts['test'] == task.test and row.eval_split == 'test'
    assert row.parts['train'] == task.test.replace('[', '[:').replace(':]', ']')
  monkeypatch.setitem(known_datasets.DATASETS, 'eurosat', known_datasets.DatasetFacts(
      parts={'train': 'train[:6]', 'test': 'train[6:]'}))
  _prepare_tfds(tmp_path, name='eurosat/rgb', labels=((0,), (2,)) * 5)
  section = data.parse({'source': 'eurosat/rgb', 'data_dir': str(tmp_path)})
  trained, tested = (data.open_dataset(section, split=s) for s in (None, ''))
  assert (len(trained), len(tested)) == (6, 4) and tested.split == 'test'
  assert not overlap.overlap(trained, tested)
  assert tested.source.key(0) == 'eurosat/rgb train 6'
  assert list(_open('eurosat', tmp_path).splits) == ['train', 'test']


def test_parts_that_somebody_prepared_are_taken_as_they_are(tmp_path):
  _prepare_tfds(tmp_path, name='resisc45', splits=('train', 'test'))
  assert [len(of) for of in _open('resisc45', tmp_path).splits.values()] == [
      2, 2]


def test_a_label_of_floating_point_is_a_number_to_predict():
  features = tfds.features
  for feature, targets in (
      (features.Scalar(np.float32), ('age',)),
      (features.Tensor(shape=(2,), dtype=np.float64), ('age_0', 'age_1'))):
    found = tfds_lib._label_facts(
        feature, known_datasets.facts('mine'), what='mine.age')
    assert (found.targets, found.num_classes) == (targets, len(targets))
    label = found.of(np.ones(feature.shape, feature.np_dtype))
    assert label.shape == (len(targets),) and label.dtype == np.float32
  with pytest.raises(ValueError, match='how many classes'):
    tfds_lib._label_facts(
        features.Tensor(shape=(None,), dtype=np.float32),
        known_datasets.facts('mine'), what='mine.age')
