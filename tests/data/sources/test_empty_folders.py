"""Class folders without readable images are named; system folders ignored."""

import re

import pytest

from tests import own_data
from tests import toy
from vit_jax import data
from vit_jax.data.sources import open_source

SYSTEM = (
    '#recycle', '@eaDir', '@Recycle', '#snapshot', '@Recently-Snapshot',
    '$RECYCLE.BIN', '$Recycle.Bin', 'System Volume Information', 'lost+found',
    '.AppleDouble', '__MACOSX', '.ipynb_checkpoints', '.Trash-1000',
    'Network Trash Folder')


def write_class(folder, kind):
  """Writes a class folder that no image can be read in."""
  folder.parent.mkdir(parents=True, exist_ok=True)
  if kind == 'link':
    folder.symlink_to('/mnt/not/mounted')
    return
  folder.mkdir()
  own_data.write(folder, *{
      'heic': [f'{i}.HEIC' for i in range(12)],
      'raw': ['x/1.CR2', 'x/2.nef', '3.nef'], 'none': ['1', '2', '3'],
      'inner link': ['1.txt'], 'empty': [],
      'system': ['Thumbs.db', '.DS_Store', '@eaDir/1.jpg']}[kind])
  if kind == 'inner link':
    (folder / 'photos').symlink_to('/mnt/not/mounted')


def open_splits(root, **settings):
  return open_source.open_splits(data.parse({'source': str(root), **settings}))


@pytest.mark.parametrize('parent', ['', 'train/'])
@pytest.mark.parametrize(('kind', 'content'), [
    ('heic', '12 .heic'), ('raw', '2 .nef, 1 .cr2'),
    ('none', '3 without suffix'), ('empty', 'no files'),
    ('system', 'no files'), ('link', '1 broken link'),
    ('inner link', '1 .txt, 1 broken link')])
def test_a_class_that_vanishes_from_training_is_an_error_or_skipped(
    tmp_path, parent, kind, content):
  own_data.write(tmp_path, *(
      f'{parent}{name}/{i}.png' for name in 'ab' for i in range(4)))
  if parent:
    own_data.write(tmp_path, 'test/a/0.png')
  write_class(tmp_path / f'{parent}c', kind)
  named = f'{parent}c ({content})'
  with pytest.raises(ValueError, match=re.escape(
      f'without an image that can be read (1): {named}.')):
    open_splits(tmp_path)
  opened = open_splits(tmp_path, unreadable='skip')
  assert opened.class_names == ('a', 'b')
  assert opened.without_images == (named,)
  assert f'; no image that can be read in {named}' in opened.description


def test_a_class_that_vanishes_from_evaluation_is_a_note(tmp_path):
  own_data.write(tmp_path, *(
      f'{split}/{name}/1.png' for split in ('train', 'test') for name in 'ab'))
  write_class(tmp_path / 'train/c', 'heic')
  own_data.write(tmp_path, 'train/c/1.png', 'val/a/1.png')
  write_class(tmp_path / 'test/c', 'heic')
  write_class(tmp_path / 'val/c', 'empty')
  write_class(tmp_path / 'dev', 'empty')
  opened = open_splits(tmp_path)
  assert opened.class_names == ('a', 'b', 'c')
  assert sorted(opened.without_images) == [
      'dev (no files)', 'test/c (12 .heic)', 'val/c (no files)']
  assert 'not read: 12 .heic' in opened.description


def test_a_link_to_a_split_that_is_not_mounted_is_an_error_or_skipped(tmp_path):
  own_data.write(
      tmp_path, *(f'train/{name}/{i}.png' for name in 'ab' for i in range(4)))
  write_class(tmp_path / 'test', 'link')
  with pytest.raises(ValueError, match=r'test \(1 broken link\)'):
    open_splits(tmp_path)
  opened = open_splits(tmp_path, unreadable='skip')
  assert opened.without_images == ('test (1 broken link)',)


