"""Tables of image files: discovery, columns, image paths, splits, errors."""

import json

from etils import epath
import numpy as np
import pytest

from tests import own_data
from vit_jax.data.sources import class_folders

ANIMALS = ('cat', 'dog', 'emu')


def write_table(root, text, name='labels.csv', images=40):
  own_data.write(root, *(f'images/{i}.png' for i in range(images)))
  (root / name).write_text(text)
  return root / name


def lines(header, row, count=40):
  return '\n'.join([header, *(row(i) for i in range(count))]) + '\n'


def json_lines(rows):
  return ''.join(json.dumps(row, ensure_ascii=False) + '\r\n' for row in rows)


PLAIN = lines('path,label', lambda i: f'images/{i}.png,{ANIMALS[i % 3]}')


def test_examples_are_read_by_index(tmp_path):
  table = write_table(tmp_path, PLAIN)
  for place in (table, tmp_path):
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
  write_table(tmp_path, lines(
      'path,label,patient',
      lambda i: f'images/{i}.png,{ANIMALS[i % 2]},{i // 4}'))
  opened = own_data.open_path(tmp_path, key='patient', label='label')
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
  write_table(tmp_path, '\ufeff' + lines(
      header, lambda i: row.format(i, ANIMALS[i % 3])), name)
  assert own_data.labels(own_data.open_path(tmp_path)) == {
      f'images/{i}.png': i % 3 for i in range(40)}


def test_json_lines_hold_lists_of_labels_and_splits(tmp_path):
  write_table(tmp_path, json_lines(
      {'file_name': f'images/{i}.png', 'labels': ['cat\u2028', 'dog'][:i % 3],
       'split': 'train' if i < 30 else 'Validation'} for i in range(40)),
              'metadata.jsonl')
  opened = own_data.open_path(tmp_path)
  assert opened.multi_label and opened.class_names == ('cat', 'dog')
  assert own_data.sizes(opened) == {
      'train': 30, 'validation': 10}
  assert opened.eval_split == 'validation'
  found = own_data.labels(opened)
  assert [found[f'images/{i}.png'].tolist() for i in range(3)] == [
      [], [0], [0, 1]]


def test_regression_targets_are_vectors(tmp_path):
  write_table(tmp_path, lines(
      'path,x,y', lambda i: f'images/{i}.png,{i / 4},{"" if i == 2 else -i}'))
  opened = own_data.open_path(tmp_path, label='x,y')
  assert opened.targets == ('x', 'y') and opened.num_classes == 2
  np.testing.assert_array_equal(
      own_data.labels(opened)['images/2.png'], np.float32([0.5, np.nan]))


def test_ids_are_no_labels_next_to_a_group_column(tmp_path):
  write_table(tmp_path, lines(
      'path,id,patient,age', lambda i: f'images/{i}.png,{i},{i // 4},{i / 2}'))
  opened = own_data.open_path(tmp_path, target='regression', key='patient')
  assert opened.targets == ('age',)


def test_image_ids_of_json_may_be_numbers(tmp_path):
  write_table(tmp_path, json_lines(
      {'image_id': i, 'label': ANIMALS[i % 2]} for i in range(40)), 'a.jsonl')
  opened = own_data.open_path(tmp_path, suffix='.png')
  assert own_data.labels(opened)['images/7.png'] == 1


def test_tables_with_another_image_column_are_an_error(tmp_path):
  write_table(tmp_path, PLAIN, 'train.csv')
  for name in ('image', 'Path'):
    write_table(tmp_path, PLAIN.replace('path', name, 1), 'val.csv')
    with pytest.raises(ValueError, match=(
        "^val of .* lacks the image column 'path': its columns are "
        f'{name}, label, but those of train are path, label. Use the same')):
      own_data.open_path(tmp_path)


def test_rows_of_one_image_are_joined_if_multi_label(tmp_path):
  text = ('path,label\n1.png,cat\n2.png,dog|emu\n1.png,\n2.png,cat\n'
          '1.png,dog\n3.png,cat\n')
  write_table(tmp_path, text, images=5)
  opened = own_data.open_path(tmp_path, target='multi')
  assert opened.class_names == ANIMALS
  found = own_data.labels(opened)
  assert {key: sorted(set(label)) for key, label in found.items()
          } == {'images/1.png': [0, 1], 'images/2.png': [0, 1, 2],
                'images/3.png': [0]}
  repeated = own_data.open_path(
      write_table(tmp_path, PLAIN + 'images/3.png,cat\n'))
  assert sum(map(len, repeated.splits.values())) == 41
  assert '1 rows repeat an image and its label' in repeated.description


