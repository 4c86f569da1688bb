"""Class folders: splits, hold-out by hash, numbering, empty classes, errors."""

import pytest

from tests import own_data
from tests import toy
from vit_jax import data

SYSTEM = (
    '#recycle', '@eaDir', '@Recycle', '#snapshot', '@Recently-Snapshot',
    '$RECYCLE.BIN', '$Recycle.Bin', 'System Volume Information', 'lost+found',
    '.AppleDouble', '__MACOSX', '.ipynb_checkpoints', '.Trash-1000',
    'Network Trash Folder')


def test_folders_of_splits_and_classes(tmp_path):
  own_data.write(
      tmp_path, 'train/cat/a.JPG', 'train/cat/v1.0/b.png', 'train/dog/c.webp',
      'val/dog/d.bmp', 'train/cat/notes.txt', 'train/cat/.hidden.png')
  opened = own_data.open_path(tmp_path)
  assert own_data.keys(opened) == {
      'train': ('train/cat/a.JPG', 'train/cat/v1.0/b.png', 'train/dog/c.webp'),
      'val': ('val/dog/d.bmp',)}
  assert own_data.images(opened) == {
      path: path.split('/')[1] for of in own_data.keys(opened).values()
      for path in of}
  assert opened.description.endswith('not read: 1 .txt')


@pytest.mark.parametrize(('names', 'expected'), [
    (('10', '9', '1', '-1'), ('-1', '1', '9', '10')),
    (('010', '9', '100'), ('9', '010', '100')),
    (('10', '9', '1', 'a'), ('1', '10', '9', 'a')),
    (('1.5', '0.5'), ('0.5', '1.5')), (('c;d', 'a;b'), ('a;b', 'c;d'))])
def test_only_names_that_are_integers_are_numbered_by_value(
    tmp_path, names, expected):
  own_data.write_folders(tmp_path, *names)
  assert own_data.open_path(tmp_path).class_names == expected


def test_every_class_holds_out_its_share_and_added_files_move_few(tmp_path):
  own_data.write_folders(tmp_path, 'cat', 'dog', count=100)
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
  own_data.write_folders(tmp_path / 'x', 'cat', 'dog', count=20)
  for holdout, count in ((0.1, 4), (0.25, 10)):
    config = data.parse({'source': str(tmp_path / 'x'), 'holdout': holdout})
    assert len(data.open_dataset(config, split='test')) == count
  assert len(data.open_dataset(config, split='all')) == 40


def test_a_single_train_folder_is_split_like_its_class_folders(tmp_path):
  own_data.write_folders(tmp_path / 'train', 'cat', 'dog', count=100)
  own_data.write(tmp_path, 'test/1.png', 'test/2.png')  # Without labels.
  opened = own_data.open_path(tmp_path)
  # The hold-out does not take the name of the user's split.
  assert opened.eval_split == 'val' and opened.unlabelled == ('test',)
  assert opened.description.endswith('; test has no labels and is ignored')
  inner = own_data.open_path(tmp_path / 'train')
  assert own_data.keys(opened) == {
      split.replace('test', 'val'): tuple(f'train/{path}' for path in paths)
      for split, paths in own_data.keys(inner).items()}
  assert len(opened.splits['val']) >= 8


def test_images_outside_class_folders_are_counted(tmp_path):
  own_data.write_folders(tmp_path, 'a', 'b', '.')
  assert 'not read: 3 images in no class folder' in own_data.open_path(
      tmp_path).description


def test_a_small_data_set_holds_out_an_image(tmp_path):
  own_data.write(tmp_path, 'a/0.png', 'b/0.png', 'b/2.png')
  assert own_data.sizes(own_data.open_path(tmp_path)) == {'train': 2, 'test': 1}


@pytest.mark.parametrize('parent', ['', 'train/'])
@pytest.mark.parametrize(('names', 'content'), [
    ([f'{i}.HEIC' for i in range(12)], '12 .heic'), (['1', '2'],
     '2 without suffix'), (['x/1.CR2', 'x/2.nef', '3.nef'], '2 .nef, 1 .cr2'),
    ([], 'no files'), (['Thumbs.db', '.DS_Store', '@eaDir/1.jpg'], 'no files')])
def test_an_empty_class_folder_is_named(tmp_path, parent, names, content):
  own_data.write_folders(tmp_path / parent, 'cat', 'dog', count=4)
  (tmp_path / parent / 'c').mkdir()
  own_data.write(tmp_path / parent / 'c', *names)
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == ('cat', 'dog')
  assert opened.without_images == (f'{parent}c ({content})',)
  assert f'; no image that can be read in {parent}c ({content})' in (
      opened.description)


def test_an_empty_class_folder_of_an_evaluator_is_a_note(tmp_path):
  own_data.write(tmp_path, *(f'{name}/{i}.png' for name in (
      'x/a', 'x/b', 'x/c', 'y/a', 'y/c') for i in range(4)), 'y/b/1.heic')
  experiment = toy.build(data={'source': str(tmp_path / 'x')}, evals={
      'test': {}, 'other': {
          'name': 'knn', 'k': 2, 'source': str(tmp_path / 'y')}})
  notes = [*map(experiment.describe_evaluator, ('test', 'other'))]
  assert 'no image' not in notes[0]
  assert notes[1].endswith('; no image that can be read in b (1 .heic)')


@pytest.mark.parametrize(('layout', 'target'), [
    ('{}/{}.png', ''), ('train/{}/{}.png', ''), ('{}{}.png', 'none'),
    ('images/{}/{}.png', 'masks')])
def test_files_and_folders_of_systems_change_nothing(tmp_path, layout, target):
  written = [layout.format(name, i) for name in ('a', 'b') for i in range(4)]
  own_data.write(tmp_path, *written, *(
      path.replace('images/', 'masks/') for path in written))
  before = own_data.open_path(tmp_path, target, labelled=False)
  for parent in {path.rpartition('/')[0] for path in written} | {''}:
    own_data.write(tmp_path / parent, *(f'{name}/{i}.png' for name in SYSTEM
                                        for i in range(4)), '._1.png')
  own_data.write(tmp_path / written[0].rpartition('/')[0], 'Thumbs.db')
  after = own_data.open_path(tmp_path, target, labelled=False)
  assert own_data.labels(after) == own_data.labels(before)
  assert own_data.keys(after) == own_data.keys(before)
  assert after.description == before.description


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
