"""Image folders: layouts, splits by hash, classes, ignored files, errors."""

import os
import tarfile

import pytest

from tests import own_data
from vit_jax import atomic_files
from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.data.splits import subsets


def write_classes(root, count, *, classes=('cat', 'dog')):
  own_data.write(
      root, *(f'{name}/{i}.png' for name in classes for i in range(count)))


def labels(source):
  return [source.label(i) for i in range(len(source))]


def test_folder_with_splits(tmp_path):
  own_data.write(
      tmp_path, 'train/cat/a.JPG', 'train/cat/v1.0/b.png', 'train/dog/c.webp',
      'val/dog/d.bmp', 'train/cat/notes.txt', 'train/cat/.hidden.png')
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == ('cat', 'dog')
  assert own_data.keys(opened) == {
      'train': ('train/cat/a.JPG', 'train/cat/v1.0/b.png', 'train/dog/c.webp'),
      'val': ('val/dog/d.bmp',)}
  assert sorted(labels(opened.splits['train'])) == [0, 0, 1]
  assert opened.splits['val'][0] == {'image': b'val/dog/d.bmp', 'label': 1}


def test_integer_names_are_numbered_by_value_in_every_source(tmp_path):
  names = [str(i) for i in range(12)]
  write_classes(tmp_path / 'folders', 3, classes=names)
  images = {f'folders/{name}/{i}.png': name for name in names for i in range(3)}
  own_data.write_table(
      tmp_path, 'path,label', images.items(), name='table.csv', images=False)
  (tmp_path / 'tars').mkdir()
  with tarfile.open(tmp_path / 'tars/train.tar', 'w') as tar:
    for number, (path, name) in enumerate(images.items()):
      (tmp_path / 'cls').write_text(name)
      tar.add(tmp_path / path, f'{number}.png')
      tar.add(tmp_path / 'cls', f'{number}.cls')
  for source in ('folders', 'table.csv', 'tars'):
    opened = own_data.open_path(tmp_path / source)
    assert opened.class_names == tuple(names), source
    of_name = {int(example['image'].split(b'/')[0]): example['label']
               for split in opened.splits.values()
               for example in (split[i] for i in range(len(split)))}
    assert of_name == {i: i for i in range(12)}, source


@pytest.mark.parametrize(('names', 'expected'), [
    (('10', '9', '1', '-1'), ('-1', '1', '9', '10')),
    (('010', '9', '100'), ('9', '010', '100')),
    (('10', '9', '1', 'a'), ('1', '10', '9', 'a'))])
def test_only_integer_names_are_numbered_by_value(tmp_path, names, expected):
  write_classes(tmp_path, 2, classes=names)
  assert own_data.open_path(tmp_path).class_names == expected


@pytest.mark.parametrize(('folder', 'split'), [
    ('masks', ''), ('annotations', 'training/')])
def test_images_with_masks(tmp_path, folder, split):
  names = [f'{split}{i}' for i in range(20)] + ['val/d/e'] * bool(split)
  own_data.write(tmp_path, *(f'images/{name}.jpg' for name in names), *(
      f'{folder}/{name}.png' for name in [*names, 'unused']))
  opened = own_data.open_path(tmp_path, labelled=False)
  assert opened.no_labels == 'Pixels have labels, images have none.'
  assert f'{tmp_path}: masks; train 20' in opened.description or not split
  parts = {name: len(source) for name, source in opened.splits.items()}
  assert parts == ({'train': 20, 'val': 1} if split else
                   {'train': 20 - parts['test'], 'test': parts['test']})
  assert min(parts.values()) > 0
  for source in opened.splits.values():
    for i in range(len(source)):
      path = source.key(i)
      assert source[i]['image'] == path.encode()
      assert source[i]['segmentation'].decode() == path.replace(
          'images/', f'{folder}/').replace('.jpg', '.png')


def test_images_with_masks_lie_in_splits_or_not(tmp_path):
  own_data.write(tmp_path, *(f'{folder}/{name}' for name in (
      'train/a.png', 'extra/b.png') for folder in ('images', 'masks')))
  with pytest.raises(ValueError, match=(
      r'split \(train/\), but images/extra/b.png does not')):
    own_data.open_path(tmp_path)


def test_folders_of_masks_hold_the_word_of_a_split(tmp_path):
  own_data.write(tmp_path, *(f'{folder}/{name}.png' for name in (
      'train2017/a', 'train2017/b', 'val2017/c')
                             for folder in ('images', 'masks')))
  assert own_data.sizes(own_data.open_path(tmp_path, labelled=False)) == {
      'train': 2, 'val': 1}


def test_an_image_without_a_mask_or_with_two_is_an_error(tmp_path):
  own_data.write(tmp_path, 'images/a.jpg', 'images/b.jpg', 'masks/a.png')
  with pytest.raises(ValueError, match=(
      '1 of 2 images in .*/images have no mask of the same name in masks/: '
      'images/b.jpg')):
    own_data.open_path(tmp_path)
  own_data.write(tmp_path, 'masks/a.tif')
  with pytest.raises(ValueError, match='of one image, masks/a.png and masks/a'):
    own_data.open_path(tmp_path)
  (tmp_path / 'masks/a.tif').unlink()
  (tmp_path / 'images/a.jpg').unlink()
  (tmp_path / 'images/b.jpg').unlink()
  with pytest.raises(ValueError, match='There are no images in .*/images'):
    own_data.open_path(tmp_path)


