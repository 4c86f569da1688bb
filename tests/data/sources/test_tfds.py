"""Datasets prepared by TFDS; missing ones get the command to prepare them."""

import io
import json

import numpy as np
from PIL import Image
import pytest
import tensorflow_datasets as tfds

from tests import pictures
from tests import tfds_files
from vit_jax import data
from vit_jax.data import examples
from vit_jax.data import known_datasets
from vit_jax.data.sources import tfds as tfds_lib
from vit_jax.data.splits import split_strings

IMAGE = tfds.features.Image(shape=(None, None, 1), encoding_format='png')
CLASS_LABEL = tfds.features.ClassLabel(names=['a', 'b', 'c'])


def png(value):
  return pictures.encode(Image.new('L', (6, 5), value))


@pytest.fixture
def prepare(tmp_path):
  """Returns a function that writes a dataset to `tmp_path`."""
  def write(name='tiny', version='1.0.0', *, labels=((0,), (2,)),
            label_key='label', label_feature=CLASS_LABEL, files=(),
            splits=('train',)):
    examples = [{'image': [png(i)], label_key: list(values)}
                for i, values in enumerate(labels)]
    for example, file in zip(examples, files):
      example['file_name'] = [file.encode()]
    features = {'image': IMAGE, label_key: label_feature,
                **({'file_name': tfds.features.Text()} if files else {})}
    return tfds_files.write(tmp_path, name, version, features,
                            dict.fromkeys(splits, examples))
  return write


@pytest.fixture
def open_tfds(tmp_path):
  return lambda name: tfds_lib.open_source(
      name, data.parse({'data_dir': str(tmp_path)}))


def test_images_are_undecoded_and_classes_named(prepare, tmp_path, monkeypatch):
  files = ('ILSVRC2012_val_00000002.JPEG', 'ILSVRC2012_val_00000001.JPEG')
  prepare(files=files)
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  opened = tfds_lib.open_source('tiny', data.parse({}))
  source = opened.splits['train']
  assert len(source) == 2 and not opened.multi_label
  assert opened.num_classes == 3 and opened.class_names == ('a', 'b', 'c')
  assert source[1] == {'image': png(1), 'label': 2, 'file_name': files[1]}
  assert source.label(0) == 0 and source.key(1) == 'tiny train 1'


@pytest.mark.parametrize(('names', 'read'), [
    (['1', '10', '2'], ('1', '10', '2')), (['0', '1', '2'], None)])
def test_class_names_may_be_numbers(prepare, open_tfds, names, read):
  prepare(label_feature=tfds.features.ClassLabel(names=names))
  assert open_tfds('tiny').class_names == read


def test_masks_are_undecoded(tmp_path):
  mask = np.arange(30, dtype=np.uint8).reshape(5, 6)
  tfds_files.write(tmp_path, 'tiny', '1.0.0', {
      'image': IMAGE, 'label': CLASS_LABEL, 'segmentation_mask':
      tfds.features.Image(shape=(None, None, 1), use_colormap=True)}, {
          'train': [{'image': [png(3)], 'label': [1], 'segmentation_mask': [
              pictures.encode(Image.fromarray(mask))]}]})
  config = data.parse({
      'source': 'tiny', 'data_dir': str(tmp_path), 'resolution': (10, 12)})
  dataset = data.open_dataset(config)
  found = Image.open(io.BytesIO(dataset[0]['segmentation']))
  np.testing.assert_array_equal(found, mask)
  # Training reads no masks.
  load = examples.LoadExample(dataset, config, train=True)
  assert set(load(0, np.random.default_rng(0))) == {'image', 'label', 'mask'}


def test_the_evaluation_split_is_the_published_one_if_there_is_one(
    prepare, open_tfds):
  for name, split in (('tiny', 'validation'), ('cifar10', 'test')):
    prepare(name, splits=('train', 'validation'))
    assert open_tfds(name).eval_split == split


def test_the_newest_or_given_version_and_the_only_config_are_opened(
    prepare, open_tfds):
  prepare(version='2.0.0', labels=((0,),))
  prepare(version='10.0.0', labels=((0,),) * 3)
  for name, expected in (('tiny', 3), ('tiny:2.0.0', 1), ('tiny:2.*.*', 1)):
    source = open_tfds(name).splits['train']
    assert len(source) == expected
    # Subsets do not depend on whether the version is given.
    assert source.key(0) == 'tiny train 0'
    assert source.numbering == ('tiny train', 0)
  with pytest.raises(ValueError, match='2.0.0, 10.0.0, not in 3.0.0'):
    open_tfds('tiny:3.0.0')
  prepare('other/rgb')
  assert len(open_tfds('other').splits['train']) == 2
  prepare('other/grey')
  with pytest.raises(ValueError, match='other/grey, other/rgb'):
    open_tfds('other')
  assert len(open_tfds('other/grey').splits['train']) == 2


def test_other_formats_get_the_command_that_converts_them(prepare, open_tfds):
  folder = prepare()
  path = folder / 'dataset_info.json'
  info = json.loads(path.read_text()) | {'fileFormat': 'riegeli'}
  path.write_text(json.dumps(info))
  with pytest.raises(ValueError, match=(
      f'tfds convert_format --dataset_version_dir={folder} '
      '--out_file_format=array_record')):
    open_tfds('tiny')
  # TFDS records a conversion like this.
  info['alternativeFileFormats'] = ['array_record']
  path.write_text(json.dumps(info))
  assert open_tfds('tiny').splits['train'].label(1) == 2