def test_one_table_per_split_and_one_without_labels(tmp_path):
  for split, first, last in (('train', 0, 20), ('valid', 20, 30),
                             ('test', 30, 40)):
    own_data.write(
        tmp_path, *(f'{split}/{i}.jpg' for i in range(first, last)))
    label = '' if split == 'test' else ',{}'
    (tmp_path / f'{split}.csv').write_text('\n'.join(
        [f'id{label.format("label")},file', *(
            f'{i}{label.format(ANIMALS[i % 2])},{i}.jpg'
            for i in range(first, last))]))
  opened = own_data.open_path(tmp_path)
  assert own_data.sizes(opened) == {
      'train': 20, 'valid': 10}
  assert 'test has no labels and is ignored' in opened.description
  assert own_data.labels(opened)['valid/21.jpg'] == 1


def test_folders_of_images_without_labels_are_named(tmp_path):
  own_data.write(tmp_path, *(f'train/{i}.png' for i in range(40)),
                 'test/a/1.png')
  (tmp_path / 'labels.csv').write_text(lines(
      'image_id,breed', lambda i: f'{i},{ANIMALS[i % 3]}'))
  opened = own_data.open_path(tmp_path)
  assert opened.unlabelled == ('test',)
  assert set(opened.splits) == {'train', 'val'}


@pytest.mark.parametrize('parent', ['', 'images/'])
def test_the_folders_of_images_are_their_splits(tmp_path, parent):
  folders = ['train/a'] * 30 + ['Val'] * 6 + ['extra'] * 4
  place = lambda i: f'{parent}{folders[i]}/{i}.png'
  own_data.write(tmp_path, *map(place, range(40)))
  (tmp_path / 'labels.csv').write_text(lines(
      'path,label', lambda i: f'{place(i)},{i % 2}'))
  opened = own_data.open_path(tmp_path)
  assert own_data.sizes(opened) == {'train': 30, 'val': 6, 'extra': 4}
  assert 'splits are the folders of the images' in opened.description


@pytest.mark.parametrize(('train', 'test'), [
    ('seg_train/seg_train/{}', 'seg_test/seg_test/{}'),
    ('img/train2017/{}', 'img/val2017/{}'), ('{}/train', '{}/test')])
def test_folders_of_images_hold_the_word_of_a_split(tmp_path, train, test):
  places = [place.format(name) for place in (train, test)
            for name in ('cat', 'dog')]
  images = [f'{place}/{i}.png' for place in places for i in range(6)]
  own_data.write(tmp_path, *images)
  (tmp_path / 'meta.csv').write_text(lines(
      'path,label', lambda i: f'{images[i]},{i // 6 % 2}', 24))
  opened = own_data.open_path(tmp_path / 'meta.csv')
  assert list(own_data.sizes(opened).values()) == [12, 12]
  assert not opened.held_out
  # Without the rows of the second split, it is named.
  (tmp_path / 'meta.csv').write_text(lines(
      'path,label', lambda i: f'{images[i]},{i // 6 % 2}', 12))
  opened = own_data.open_path(tmp_path / 'meta.csv')
  assert opened.unlabelled == ('val' if '2017' in test else 'test',)
  assert opened.held_out


def test_unused_folders_are_those_of_the_data_set(tmp_path):
  own_data.write(tmp_path, *(f'train/{i}.png' for i in range(30)),
                 'test/1.png', 'a/x.txt')
  (tmp_path / 'a/labels.csv').write_text(lines(
      'path,label', lambda i: f'{tmp_path}/train/{i}.png,{i % 2}', 30))
  assert not own_data.open_path(tmp_path / 'a').unlabelled


def test_images_outside_the_folders_of_splits_are_an_error(tmp_path):
  images = ['train/0.png', 'test/1.png', '2.png', 'train/3.png']
  own_data.write(tmp_path, *images)
  (tmp_path / 'a.csv').write_text(lines(
      'path,label', lambda i: f'{images[i]},{i % 2}', 4))
  with pytest.raises(ValueError, match=(
      r'a split \((train|test)/\), but 2.png does not. .* column `split`')):
    own_data.open_path(tmp_path)


def test_class_folders_are_listed_only_if_a_table_has_no_label_column(
    tmp_path, monkeypatch):
  write_table(tmp_path, PLAIN)
  found = []
  monkeypatch.setattr(class_folders, 'find', found.append)
  own_data.open_path(tmp_path)
  assert not found


@pytest.mark.parametrize(('columns', 'row'), [
    ('photographer', '{1}'), ('is_outdoor,blurred', '{2},1'), ('age', '{0}')])
@pytest.mark.parametrize('folder', ['', 'train/'])
def test_a_table_beside_class_folders_needs_a_column_named_like_a_label(
    tmp_path, columns, row, folder):
  images = [f'{name}/{i}.png' for name in ('cat', 'dog') for i in range(12)]
  own_data.write(tmp_path / folder, *images)
  table = tmp_path / folder / 'metadata.csv'
  text = lambda header: '\n'.join([f'file_name,{header}', *(
      f'{path},' + row.format(20 + i, ANIMALS[i % 3], i % 2)
      for i, path in enumerate(images))])
  table.write_text(text(columns))
  name = columns.split(',')[0]
  with pytest.raises(ValueError, match=(
      rf'metadata.csv lies beside class folders \(cat, dog\), .*: file_name, '
      f'{name}.*label=COLUMN. To use the class folders, move')):
    own_data.open_path(tmp_path)
  assert f'(column {name})' in own_data.open_path(
      tmp_path, label=name).description
  table.write_text(text(columns.replace(name, 'Label')))
  assert '(column Label)' in own_data.open_path(tmp_path).description


