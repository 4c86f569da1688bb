"""Errors for unusual data print flags; pasting them opens the data."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import own_data

ANIMALS = ('cat', 'dog', 'emu')
LABELS = {f'images/{i}.png': ANIMALS[i % 3] for i in range(30)}


def table(header, row, *, name='labels.csv', where='images/{}.png', count=30):
  """Writes images and a table; `row` has {0}, {1}: number, animal."""
  def write(root):
    own_data.write(root, *(where.format(i) for i in range(count)))
    (root / name).write_text('\n'.join(
        [header, *(row.format(i, ANIMALS[i % 3], i % 2)
                   for i in range(count))]))
  return write


def classes(*folders):
  """Writes class folders in some folders."""
  return lambda root: own_data.write(root, *(
      f'{folder}/{name}/{i}.png' for folder in folders
      for name in ANIMALS for i in range(6)))


def tables(header, row, *names):
  """Writes a table for each name of a split, and its images."""
  def write(root):
    for name in names:
      table(header, row, name=f'{name}.csv')(root)
  return write


def metadata(root):
  for name in ('train', 'test'):
    (root / name).mkdir()
    table('file_name,label', '{0}.png,{1}', name='metadata.csv',
          where='{}.png')(root / name)


def lists(root):
  own_data.write(root, *LABELS)
  (root / 'all.jsonl').write_text('\n'.join(json.dumps({
      'file_name': path, 'labels': [name, 'pet']})
                                            for path, name in LABELS.items()))


def parquet(root):
  pq.write_table(pa.table({
      'img': [path.encode() for path in LABELS], 'kind': [*LABELS.values()]}),
                 root / 'a.parquet')


def of_splits(*folders):
  return {f'{folder}/{name}/{i}.png': name for folder in folders
          for name in ANIMALS for i in range(6)}


@pytest.mark.parametrize(('write', 'source', 'expected'), [
    (table('image_id,breed', '{0},{1}'), '', LABELS),
    (table('image_id,breed', '{0},{1}'), 'labels.csv', LABELS),
    (table('file_name;Class', 'images/{0}.png;{1}'), 'labels.csv', LABELS),
    (table('image\tcategory', 'images/{0}.png\t{1}', name='any.tsv'),
     'any.tsv', LABELS),
    (table(',label,filepath', '{0},{1},{0}.png'), 'labels.csv', LABELS),
    (table('id,breed,shot', '{0},{1},images\\{0}.png'), 'labels.csv', LABELS),
    (table('path,label', '{0},{1}'), 'labels.csv', LABELS),
    (table('path,age', 'images/{0}.png,{0}.5'), 'labels.csv',
     {path: [i + .5] for i, path in enumerate(LABELS)}),
    (table('path,label', 'images/{0}.png,{0}.5'), 'labels.csv',
     {path: [i + .5] for i, path in enumerate(LABELS)}),
    (table('path,label', 'images/{0}.png,pet|{1}'), 'labels.csv',
     {path: sorted(['pet', name]) for path, name in LABELS.items()}),
    (table('path,label', 'images/{0}.png,pet; {1}'), 'labels.csv',
     {path: sorted(['pet', name]) for path, name in LABELS.items()}),
    (table('path,odd,even', 'images/{0}.png,{2},1'), 'labels.csv',
     {path: ['even'] + ['odd'] * (i % 2) for i, path in enumerate(LABELS)}),
    (table('path,label', 'images/{0}.png,1{0}00', count=120), 'labels.csv',
     {f'images/{i}.png': [float(f'1{i}00')] for i in range(120)}),
    (tables('image_id,breed', '{0},{1}', 'train', 'test'), '', LABELS),
    (metadata, '', {f'{i}.png': ANIMALS[i % 3] for i in range(30)}),
    (lists, 'all.jsonl', {
        path: sorted([name, 'pet']) for path, name in LABELS.items()}),
    (parquet, '', LABELS),
    (classes('seg_train', 'seg_test'), '',
     of_splits('seg_train', 'seg_test')),
    (classes('Training', 'Testing'), '', of_splits('Training', 'Testing')),
    (classes('train', 'valid'), '', of_splits('train', 'valid')),
    (classes('train/train', 'test/test'), '',
     of_splits('train/train', 'test/test')),
    (classes('pets'), '', of_splits('pets'))])
def test_pasted_flags_open_the_data(
    tmp_path, monkeypatch, write, source, expected):
  write(tmp_path)
  monkeypatch.chdir(tmp_path)
  path = tmp_path / source if source else tmp_path
  with pytest.raises(ValueError, match='To use|If these are') as error:
    own_data.open_splits(path)
  flags = own_data.paste(error.value)
  opened = own_data.open_splits(flags.pop('source', path), **flags)
  assert own_data.images(opened) == expected
  assert opened.eval_split != 'train'


@pytest.mark.parametrize(('names', 'expected'), [
    (['images/{}.png', 'masks/{}.png'], {'target': 'masks'}),
    # Files of splits are named by their first word.
    (['my-train-{}.tar', 'my-val-{}.tar'],
     {'source': 'my-train-*.tar', 'val_source': 'my-val-*.tar'})])
def test_masks_and_files_of_splits_are_declared(tmp_path, names, expected):
  own_data.write(tmp_path, *(
      name.format(i) for i in range(9) for name in names))
  with pytest.raises(ValueError) as error:
    own_data.open_splits(tmp_path)
  assert {name: value.rpartition('/')[2] for name, value in own_data.paste(
      error.value).items()} == expected
  if 'target' in expected:
    assert len(own_data.images(own_data.open_splits(
        tmp_path, target='masks'))) == 9


@pytest.mark.parametrize('folders', [
    ['cat/2019', 'cat/2020', 'dog/2019', 'dog/2020'], ['train_a', 'test_a']])
def test_single_declares_that_folders_are_classes(tmp_path, folders):
  own_data.write(tmp_path, *(
      f'{folder}/{i}.png' for folder in folders for i in range(3)))
  with pytest.raises(ValueError) as error:
    own_data.open_splits(tmp_path)
  assert str(error.value).endswith('\n  --config.data.target=single')
  opened = own_data.open_splits(tmp_path, target='single')
  assert opened.class_names == tuple(sorted(
      {folder.split('/')[0] for folder in folders}))


@pytest.mark.parametrize(('row', 'looks'), [
    ('images/{0}.png,{2}.5', 'looks like numbers'),
    ('images/{0}.png,a|{1}', 'looks like several labels'),
    ('images/{0}.png,text {0}', 'another cell in each of 30 rows')])
def test_a_declared_kind_is_not_questioned(tmp_path, row, looks):
  table('path,label', row)(tmp_path)
  with pytest.raises(ValueError, match=looks):
    own_data.open_splits(tmp_path / 'labels.csv')
  opened = own_data.open_splits(tmp_path / 'labels.csv', target='single')
  assert opened.kind == 'single' and opened.num_classes > 1


@pytest.mark.parametrize(('write', 'source', 'message'), [
    (table('path,x,y', 'images/{0}.png,{1},{0}'), 'labels.csv',
     'columns path, x, y, but .*label.*No column is an obvious choice'),
    # As a user reads and pastes it.
    (table('image_id,breed', '{0},{1}'), 'labels.csv', (
        'csv has the columns image_id, breed, but file_name and label were '
        'expected. To use them:\n  --config.data.table.path=image_id '
        '--config.data.table.label=breed --config.data.table.folder=.*/images '
        '--config.data.table.suffix=.png')),
    (classes('colour', 'grey'), '',
     r'have subfolders with the same names \(cat, dog, emu\), so either'),
    (classes('pets'), 'pets/cat', 'cat has no class folders'),
    (lambda root: own_data.write(root, 'a.zip', 'x/b.tar.gz'), '',
     r'Unpack a.zip, x/b.tar.gz first'),
    (lambda root: own_data.write(root, '1.heic'), '',
     'no class folders; it holds 1.heic. Expected .*suffixes .apng'),
    (table('path,label', '{0},{1}', where='other/{}.heic'), 'labels.csv',
     r'30 of 30 images .*do not exist.*--config.data.table.folder=FOLDER'),
    (lambda root: [table('path,label', 'cat/{0}.png,{1}',
                         where='cat/{}.png')(root),
                   own_data.write(root, 'dog/1.png')], '',
     'holds labels.csv, a table of its images. To use the table')])
def test_errors_say_what_was_found_and_expected(
    tmp_path, write, source, message):
  write(tmp_path)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path / source if source else tmp_path)