@pytest.mark.parametrize(('others', 'expected'), [
    (['val', 'test'], 'test'), (['valid', 'a'], 'valid'),
    (['extra', 'holdout'], 'holdout'), (['sketches'], 'sketches')])
def test_evaluation_is_on_a_split_other_than_train(others, expected):
  assert split_strings.choose_eval_split(['train', *others]) == expected


def test_every_class_holds_out_its_share_and_added_files_move_few(tmp_path):
  write_classes(tmp_path, 100)
  held_out = lambda: set(own_data.keys(own_data.open_path(tmp_path))['test'])
  before = held_out()
  assert sorted(name[:3] for name in before) == ['cat'] * 10 + ['dog'] * 10
  for i in range(50):
    own_data.write(tmp_path, f'cat/new{i}.png')
    after = held_out()
    # A new file may take the place of one, or be one more.
    assert len(before - after) <= 1 and len(after - before) <= 1
    before = after
  assert sorted(name[:3] for name in before) == ['cat'] * 15 + ['dog'] * 10


def test_the_share_of_the_hold_out_is_a_setting_of_data_without_splits(
    tmp_path):
  write_classes(tmp_path / 'x', 20)
  for holdout, count in ((0.1, 4), (0.25, 10)):
    config = data.parse({'source': str(tmp_path / 'x'), 'holdout': holdout})
    assert len(data.open_dataset(config, split='test')) == count
  write_classes(tmp_path / 'y/train', 20)
  write_classes(tmp_path / 'y/test', 20)
  with pytest.raises(ValueError, match='holdout is 0.25, but .*test, train'):
    data.open_dataset(data.parse({
        'source': str(tmp_path / 'y'), 'holdout': 0.25}))
  with pytest.raises(ValueError, match=r'data\.holdout describe'):
    data.open_dataset(data.parse({'source': 'digits', 'holdout': 0.25}))


def test_a_single_train_folder_is_split_like_its_class_folders(tmp_path):
  write_classes(tmp_path / 'train', 100)
  own_data.write(tmp_path, 'test/1.png', 'test/2.png')  # Without labels.
  opened = own_data.open_path(tmp_path)
  # The hold-out does not take the name of the user's split.
  assert opened.eval_split == 'val' and opened.unlabelled == ('test',)
  assert opened.description.endswith('; test has no labels and is ignored')
  inner = own_data.open_path(tmp_path / 'train')
  assert 'ignored' not in inner.description
  assert own_data.keys(opened) == {
      split.replace('test', 'val'): tuple(f'train/{path}' for path in paths)
      for split, paths in own_data.keys(inner).items()}
  assert len(opened.splits['val']) >= 8
  config = data.parse({'source': str(tmp_path)})
  with pytest.raises(ValueError, match=r"split 'test' of .* has no labels"):
    data.open_dataset(config, split='test')


@pytest.mark.parametrize(('train', 'test', 'unlabelled'), [
    ('seg_train/seg_train', 'seg_test/seg_test', 'seg_pred/seg_pred'),
    ('data-train', 'data-val', 'extra'), ('Train', 'Test', 'more'),
    ('train/train', 'test/test', 'val/val')])
def test_folders_with_the_word_of_a_split_or_repeated_are_not_classes(
    tmp_path, train, test, unlabelled):
  write_classes(tmp_path / train, 4)
  write_classes(tmp_path / test, 2)
  own_data.write(tmp_path, f'{unlabelled}/1.png')
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == ('cat', 'dog')
  assert sorted(own_data.sizes(opened).values()) == [4, 8]
  assert opened.unlabelled == (unlabelled.split('/')[0],)
  assert opened.splits['train'].key(0).startswith(f'{train}/')


def test_folders_with_the_same_subfolders_are_not_classes(tmp_path):
  write_classes(tmp_path / 'colour', 2)
  write_classes(tmp_path / 'grey', 2)
  with pytest.raises(ValueError, match=(
      r'folders colour, grey of .* same subfolders \(cat, dog\)')):
    own_data.open_path(tmp_path)
  own_data.write(tmp_path, 'grey/cover.png', 'other/emu/1.png')
  with pytest.raises(ValueError, match='folders colour, grey .* subfolders'):
    own_data.open_path(tmp_path)
  own_data.write(tmp_path, 'colour/cover.png', 'other/cover.png')
  assert own_data.open_path(tmp_path).class_names == (
      'colour', 'grey', 'other')
  # Tiny ImageNet has CLASS/images.
  own_data.write(tmp_path / 'x', 'a/images/1.png', 'b/images/1.png')
  assert own_data.open_path(tmp_path / 'x').class_names == ('a', 'b')


