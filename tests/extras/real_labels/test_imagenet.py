"""Reassessed ImageNet labels are matched by file name."""

import json

import numpy as np
import pytest

from tests import in_memory
from tests import pictures
from tests import toy
from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.extras.real_labels import imagenet as imagenet_real

CLASSES = 3
# Labels of images 1 to 6; the third has none.
REAL = [[0], [1, 2], [], [2], [0, 1, 2], [1]]


@pytest.fixture
def files(tmp_path):
  """Images in class folders, not ordered by number."""
  pictures.save_all(tmp_path / 'images', [
      *(f'val/n0000000{i % CLASSES}/ILSVRC2012_val_{i:08}.JPEG'
        for i in range(1, len(REAL) + 1)),
      *(f'train/n0000000{i}/n1.JPEG' for i in range(CLASSES))])
  (tmp_path / 'real.json').write_text(json.dumps(REAL))
  return tmp_path


def build(files):
  return toy.build(
      batch_size=4, data={'source': str(files / 'images')},
      evals={'real': {'real_labels': str(files / 'real.json')}})


def test_labels_follow_file_names(files):
  config = data.parse({'source': str(files / 'images'), 'resolution': 8})
  dataset = data.open_dataset(config, split='')
  relabelled = imagenet_real.with_real_labels(dataset, str(files / 'real.json'))
  assert relabelled.multi_label and len(relabelled) == len(REAL)
  numbers = [int(relabelled.source.key(i)[-13:-5]) for i in range(len(REAL))]
  assert numbers != sorted(numbers)
  for i, number in enumerate(numbers):
    assert relabelled[i]['label'] == REAL[number - 1]


def test_accuracy_counts_only_labelled_images(files):
  built = build(files)
  params = built.init_state().params
  bias = params['head']['dense']['bias']
  params['head']['dense']['bias'] = bias.at[1].set(1.0)
  labelled = [entry for entry in REAL if entry]
  assert built.evaluate('real', params).metrics == {
      'accuracy': pytest.approx(np.mean([1 in entry for entry in labelled])),
      'examples': len(labelled)}


class Named(in_memory.Arrays):
  """Like TFDS: images in another order, with their file names."""

  def __getitem__(self, index):
    number = self._labels[index]
    return {'image': self._images[index], 'label': 0,
            'file_name': f'ILSVRC2012_val_{number:08}.JPEG'}


def dataset(numbers, classes=CLASSES):
  images = np.zeros((len(numbers), 8, 8, 3), np.uint8)
  return data.Dataset(
      name='imagenet2012', split='validation', source=Named(images, numbers),
      num_classes=classes, eval_split='validation')


def test_the_file_name_entry_takes_precedence(files):
  relabelled = imagenet_real.with_real_labels(
      dataset([5, 2, 6]), str(files / 'real.json'))
  assert [relabelled[i]['label'] for i in range(3)] == [[0, 1, 2], [1, 2], [1]]


@pytest.mark.parametrize(('number', 'classes', 'message'), [
    (7, CLASSES, 'real_labels are for ILSVRC2012_val_00000001.JPEG to'),
    (1, 2, 'needs 3 classes with one label per image, but imagenet2012 '
     'has 2'),
])
def test_other_images_or_classes_are_errors(files, number, classes, message):
  with pytest.raises(ValueError, match=message):
    imagenet_real.with_real_labels(
        dataset([number], classes), str(files / 'real.json'))


@pytest.mark.parametrize('text', ['{}', '[]', '[[0], 1]', '[[-1]]', 'no'])
def test_invalid_label_files_are_errors(files, text):
  (files / 'other.json').write_text(text)
  for name, words in (('other.json', 'other.json .real_labels.'),
                      ('missing', 'Cannot read .*missing')):
    with pytest.raises(ValueError, match=words):
      imagenet_real.with_real_labels(dataset([1]), str(files / name))


def test_groups_are_kept():
  source = Named(np.zeros((2, 8, 8, 3), np.uint8), [1, 2])
  source.groups_of = lambda indices: np.uint64([7, 8])[indices]
  np.testing.assert_array_equal(split_strings.groups(
      imagenet_real.Relabelled(source, [])), [7, 8])
