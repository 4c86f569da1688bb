"""A folder is read in the layout that was meant, or not at all."""

import io
import re

from etils import epath
import numpy as np
from PIL import Image
import pytest

from vit_jax.data.sources import class_folders
from vit_jax.data.splits import split_strings


def _open(root):
  return class_folders.open_folder(epath.Path(root))


def _image(value, suffix='.png'):
  buffer = io.BytesIO()
  Image.new('L', (6, 5), value).save(
      buffer, Image.registered_extensions()[suffix.lower()])
  return buffer.getvalue()


def _write(root, *paths):
  for i, path in enumerate(paths):
    path = root / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_image(10 * i, path.suffix))


def _write_classes(root, count, *, classes=('cat', 'dog')):
  _write(root, *(f'{name}/{i}.png' for name in classes for i in range(count)))


def _paths(opened):
  return {split: tuple(sorted(source.paths))
          for split, source in opened.splits.items()}


def test_folder_with_splits(tmp_path):
  _write(tmp_path, 'train/cat/a.JPG', 'train/cat/deep/b.png',
         'train/dog/c.webp', 'val/dog/d.bmp')
  (tmp_path / 'train/cat/notes.txt').write_text('no image')
  (tmp_path / 'train/cat/.hidden.png').write_bytes(b'')
  opened = _open(tmp_path)
  assert opened.class_names == ('cat', 'dog')
  assert _paths(opened) == {
      'train': ('train/cat/a.JPG', 'train/cat/deep/b.png', 'train/dog/c.webp'),
      'val': ('val/dog/d.bmp',)}
  assert sorted(opened.splits['train'].labels) == [0, 0, 1]
  assert opened.splits['val'][0]['label'] == 1
  assert opened.splits['val'][0]['image'] == _image(30, '.bmp')
  assert opened.eval_split == 'val'


@pytest.mark.parametrize('others,expected', [
    (['val', 'test'], 'test'), (['valid', 'a'], 'valid'), (['dev'], 'dev'),
    (['extra', 'holdout'], 'holdout'), (['sketches'], 'sketches')])
def test_what_was_trained_on_is_never_held_out(tmp_path, others, expected):
  for split in ('train', *others):
    _write_classes(tmp_path / split, 1)
  assert _open(tmp_path).eval_split == expected


def test_one_level_folder_is_split_by_name_for_ever(tmp_path):
  _write_classes(tmp_path, 100)
  before = _paths(_open(tmp_path))
  train, test = before['train'], before['test']
  assert len(train) + len(test) == 200 and not set(train) & set(test)
  assert 8 <= len(test) <= 35
  _write(tmp_path, 'cat/new.png')
  after = _paths(_open(tmp_path))
  assert set(train) <= set(after['train']) and set(test) <= set(after['test'])


def test_a_part_of_a_split_has_images_of_every_class(tmp_path):
  _write_classes(tmp_path, 100, classes=('cat', 'dog', 'emu'))
  train = _open(tmp_path).splits['train']
  for part in (train.labels[:50], train.labels[-50:]):
    assert np.bincount(part).min() >= 8
  for path, label in zip(train.paths, train.labels):
    assert path.startswith(('cat', 'dog', 'emu')[label])


def test_train_alone_is_split_as_its_classes_would_be(tmp_path):
  _write_classes(tmp_path / 'train', 100)
  # Images without a class, as the test sets of competitions have them.
  _write(tmp_path, 'test/1.png', 'test/2.png')
  opened = _open(tmp_path)
  assert opened.eval_split == 'test'
  inner = _paths(_open(tmp_path / 'train'))
  assert _paths(opened) == {
      split: tuple(f'train/{path}' for path in paths)
      for split, paths in inner.items()}
  assert len(inner['test']) >= 8


def test_a_class_of_one_image_is_trained_on_wherever_its_hash_falls(tmp_path):
  names = [f'class{i}' for i in range(60)]
  _write_classes(tmp_path, 1, classes=names)
  held_out = [n for n in names if split_strings.is_held_out(f'{n}/0.png')]
  assert held_out  # Or this test shows nothing.
  assert sorted(_open(tmp_path).splits['train'].labels) == list(range(60))


@pytest.mark.parametrize('splits,words', [
    (['val', 'test'], 'Rename the folder to train on to train/'),
    (['training', 'testing'], 'Rename training/ to train/'),
    (['Train', 'Test'], 'Rename Train/ to train/'),
    (['training_set', 'test_set'], 'Rename training_set/ to train/'),
    (['train2017', 'val2017'], 'Rename train2017/ to train/'),
    (['validation'], 'Rename the folder'), (['dev', 'eval'], 'Rename'),
    (['hold-out', 'valid'], 'Rename')])
def test_splits_without_train_are_not_taken_for_classes(
    tmp_path, splits, words):
  for split in splits:
    _write_classes(tmp_path / split, 1)
  with pytest.raises(ValueError, match=words) as error:
    _open(tmp_path)
  for split in splits:
    assert f'{split}/ (with cat, dog)' in str(error.value)
  assert f'Expected {tmp_path}/train/CLASS/*.jpg' in str(error.value)


@pytest.mark.parametrize('paths', [
    ['test/a.png', 'fail/b.png'], ['test/a.png', 'test/deep/b.png', 'c/d.png'],
    ['train/a.png', 'bus/b.png'], ['valid/a.png', 'invalid/b.png'],
    ['tests/x/a.png', 'trainer/x/b.png']])
def test_a_class_may_be_called_like_a_split(tmp_path, paths):
  _write(tmp_path, *paths)
  names = {path.split('/')[0] for path in paths}
  assert set(_open(tmp_path).class_names) == names