def test_published_test_images_are_not_trained_on(
    prepare, open_tfds, tmp_path, monkeypatch):
  for name, parts in (('eurosat', ('train[:6]', 'train[6:]')),
                      ('jft', ('full[1:]', 'full[:1]'))):
    monkeypatch.setitem(
        known_datasets.DATASETS, name, known_datasets.DatasetFacts(
            num_classes=9, parts=dict(zip(('train', 'test'), parts))))
  sizes = lambda name: {
      split: len(of) for split, of in open_tfds(name).splits.items()}
  prepare('eurosat/rgb', labels=((0,), (2,)) * 5)
  config = data.parse({'source': 'eurosat/rgb', 'data_dir': str(tmp_path)})
  trained, tested = (data.open_dataset(config, split=s) for s in (None, ''))
  assert (len(trained), len(tested)) == (6, 4) and tested.split == 'test'
  assert trained.num_classes == 3  # As the files declare, whatever their name.
  assert not trained.overlaps(tested)
  assert tested.source.key(0) == 'eurosat/rgb train 6'
  assert sizes('eurosat') == {'train': 6, 'test': 4}
  prepare('mine')
  assert len(data.open_dataset(config, split='', source='mine')) == 2
  prepare('resisc45', splits=('train', 'test'))  # Prepared in two parts.
  assert sizes('resisc45') == {'train': 2, 'test': 2}
  prepare('jft', splits=('full',))
  assert sizes('jft') == {'full': 2, 'train': 1, 'test': 1}


@pytest.mark.parametrize(('feature', 'labels', 'facts'), [
    (CLASS_LABEL, [(i % 3,) for i in range(7)], (3, False, ())),
    (tfds.features.Sequence(CLASS_LABEL),
     [tuple(range(i % 4)) for i in range(7)], (3, True, ())),
    (tfds.features.Scalar(np.float32), [(i / 2,) for i in range(7)],
     (1, False, ('label',))),
    (tfds.features.Tensor(shape=(2,), dtype=np.float64),
     [(i / 2, 1.0) for i in range(7)], (2, False, ('label_0', 'label_1')))])
def test_labels_have_the_kind_of_their_feature_and_are_read_together(
    feature, labels, facts, prepare, open_tfds, monkeypatch):
  monkeypatch.setattr(tfds_lib, '_BLOCK', 3)
  prepare(label_feature=feature, labels=labels)
  opened = open_tfds('tiny')
  assert (opened.num_classes, opened.multi_label, opened.targets) == facts
  source = split_strings.select_split(
      opened, 'train[2:]+train[:2]', name='tiny')
  found = [*split_strings.labels(source)]
  assert [np.atleast_1d(label).tolist() for label in found] == [
      [*label] for label in (*labels[2:], *labels[:2])]
  for index, label in enumerate(found):
    np.testing.assert_array_equal(label, source.label(index))
    assert not opened.targets or label.dtype == np.float32
    np.testing.assert_array_equal(label, source[index]['label'])


@pytest.mark.parametrize('damage', [
    lambda data: data.replace(b'PNG', b'PNX', 1),
    lambda data: data[:len(data) // 2]])
def test_a_damaged_record_is_unreadable(damage, prepare, tmp_path):
  path = prepare(labels=((0,), (2,), (1,))) / (
      'tiny-train.array_record-00000-of-00001')
  path.write_bytes(damage(path.read_bytes()))
  dataset = data.open_dataset(
      data.parse({'source': 'tiny', 'data_dir': str(tmp_path)}))
  for start, read in (
      ('', lambda: dataset[0]),
      ('tiny train 0: ', lambda: dataset.source.label(0)),
      ('tiny train 0: ', lambda: data.class_labels(dataset, setting=''))):
    with pytest.raises(ValueError, match=f'^{start}its record is damaged: '):
      read()


@pytest.mark.parametrize(('feature', 'label', 'empty'), [
    (CLASS_LABEL, [0], [-1]), (tfds.features.Sequence(CLASS_LABEL), [0], []),
    (tfds.features.Scalar(np.float32), [0.5], [float('nan')])])
def test_a_split_without_labels_is_named_and_not_evaluated(
    feature, label, empty, tmp_path, open_tfds):
  split = lambda *labels: [{'image': [png(0)], 'label': one} for one in labels]
  tfds_files.write(
      tmp_path, 'tiny', '1.0.0', {'image': IMAGE, 'label': feature}, {
          'train': split(*[empty] * 2, label), 'test': split(*[empty] * 3),
          'validation': split(label)})
  opened = open_tfds('tiny')
  assert opened.unlabelled == ('test',) and opened.eval_split == 'validation'
  assert opened.description == 'test has no labels and is ignored'
  config = data.parse({'source': 'tiny', 'data_dir': str(tmp_path)})
  assert len(data.open_dataset(config, split='test')) == 3
  with pytest.raises(ValueError, match="split 'test' of tiny has no labels"):
    data.open_dataset(config, split='train+test[:1]', labelled=True)
