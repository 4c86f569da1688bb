"""Tables of image files: discovery, columns, image paths, splits, errors."""

import json

from etils import epath
import numpy as np
import pytest

from tests import own_data
from vit_jax.data.sources import class_folders

ANIMALS = ('cat', 'dog', 'emu')


def rows(cells='{animal}', path='images/{i}.png', count=40):
  """Returns rows of an image, and cells formatted by its number."""
  return [f'{path},{cells}'.format(
      i=i, animal=ANIMALS[i % 3], half=i % 2, group=i // 4)
          for i in range(count)]


def write_plain(root, name='labels.csv', header='path,label'):
  return own_data.write_table(root, header, rows(), name=name)


def write_text(root, text, name='labels.csv', images=40):
  own_data.write(root, *(f'images/{i}.png' for i in range(images)))
  (root / name).write_text(text)
  return root / name


def json_lines(objects):
  return ''.join(json.dumps(one, ensure_ascii=False) + '\r\n'
                 for one in objects)


def test_examples_are_read_by_index(tmp_path):
  for place in (write_plain(tmp_path), tmp_path):
    opened = own_data.open_path(place)
    assert opened.class_names == ANIMALS and not opened.multi_label
    assert own_data.labels(opened) == {
        f'images/{i}.png': i % 3 for i in range(40)}
    train = opened.splits['train']
    for i in range(len(train)):
      assert train[i] == {'image': train.key(i).encode(),
                          'label': train.label(i)}
    # In hash order, so that a slice of the split is a sample.
    assert len({train.label(i) for i in range(8)}) == 3
  assert ('labels.csv: single-label, 3 classes: cat, dog, emu (column label)'
          in opened.description)


def test_a_hash_split_keeps_groups_together(tmp_path):
  own_data.write_table(tmp_path, 'path,label,patient', rows('{half},{group}'))
  opened = own_data.open_path(tmp_path, group='patient', label='label')
  patients = [{int(source.key(i)[7:-4]) // 4 for i in range(len(source))}
              for source in opened.splits.values()]
  assert len(opened.splits['test']) and not patients[0] & patients[1]


@pytest.mark.parametrize(('name', 'header', 'row'), [
    ('labels.csv', 'file_name;Class', 'images/{0}.png;{1}'),
    ('any.tsv', 'image\tcategory', 'images/{0}.png\t{1}'),
    ('labels.csv', ',label,filepath', '{0},{1},{0}.png'),
    ('labels.csv', 'id,breed,shot', '{0},{1},images\\{0}.png'),
    ('labels.csv', 'image_id,label', '{0},{1}'),
    ('labels.csv', 'path,label', '"images/{0}.png","{1}"')])
def test_common_dialects_and_column_names_are_understood(
    tmp_path, name, header, row):
  write_text(tmp_path, '\n'.join(['\ufeff' + header, *(
      row.format(i, ANIMALS[i % 3]) for i in range(40))]), name)
  assert own_data.labels(own_data.open_path(tmp_path)) == {
      f'images/{i}.png': i % 3 for i in range(40)}


def test_json_lines_hold_lists_of_labels_and_splits(tmp_path):
  write_text(tmp_path, json_lines(
      {'file_name': f'images/{i}.png', 'labels': ['cat\u2028', 'dog'][:i % 3],
       'split': 'train' if i < 30 else 'Validation'} for i in range(40)),
             'metadata.jsonl')
  opened = own_data.open_path(tmp_path)
  assert opened.multi_label and opened.class_names == ('cat', 'dog')
  assert own_data.sizes(opened) == {'train': 30, 'validation': 10}
  assert opened.eval_split == 'validation'
  found = own_data.labels(opened)
  assert [found[f'images/{i}.png'].tolist() for i in range(3)] == [
      [], [0], [0, 1]]


def test_image_ids_of_json_may_be_numbers(tmp_path):
  write_text(tmp_path, json_lines(
      {'image_id': i, 'label': ANIMALS[i % 2]} for i in range(40)), 'a.jsonl')
  opened = own_data.open_path(tmp_path, suffix='.png')
  assert own_data.labels(opened)['images/7.png'] == 1


@pytest.mark.parametrize(('header', 'cells', 'roles', 'targets', 'label'), [
    ('x,y', '{i}.5,', {'label': 'x,y'}, ('x', 'y'), [2.5, np.nan]),
    # Neither `id` nor the group is a label.
    ('id,patient,age', '{i},{group},{i}.5', {
        'target': 'regression', 'group': 'patient'}, ('age',), [2.5])])
def test_regression_targets_are_vectors(
    tmp_path, header, cells, roles, targets, label):
  own_data.write_table(tmp_path, f'path,{header}', [
      *rows(cells), 'a.png' + ',1' * (header.count(',') + 1)])
  opened = own_data.open_path(tmp_path, **roles)
  assert opened.targets == targets and opened.num_classes == len(targets)
  np.testing.assert_array_equal(
      own_data.labels(opened)['images/2.png'], np.float32(label))


@pytest.mark.parametrize('name', ['image', 'Path'])
def test_tables_with_another_image_column_are_an_error(tmp_path, name):
  write_plain(tmp_path, 'train.csv')
  write_plain(tmp_path, 'val.csv', f'{name},label')
  with pytest.raises(ValueError, match=(
      "^val of .* lacks the image column 'path': its columns are "
      f'{name}, label, but those of train are path, label. Use the same')):
    own_data.open_path(tmp_path)


def test_rows_of_one_image_are_joined_if_multi_label(tmp_path):
  own_data.write_table(tmp_path, 'path,label', [
      '1.png,cat', '2.png,dog|emu', '1.png,', '2.png,cat', '1.png,dog',
      '3.png,cat'])
  opened = own_data.open_path(tmp_path, target='multi')
  assert opened.class_names == ANIMALS
  assert {key: sorted({*label}) for key, label in own_data.labels(
      opened).items()} == {'1.png': [0, 1], '2.png': [0, 1, 2], '3.png': [0]}
  repeated = own_data.open_path(own_data.write_table(
      tmp_path, 'path,label', [*rows(), 'images/3.png,cat']))
  assert sum(own_data.sizes(repeated).values()) == 41
  assert '1 rows repeat an image and its label' in repeated.description


def test_one_table_per_split_and_one_without_labels(tmp_path):
  for split, first, last in (('train', 0, 20), ('valid', 20, 30),
                             ('test', 30, 40)):
    own_data.write(tmp_path, *(f'{split}/{i}.jpg' for i in range(first, last)))
    label = '' if split == 'test' else ',{}'
    (tmp_path / f'{split}.csv').write_text('\n'.join(
        [f'id{label.format("label")},file', *(
            f'{i}{label.format(ANIMALS[i % 2])},{i}.jpg'
            for i in range(first, last))]))
  opened = own_data.open_path(tmp_path)
  assert own_data.sizes(opened) == {'train': 20, 'valid': 10}
  assert 'test has no labels and is ignored' in opened.description
  assert own_data.labels(opened)['valid/21.jpg'] == 1


def test_folders_of_images_without_labels_are_named(tmp_path):
  own_data.write(tmp_path, *(f'train/{i}.png' for i in range(40)),
                 'test/a/1.png')
  own_data.write_table(
      tmp_path, 'image_id,breed', rows(path='{i}'), images=False)
  opened = own_data.open_path(tmp_path)
  assert opened.unlabelled == ('test',)
  assert set(opened.splits) == {'train', 'val'}
  # Not those beside the data set.
  table = own_data.write_table(tmp_path / 'a', 'path,label', rows(
      '{half}', path=f'{tmp_path}/train/{{i}}.png'), images=False)
  assert not own_data.open_path(table.parent).unlabelled


@pytest.mark.parametrize('parent', ['', 'images/'])
def test_the_folders_of_images_are_their_splits(tmp_path, parent):
  folders = ['train/a'] * 30 + ['Val'] * 6 + ['extra'] * 4
  own_data.write_table(tmp_path, 'path,label', (
      (f'{parent}{folder}/{i}.png', i % 2) for i, folder in enumerate(folders)))
  opened = own_data.open_path(tmp_path)
  assert own_data.sizes(opened) == {'train': 30, 'val': 6, 'extra': 4}
  assert 'splits are the folders of the images' in opened.description


@pytest.mark.parametrize(('train', 'test'), [
    ('seg_train/seg_train/{}', 'seg_test/seg_test/{}'),
    ('img/train2017/{}', 'img/val2017/{}'), ('{}/train', '{}/test')])
def test_folders_of_images_hold_the_word_of_a_split(tmp_path, train, test):
  images = [(f'{place.format("ab"[label])}/{i}.png', label)
            for place in (train, test) for label in (0, 1) for i in range(6)]
  table = own_data.write_table(tmp_path, 'path,label', images)
  opened = own_data.open_path(table)
  assert list(own_data.sizes(opened).values()) == [12, 12]
  assert not opened.held_out
  # Without the rows of the second split, it is named.
  own_data.write_table(tmp_path, 'path,label', images[:12])
  opened = own_data.open_path(table)
  assert opened.unlabelled == ('val' if '2017' in test else 'test',)
  assert opened.held_out


def test_images_outside_the_folders_of_splits_are_an_error(tmp_path):
  own_data.write_table(tmp_path, 'path,label', [
      'train/0.png,0', 'test/1.png,1', '2.png,0', 'train/3.png,1'])
  with pytest.raises(ValueError, match=(
      r'a split \((train|test)/\), but 2.png does not. .* column `split`')):
    own_data.open_path(tmp_path)


def test_class_folders_are_listed_only_if_a_table_has_no_label_column(
    tmp_path, monkeypatch):
  write_plain(tmp_path)
  found = []
  monkeypatch.setattr(class_folders, 'find', found.append)
  own_data.open_path(tmp_path)
  assert not found


@pytest.mark.parametrize(('columns', 'cells'), [
    ('photographer', '{1}'), ('is_outdoor,blurred', '{2},1'), ('age', '{0}')])
@pytest.mark.parametrize('folder', ['', 'train/'])
def test_a_table_beside_class_folders_needs_a_column_named_like_a_label(
    tmp_path, columns, cells, folder):
  table = [f'{name}/{i}.png,{cells.format(20 + i, ANIMALS[i % 3], i % 2)}'
           for name in ('cat', 'dog') for i in range(12)]
  write = lambda header: own_data.write_table(
      tmp_path / folder, f'file_name,{header}', table, name='metadata.csv')
  name = columns.split(',')[0]
  write(columns)
  with pytest.raises(ValueError, match=(
      rf'metadata.csv lies beside class folders \(cat, dog\), .*: file_name, '
      f'{name}.*label=COLUMN. To use the class folders, move')):
    own_data.open_path(tmp_path)
  assert f'(column {name})' in own_data.open_path(
      tmp_path, label=name).description
  write(columns.replace(name, 'Label'))
  assert '(column Label)' in own_data.open_path(tmp_path).description


def test_archives_beside_a_table_are_named(tmp_path):
  own_data.write(tmp_path, 'train.zip', 'more.tar.gz')
  own_data.write_table(tmp_path, 'path,label', rows(), images=False)
  with pytest.raises(ValueError, match=(
      '40 of 40 images .* Unpack more.tar.gz, train.zip first')):
    own_data.open_path(tmp_path)
  own_data.write(tmp_path, 'images/a.zip')
  (tmp_path / 'labels.csv').write_text('number,label\n1,cat\n2,dog\n')
  with pytest.raises(ValueError, match=(
      'which column .* holds the images.*train.zip, images/a.zip first')):
    own_data.open_path(tmp_path)
  (tmp_path / 'labels.csv').unlink()
  with pytest.raises(ValueError, match='Found no images .*Unpack more.tar.gz'):
    own_data.open_path(tmp_path)


def test_metadata_may_lie_in_the_folder_of_each_split(tmp_path):
  for split, count in (('train', 6), ('test', 2)):
    own_data.write_table(
        tmp_path / split, 'file_name,label', rows('{half}', '{i}.png', count),
        name='metadata.csv')
  opened = own_data.open_path(tmp_path)
  assert own_data.labels(opened)['test/1.png'] == 1
  assert len(opened.splits['test']) == 2


@pytest.mark.parametrize('name', ['colours.csv', 'labels.csv'])
def test_tables_without_images_are_ignored_next_to_classes(tmp_path, name):
  own_data.write(tmp_path, 'cat/1.png', 'dog/2.png')
  (tmp_path / name).write_text('label,name\n0,cat\n1,dog\n')
  assert own_data.open_path(tmp_path).class_names == ('cat', 'dog')


def with_row(label):
  return '\n'.join(['path,label', *rows('1', count=3), f'images/3.png,{label}',
                    *rows('1')])


@pytest.mark.parametrize(('text', 'message'), [
    ('path,label\n1.png,a\n70.png,b\n80.png,a\n',
     '2 of 3 images of .*labels.csv do not exist: 70.png, 80.png. Search'),
    ('path,label\n', 'holds no rows'),
    ('', 'Cannot tell which column of .* holds the images'),
    ('1.png,cat\n2.png,dog\n', 'has no header'),
    ('path,label\n1.png,a,b\n', 'Line 2 of .* has 3 cells.*double quotes'),
    ('path,path,label\n', "two columns called 'path'"),
    ('path,label,split\n1.png,a,train\n1.png,a,test\n',
     'images/1.png is in several splits .*: test, train'),
    ('path,label,split\n1.png,a,train\n2.png,b,\n',
     "1 of 2 rows of .* have no split in column 'split' .*row 2"),
    ('path,label,split\n1.png,a,test\n2.png,b,val\n', 'no training split'),
    ('path,label,split\n1.png,a,train\n2.png,b,test\n3.png,a,train\n',
     '1 of the classes of .* have no image in train, only in other splits: b'),
    ('path,x,y\n1.png,a,b\n', 'holds the labels. Candidates: x, y'),
    ('path,label\n,a\n1.png,b\n', '1 rows of .* have no image path .*row 1'),
    ('path,label\n1.png,cat\n2.png,dog\n1.png,dog\n3.png,cat\n',
     '1 images of .* several rows with different labels: images/1.png is cat '
     'and dog.*target=multi'),
    (with_row('"cat'), 'begins at line 5 is not valid CSV: unexpected end'),
    (with_row('x' * 140_000), 'line 5 is not valid CSV: field larger')])
def test_errors_name_the_row(tmp_path, text, message):
  with pytest.raises(ValueError, match=message):
    own_data.open_path(write_text(tmp_path, text))


def test_several_tables_and_unknown_columns_are_errors(tmp_path):
  write_plain(tmp_path)
  table = write_plain(tmp_path, 'metadata.csv')
  with pytest.raises(ValueError, match='There are 2 tables .*Give one'):
    own_data.open_path(tmp_path)
  with pytest.raises(ValueError, match="'lable'. Did you mean 'label'"):
    own_data.open_path(table, label='lable')


def test_images_may_lie_in_a_configured_folder(tmp_path):
  own_data.write(tmp_path, *(f'a/images/{i}.png' for i in range(40)))
  table = own_data.write_table(
      tmp_path / 'b', 'path,label', rows('{half}', '{i}'), images=False)
  opened = own_data.open_path(
      table, folder=str(tmp_path / 'a/images'), suffix='.png')
  assert opened.num_classes == 2
  assert epath.Path(opened.splits['train'].key(0)).exists()


@pytest.mark.parametrize(('path', 'table'), [
    ('../far/{i}.png', {}), ('{i}.png', {'folder': '../far'}),
    ('../near/../far/{i}.png', {}), ('ROOT/near/{i}.png', {})])
def test_splits_do_not_depend_on_how_the_path_is_written(
    tmp_path, monkeypatch, path, table):
  for name in ('far', 'near'):
    own_data.write(tmp_path, *(f'{name}/{i}.png' for i in range(40)))
  own_data.write_table(tmp_path / 'near', 'path,label', rows(
      '{half}', path.replace('ROOT', str(tmp_path))), images=False)
  monkeypatch.chdir(tmp_path)
  found = []
  for place in ('near/labels.csv', './near', tmp_path / 'near/labels.csv'):
    opened = own_data.open_path(place, **table)
    found.append((own_data.sizes(opened), [*own_data.labels(opened).items()]))
  assert found[0] == found[1] == found[2]


def test_ambiguous_image_paths_are_an_error(tmp_path):
  own_data.write(tmp_path, *(f'{folder}/{i}.png' for i in range(20)
                             for folder in ('test', 'train', 'val')))
  write = lambda name: own_data.write_table(
      tmp_path, 'path,label', rows(path='{i}', count=20), name=name,
      images=False)
  table = write('trainLabels.csv')
  with pytest.raises(ValueError, match='ambiguous: .* exists as test/0.png and '
                     'train/0.png and val/0.png.*folder='):
    own_data.open_path(table)
  assert 'train/0.png' in own_data.labels(
      own_data.open_path(table, folder='train'))
  for name in ('train', 'validation'):
    write(f'{name}.csv')
  table.unlink()
  assert set(own_data.labels(own_data.open_path(tmp_path))) == {
      f'{folder}/{i}.png' for i in range(20) for folder in ('train', 'val')}
  own_data.write(tmp_path, *(f'{i}.png' for i in range(20)))
  table = write('trainLabels.csv')
  assert '0.png' in own_data.labels(own_data.open_path(table))
  own_data.write(tmp_path, *(f'{i}.jpg' for i in range(20)))
  with pytest.raises(ValueError, match=r'exists as 0.jpg and 0.png'):
    own_data.open_path(table)