def test_archives_beside_a_table_are_named(tmp_path):
  own_data.write(tmp_path, 'train.zip', 'more.tar.gz')
  (tmp_path / 'labels.csv').write_text(PLAIN)
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
    own_data.write(tmp_path, *(f'{split}/{i}.png' for i in range(count)))
    (tmp_path / split / 'metadata.csv').write_text(lines(
        'file_name,label', lambda i: f'{i}.png,{ANIMALS[i % 2]}', count))
  opened = own_data.open_path(tmp_path)
  assert own_data.labels(opened)['test/1.png'] == 1
  assert len(opened.splits['test']) == 2


@pytest.mark.parametrize('name', ['colours.csv', 'labels.csv'])
def test_tables_without_images_are_ignored_next_to_classes(tmp_path, name):
  own_data.write(tmp_path, 'cat/1.png', 'dog/2.png')
  (tmp_path / name).write_text('label,name\n0,cat\n1,dog\n')
  assert own_data.open_path(tmp_path).class_names == ('cat', 'dog')


def with_row(row):
  return lines('path,label', lambda i: f'images/{i}.png,{row if i == 3 else 1}')


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
  write_table(tmp_path, text)
  with pytest.raises(ValueError, match=message):
    own_data.open_path(tmp_path / 'labels.csv')


def test_several_tables_and_unknown_columns_are_errors(tmp_path):
  write_table(tmp_path, PLAIN)
  write_table(tmp_path, PLAIN, 'metadata.csv')
  with pytest.raises(ValueError, match='There are 2 tables .*Give one'):
    own_data.open_path(tmp_path)
  with pytest.raises(ValueError, match="'lable'. Did you mean 'label'"):
    own_data.open_path(tmp_path / 'metadata.csv', label='lable')


def test_images_may_lie_in_a_configured_folder(tmp_path):
  own_data.write(tmp_path, *(f'a/images/{i}.png' for i in range(40)))
  table = tmp_path / 'b' / 'labels.csv'
  table.parent.mkdir()
  table.write_text(lines('path,label', lambda i: f'{i},{i % 2}'))
  opened = own_data.open_path(
      table, folder=str(tmp_path / 'a/images'), suffix='.png')
  assert opened.num_classes == 2
  assert epath.Path(opened.splits['train'].key(0)).exists()


@pytest.mark.parametrize(('row', 'table'), [
    ('../far/{}.png', {}), ('{}.png', {'folder': '../far'}),
    ('../near/../far/{}.png', {}), ('{root}/near/{}.png', {})])
def test_splits_do_not_depend_on_how_the_path_is_written(
    tmp_path, monkeypatch, row, table):
  for name in ('far', 'near'):
    own_data.write(tmp_path, *(f'{name}/{i}.png' for i in range(30)))
  (tmp_path / 'near/labels.csv').write_text(lines(
      'path,label', lambda i: f'{row.format(i, root=tmp_path)},{i % 2}', 30))
  monkeypatch.chdir(tmp_path)
  found = []
  for place in ('near/labels.csv', './near', tmp_path / 'near/labels.csv'):
    splits = own_data.open_path(place, **table).splits
    found.append({name: [(source.key(i), source[i]['label'])
                         for i in range(len(source))]
                  for name, source in splits.items()})
  assert found[0] == found[1] == found[2]


def test_ambiguous_image_paths_are_an_error(tmp_path):
  own_data.write(tmp_path, *(f'{folder}/{i}.png' for i in range(20)
                           for folder in ('test', 'train', 'val')))
  text = lines('path,label', lambda i: f'{i},{ANIMALS[i % 3]}', 20)
  table = tmp_path / 'trainLabels.csv'
  table.write_text(text)
  with pytest.raises(ValueError, match='ambiguous: .* exists as test/0.png and '
                     'train/0.png and val/0.png.*folder='):
    own_data.open_path(table)
  assert 'train/0.png' in own_data.labels(
      own_data.open_path(table, folder='train'))
  for name in ('train', 'validation'):
    (tmp_path / f'{name}.csv').write_text(text)
  table.unlink()
  assert set(own_data.labels(own_data.open_path(tmp_path))) == {
      f'{folder}/{i}.png' for i in range(20) for folder in ('train', 'val')}
  own_data.write(tmp_path, *(f'{i}.png' for i in range(20)))
  table.write_text(text)
  assert '0.png' in own_data.labels(own_data.open_path(table))
  own_data.write(tmp_path, *(f'{i}.jpg' for i in range(20)))
  with pytest.raises(ValueError, match=r'exists as 0.jpg and 0.png'):
    own_data.open_path(table)