@pytest.mark.parametrize('classes', [(), ('a',)])
def test_an_error_for_too_few_classes_names_folders_without_images(
    tmp_path, classes):
  own_data.write(tmp_path, *(f'{name}/1.png' for name in classes))
  write_class(tmp_path / 'b', 'heic')
  with pytest.raises(ValueError, match=(
      r'No image can be read in b \(12 .heic\)')):
    own_data.open_path(tmp_path)


def test_folders_without_images_of_other_sources_are_notes(tmp_path):
  own_data.write(tmp_path, *(f'{name}/{i}.png' for name in (
      'x/a', 'x/b', 'x/c', 'y/a', 'y/c') for i in range(4)))
  write_class(tmp_path / 'y/b', 'heic')
  opened = open_splits(tmp_path / 'x', val_source=str(tmp_path / 'y'))
  assert opened.description.endswith(
      'no image that can be read in b (12 .heic)')
  evaluated = data.open_dataset(
      data.parse({'source': str(tmp_path / 'x')}), split='',
      source=str(tmp_path / 'y'))
  assert evaluated.without_images == ('b (12 .heic)',)
  experiment = toy.build(data={'source': str(tmp_path / 'x')}, evals={
      'test': {}, 'other': {
          'name': 'shift', 'source': str(tmp_path / 'y')}})
  notes = [*map(experiment.describe_evaluator, ('test', 'other'))]
  assert 'no image' not in notes[0]
  assert notes[1].endswith('; no image that can be read in b (12 .heic)')


def test_files_that_are_not_read_are_counted_in_every_layout(tmp_path):
  own_data.write(
      tmp_path, *(f'{folder}/{i}.png' for folder in (
          'photos', 'scenes/images', 'scenes/masks') for i in range(4)),
      'photos/x/5.heic', 'scenes/images/5.heic', 'scenes/masks/5.png')
  (tmp_path / 'photos/more').symlink_to('/mnt/not/mounted')
  opened = own_data.open_path(tmp_path / 'photos', labelled=False)
  assert 'not read: 1 .heic, 1 broken link' in opened.description
  opened = own_data.open_path(tmp_path / 'scenes', labelled=False)
  assert opened.description.endswith(
      'masks without an image: 1 (masks/5.png); not read: 1 .heic')


@pytest.mark.parametrize('layout', [
    '{}/{}.png', 'train/{}/{}.png', 'images/{}/{}.png', '{}{}.png'])
def test_folders_of_systems_and_drives_change_nothing(tmp_path, layout):
  names = ('train', 'val') if layout.startswith('images') else ('a', 'b')
  written = [layout.format(name, i) for name in names for i in range(4)]
  own_data.write(tmp_path, *written)
  if layout.startswith('images'):
    own_data.write(tmp_path, *(
        path.replace('images', 'masks') for path in written))
  before = own_data.open_path(tmp_path, labelled=False)
  for parent in {path.rpartition('/')[0] for path in written} | {''}:
    own_data.write(tmp_path / parent, *(f'{name}/{i}.png' for name in SYSTEM
                                        for i in range(4)))
  own_data.write(tmp_path / written[0].rpartition('/')[0], 'Thumbs.db')
  after = own_data.open_path(tmp_path, labelled=False)
  assert own_data.labels(after) == own_data.labels(before)
  assert own_data.keys(after) == own_data.keys(before)
  assert after.description == before.description


def test_patterns_and_tables_do_not_find_files_in_system_folders(tmp_path):
  own_data.write(tmp_path, *(f'{folder}/{i}.png' for folder in (
      'images', *SYSTEM) for i in range(4)))
  opened = own_data.open_path(f'{tmp_path}/*/*.png', labelled=False)
  assert sum(own_data.sizes(opened).values()) == 4
  opened = own_data.open_path(f'{tmp_path}/#recycle/*.png', labelled=False)
  assert sum(own_data.sizes(opened).values()) == 4
  table = own_data.write_table(tmp_path, 'path,label', (
      (f'{i}.png', 'ab'[i % 2]) for i in range(4)), images=False)
  assert all(example['image'].startswith(b'images/') for example in (
      source[i] for source in own_data.open_path(table).splits.values()
      for i in range(len(source))))