def test_classes_called_like_splits_are_told_apart_by_moving_them(tmp_path):
  paths = ['valid/x/a.png', 'broken/x/b.png']
  _write(tmp_path / 'flat', *paths)
  with pytest.raises(ValueError, match='move all class folders into .*/train/'):
    _open(tmp_path / 'flat')
  _write(tmp_path / 'moved/train', *paths)
  assert _open(tmp_path / 'moved').class_names == ('broken', 'valid')


@pytest.mark.parametrize('prefix', ['', 'train/', 'data/'])
def test_a_single_class_is_an_error(tmp_path, prefix):
  _write(tmp_path, f'{prefix}cat/a.png', f'{prefix}cat/b.png')
  name = 'data' if prefix == 'data/' else 'cat'
  with pytest.raises(ValueError, match=re.escape(
      f'a single class folder, {name!r}, in {tmp_path}; a classifier needs '
      f'two classes. Expected {tmp_path}/train/CLASS/*.jpg, or '
      f'{tmp_path}/CLASS/*.jpg')):
    _open(tmp_path)


def test_folders_below_a_class_may_have_a_dot_in_their_name(tmp_path):
  _write(tmp_path, 'train/v1.0/batch.2/a.png', 'train/dog/b.png',
         'test/dog/2024.05/c.png')
  opened = _open(tmp_path)
  assert _paths(opened) == {
      'train': ('train/dog/b.png', 'train/v1.0/batch.2/a.png'),
      'test': ('test/dog/2024.05/c.png',)}


def test_a_class_without_training_images_is_named(tmp_path):
  _write(tmp_path, 'train/cat/a.png', 'train/dog/b.png', 'test/cat/c.png',
         'test/Dog/d.png')
  with pytest.raises(ValueError, match='1 of 3 classes .* have no image in '
                     'train/, only in test/: Dog. .*lower case'):
    _open(tmp_path)
  (tmp_path / 'train/Dog').mkdir()
  with pytest.raises(ValueError, match='only in test/: Dog'):
    _open(tmp_path)
  _write(tmp_path, 'train/Dog/e.png')
  assert _open(tmp_path).class_names == ('Dog', 'cat', 'dog')


def test_an_empty_train_is_an_error(tmp_path):
  (tmp_path / 'train/cat').mkdir(parents=True)
  _write_classes(tmp_path / 'test', 1)
  with pytest.raises(ValueError, match='2 of 2 classes .*: cat, dog'):
    _open(tmp_path)


def test_folder_errors_say_what_was_expected(tmp_path):
  with pytest.raises(ValueError, match='There is no folder .*/nowhere'):
    _open(tmp_path / 'nowhere')
  (tmp_path / 'class').mkdir()
  (tmp_path / 'class' / 'readme.txt').write_text('')
  with pytest.raises(ValueError, match='Found no images .*It holds: class'):
    _open(tmp_path)


def test_what_systems_make_of_themselves_is_no_image(tmp_path):
  _write_classes(tmp_path, 4)
  expected = _paths(_open(tmp_path))
  _write(tmp_path, 'cat/@eaDir/1.png/SYNO_THUMB.png', '__MACOSX/a/1.png',
         'lost+found/1.png', '.Trash/1.png')
  for name in ('.DS_Store', 'cat/Thumbs.db', 'cat/._1.png', 'dog/desktop.ini'):
    (tmp_path / name).write_bytes(b'')
  (tmp_path / 'cat/folder.png').mkdir()
  assert _paths(_open(tmp_path)) == expected


def test_links_are_followed_and_never_in_a_circle(tmp_path):
  _write_classes(tmp_path / 'all', 4)
  _write(tmp_path, 'far/x.png')
  expected = {path for of in _paths(_open(tmp_path / 'all')).values()
              for path in of}
  (tmp_path / 'all/cat/around').symlink_to('..')
  (tmp_path / 'all/dog/self').symlink_to('.')
  (tmp_path / 'all/cat/far').symlink_to(tmp_path / 'far')
  (tmp_path / 'far/back').symlink_to(tmp_path / 'all')
  (tmp_path / 'all/dog/one.png').symlink_to(tmp_path / 'far/x.png')
  found = _paths(_open(tmp_path / 'all'))
  assert {path for of in found.values() for path in of} == expected | {
      'cat/far/x.png', 'dog/one.png'}


@pytest.mark.parametrize('names', [('train', 'test'), ('train', 'val', 'dev')])
def test_splits_without_class_folders_are_not_taken_for_classes(
    tmp_path, names):
  _write(tmp_path, *(f'{name}/{i}.png' for name in names for i in range(3)))
  with pytest.raises(ValueError, match='no class folders in these.*a table of'):
    _open(tmp_path)


def test_a_split_that_is_passed_over_is_told_of(tmp_path):
  _write_classes(tmp_path / 'train', 9)
  assert 'passed over' not in _open(tmp_path).description
  _write(tmp_path, 'val/1.png', 'notes/a.png')
  words = _open(tmp_path).description
  assert words.endswith('; val/ has no class folders, and is passed over')


def test_of_a_handful_of_images_one_is_held_out(tmp_path):
  for count in (1, 2, 3):
    _write_classes(tmp_path / f'{count}', count, classes=('a', 'b'))
    found = _paths(_open(tmp_path / f'{count}'))
    assert len(found['test']) >= (count > 1)
    assert {path[0] for path in found['train']} == {'a', 'b'}
  _write(tmp_path, 'odd/a/0.png', 'odd/b/0.png', 'odd/b/2.png')
  assert len(_paths(_open(tmp_path / 'odd'))['test']) == 1


def test_images_without_classes_are_not_said_to_be_none(tmp_path):
  _write(tmp_path, '1.JPEG', '2.png')
  with pytest.raises(ValueError, match='Found 2 images in .* but none in a '
                     'class folder, and no table'):
    _open(tmp_path)