def test_a_small_data_set_holds_out_an_image(tmp_path):
  own_data.write(tmp_path, 'a/0.png', 'b/0.png', 'b/2.png')
  assert own_data.sizes(own_data.open_path(tmp_path)) == {'train': 2, 'test': 1}


@pytest.mark.parametrize('paths', [
    ['test/a.png', 'fail/b.png'], ['test/a.png', 'test/deep/b.png', 'c/d.png'],
    ['train/a.png', 'bus/b.png'], ['valid/a.png', 'invalid/b.png'],
    ['tests/x/a.png', 'trainer/x/b.png'],
    ['train_station/a.png', 'test_tube/b.png', 'bus/c.png']])
def test_a_class_may_have_the_name_of_a_split(tmp_path, paths):
  own_data.write(tmp_path, *paths)
  names = {path.split('/')[0] for path in paths}
  assert set(own_data.open_path(tmp_path).class_names) == names


@pytest.mark.parametrize(('paths', 'message'), [
    (['train/cat/a.png', 'train/dog/b.png', 'test/cat/c.png', 'test/Dog/d.png'],
     '1 of the classes .* only in other splits: Dog. .*lower case'),
    (['train/cat/x.txt', 'test/cat/0.png', 'test/dog/0.png'],
     r'no image that can be read in train \(train/cat \(1 .txt\)\), but '),
    (['data/cat/a.png', 'data/dog/b.png'],
     "single class folder, 'data', in .*one level deeper"),
    (['train/cat/a.png', 'train/cat/b.png'], "single class folder, 'cat', in "),
    (['class/readme.txt'], 'Found no images .*It holds: class'),
    (['1.JPEG', '2.png'],
     'Found 2 images in .* but none in a class folder, and no table'),
    (['train/1.png', 'test/1.png'], 'no class folders in train/.*a table of'),
    (['train_1/a/1.png', 'train_2/a/1.png'],
     r'splits \(train_1/, train_2/\).*Rename the training folder to train/'),
    (['hold-out/1.png', 'val2017/1.png'], 'hold-out/, val2017/')])
def test_errors_name_the_expected_layout(tmp_path, paths, message):
  own_data.write(tmp_path, *paths)
  with pytest.raises(ValueError, match=message):
    own_data.open_path(tmp_path)


def test_system_files_are_ignored(tmp_path):
  write_classes(tmp_path, 4)
  expected = own_data.keys(own_data.open_path(tmp_path))
  own_data.write(
      tmp_path, 'cat/@eaDir/1.png/SYNO_THUMB.png', '__MACOSX/a/1.png',
      'lost+found/1.png', '.Trash/1.png', '.DS_Store', 'cat/Thumbs.db',
      'cat/._1.png', 'dog/desktop.ini')
  assert own_data.keys(own_data.open_path(tmp_path)) == expected


def test_links_are_followed_but_not_in_cycles(tmp_path):
  write_classes(tmp_path / 'all', 4)
  own_data.write(tmp_path, 'far/x.png', 'more/x.png')
  all_keys = lambda: {path for paths in own_data.keys(own_data.open_path(
      tmp_path / 'all')).values() for path in paths}
  expected = all_keys()
  (tmp_path / 'all/cat/around').symlink_to('..')
  (tmp_path / 'all/dog/self').symlink_to('.')
  (tmp_path / 'all/cat/far').symlink_to(tmp_path / 'far')
  (tmp_path / 'far/back').symlink_to(tmp_path / 'all')
  (tmp_path / 'all/dog/one.png').symlink_to(tmp_path / 'more/x.png')
  assert all_keys() == expected | {'cat/far/x.png', 'dog/one.png'}


def test_names_that_differ_in_unicode_form_are_one_class(tmp_path):
  composed, decomposed = 'caf\u00e9', 'cafe\u0301'
  own_data.write(tmp_path, *(
      f'{split}/{name}/{i}.png' for split in ('train', 'test') for i in range(2)
      for name in (composed, decomposed, 'tea')))
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == (composed, 'tea')
  assert own_data.labels(opened)[f'test/{decomposed}/1.png'] == 0
  table = own_data.write_table(tmp_path, 'path,label', (
      (f'train/{name}/0.png', name) for name in (composed, decomposed, 'tea')))
  assert own_data.open_path(table).class_names == (composed, 'tea')


def test_names_need_not_be_utf_8(tmp_path):
  names = [os.fsdecode(name) for name in (b'caf\xe9', b'tea')]
  own_data.write(tmp_path, *(
      f'{split}/{name}/{name}{i}.png'
      for split in ('train', 'test') for name in names for i in range(2)))
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == tuple(names)
  keys = own_data.keys(opened)['train']
  assert len(keys) == 4
  atomic_files.write_text(tmp_path / 'exclude.txt', keys[0])
  kept, _ = subsets.exclude(
      opened.splits['train'], str(tmp_path / 'exclude.txt'), name='x')
  assert len(kept) == 3


def test_all_means_every_image_of_a_folder_without_splits(tmp_path):
  write_classes(tmp_path, 10)
  config = data.DataConfig(source=str(tmp_path))
  assert data.open_dataset(config, split='').num_examples == 2
  assert data.open_dataset(config, split='all').num_examples == 20
