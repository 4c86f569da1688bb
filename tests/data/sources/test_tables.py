"""Tables of files are found, read as they are meant, and checked."""

import json

from etils import epath
import numpy as np
import pytest

from vit_jax.data.sources import layouts
from vit_jax.data.sources import rows


def open_path(path, target='auto', **table):
  return layouts.open_path(
      str(path), rows.Understood(target, rows.TableConfig(**table)))


def write_images(root, *paths):
  for path in paths:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(str(path).encode())  # Opening reads no image.


def write_table(root, text, name='labels.csv', images=40):
  write_images(root, *(f'images/{i}.png' for i in range(images)))
  path = root / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  return path


def lines(head, row, count=40):
  return '\n'.join([head, *(row(i) for i in range(count))]) + '\n'


def examples(opened):
  """Returns the label of each image's path, over all splits."""
  return {source.key(i): source[i]['label'] for source in
          opened.splits.values() for i in range(len(source))}


ANIMALS = ('cat', 'dog', 'emu')
PLAIN = lines('path,label', lambda i: f'images/{i}.png,{ANIMALS[i % 3]}')


def test_examples_of_a_table_are_read_by_index(tmp_path):
  table = write_table(tmp_path, PLAIN)
  for place in (table, tmp_path):
    opened = open_path(place)
    assert opened.class_names == ANIMALS and not opened.multi_label
    assert examples(opened) == {f'images/{i}.png': i % 3 for i in range(40)}
    train = opened.splits['train']
    for i in range(len(train)):
      assert train[i] == {'image': train.key(i).encode(),
                          'label': train.label(i)}
    # A part of the split is a sample of it.
    assert len({train.label(i) for i in range(8)}) == 3
  assert ('labels.csv: single-label, 3 classes: cat, dog, emu (column label)'
          in opened.description)


def test_a_table_without_splits_is_split_for_ever(tmp_path):
  write_table(tmp_path, PLAIN)
  before = open_path(tmp_path).splits
  test = {before['test'].key(i) for i in range(len(before['test']))}
  assert 0 < len(test) < 12
  write_images(tmp_path, 'images/new.png')
  with (tmp_path / 'labels.csv').open('a') as file:
    file.write('images/new.png,cat\n')
  after = open_path(tmp_path).splits['test']
  assert test <= {after.key(i) for i in range(len(after))}


def test_rows_of_a_key_stay_in_one_split(tmp_path):
  write_table(tmp_path, lines(
      'path,label,patient',
      lambda i: f'images/{i}.png,{ANIMALS[i % 2]},{i // 4}'))
  opened = open_path(tmp_path, key='patient', label='label')
  patients = [{int(source.key(i)[7:-4]) // 4 for i in range(len(source))}
              for source in opened.splits.values()]
  assert len(opened.splits['test']) and not patients[0] & patients[1]


@pytest.mark.parametrize(('name', 'head', 'row'), [
    ('labels.csv', 'file_name;Class', 'images/{0}.png;{1}'),
    ('any.tsv', 'image\tcategory', 'images/{0}.png\t{1}'),
    ('labels.csv', ',label,filepath', '{0},{1},{0}.png'),
    ('labels.csv', 'id,breed,shot', '{0},{1},images\\{0}.png'),
    ('labels.csv', 'image_id,label', '{0},{1}'),
    ('labels.csv', 'path,label', '"images/{0}.png","{1}"')])
def test_tables_are_read_as_people_write_them(tmp_path, name, head, row):
  write_table(tmp_path, '\ufeff' + lines(
      head, lambda i: row.format(i, ANIMALS[i % 3])), name)
  assert examples(open_path(tmp_path)) == {
      f'images/{i}.png': i % 3 for i in range(40)}


def test_json_lines_hold_lists_of_labels(tmp_path):
  write_table(tmp_path, ''.join(json.dumps({
      'file_name': f'images/{i}.png', 'labels': ['cat', 'dog'][:i % 3],
      'split': 'train' if i < 30 else 'Validation'}) + '\n'
                                for i in range(40)), 'metadata.jsonl')
  opened = open_path(tmp_path)
  assert opened.multi_label and opened.class_names == ('cat', 'dog')
  assert {k: len(v) for k, v in opened.splits.items()} == {
      'train': 30, 'validation': 10}
  assert opened.eval_split == 'validation'
  found = examples(opened)
  assert [found[f'images/{i}.png'].tolist() for i in range(3)] == [
      [], [0], [0, 1]]


def test_regression_targets_are_vectors(tmp_path):
  write_table(tmp_path, lines(
      'path,x,y', lambda i: f'images/{i}.png,{i / 4},{"" if i == 2 else -i}'))
  opened = open_path(tmp_path, label='x,y')
  assert opened.targets == ('x', 'y') and opened.num_classes == 2
  found = examples(opened)
  np.testing.assert_array_equal(found['images/3.png'], [0.75, -3])
  np.testing.assert_array_equal(found['images/2.png'], [0.5, np.nan])
  assert found['images/3.png'].dtype == np.float32


def test_rows_of_one_image_join_where_it_may_have_several_labels(tmp_path):
  text = 'path,label\n1.png,cat\n2.png,dog\n1.png,dog\n3.png,cat\n'
  write_table(tmp_path, text, images=5)
  with pytest.raises(ValueError, match='1 images of .* twice, with different '
                     'labels: images/1.png is cat and dog.*target=multi'):
    open_path(tmp_path)
  opened = open_path(tmp_path, target='multi')
  assert examples(opened)['images/1.png'].tolist() == [0, 1]


def test_a_table_for_each_split_and_one_without_labels(tmp_path):
  for split, first, last in (('train', 0, 20), ('valid', 20, 30),
                             ('test', 30, 40)):
    write_images(tmp_path, *(f'{split}/{i}.jpg' for i in range(first, last)))
    label = '' if split == 'test' else ',{}'
    (tmp_path / f'{split}.csv').write_text('\n'.join(
        [f'id{label.format("label")},file', *(
            f'{i}{label.format(ANIMALS[i % 2])},{i}.jpg'
            for i in range(first, last))]))
  opened = open_path(tmp_path)
  assert {k: len(v) for k, v in opened.splits.items()} == {
      'train': 20, 'valid': 10}
  assert 'test has no labels, and is passed over' in opened.description
  assert examples(opened)['valid/21.jpg'] == 1


def test_metadata_may_lie_in_the_folder_of_each_split(tmp_path):
  for split, count in (('train', 6), ('test', 2)):
    write_images(tmp_path, *(f'{split}/{i}.png' for i in range(count)))
    (tmp_path / split / 'metadata.csv').write_text(lines(
        'file_name,label', lambda i: f'{i}.png,{ANIMALS[i % 2]}', count))
  opened = open_path(tmp_path)
  assert examples(opened)['test/1.png'] == examples(opened)['train/3.png'] == 1
  assert len(opened.splits['test']) == 2


@pytest.mark.parametrize('name', ['colours.csv', 'labels.csv'])
def test_folders_of_classes_are_not_given_up_for_any_table(tmp_path, name):
  write_images(tmp_path, 'cat/1.png', 'dog/2.png')
  (tmp_path / name).write_text('label,name\n0,cat\n1,dog\n')
  assert open_path(tmp_path).class_names == ('cat', 'dog')


@pytest.mark.parametrize(('text', 'words'), [
    ('path,label\n1.png,a\n7.png,b\n8.png,a\n',
     r'2 of 3 images of .*labels.csv are not there: 7.png, 8.png. Looked in'),
    ('path,label\n', 'holds no rows'), ('', 'No column of .* hold the images'),
    ('1.png,cat\n2.png,dog\n', 'no line of names at its top'),
    ('path,label\n1.png,a,b\n', 'Line 2 of .* has 3 cells.*double quotes'),
    ('path,path,label\n', "two columns called 'path'"),
    ('path,label,split\n1.png,a,train\n1.png,a,test\n',
     'images/1.png is in several splits .*: test, train'),
    ('path,label,split\n1.png,a,train\n2.png,b,\n',
     "1 of 2 rows of .* have no split in column 'split' .*row 2"),
    ('path,label,split\n1.png,a,test\n2.png,b,val\n', 'no split to train on'),
    ('path,label,split\n1.png,a,train\n2.png,b,test\n3.png,a,train\n',
     '1 of the classes of .* have no image in train, only in other splits: b'),
    ('path,x,y\n1.png,a,b\n', 'Of x, y, any could be it'),
    ('path\n1.png\n', 'no other column than that of the images'),
    ('path,label\n,a\n1.png,b\n', '1 rows of .* name no image .*row 1')])
def test_a_mistake_in_a_table_is_said(tmp_path, text, words):
  write_table(tmp_path, text, images=4)
  with pytest.raises(ValueError, match=words):
    open_path(tmp_path / 'labels.csv')


def test_an_unknown_column_names_the_nearest(tmp_path):
  write_table(tmp_path, PLAIN)
  with pytest.raises(ValueError, match="'lable'. Did you mean 'label'"):
    open_path(tmp_path, label='lable')


def test_several_tables_without_splits_are_an_error(tmp_path):
  write_table(tmp_path, PLAIN)
  write_table(tmp_path, PLAIN, 'metadata.csv')
  with pytest.raises(ValueError, match='2 tables .*not clear which is meant'):
    open_path(tmp_path)
  assert open_path(tmp_path / 'metadata.csv').num_classes == 3


def test_a_table_elsewhere_says_where_its_images_are(tmp_path):
  write_table(tmp_path / 'a', '')
  table = tmp_path / 'b' / 'labels.csv'
  table.parent.mkdir()
  table.write_text(lines('path,label', lambda i: f'{i},{i % 2}'))
  opened = open_path(table, folder=str(tmp_path / 'a/images'), suffix='.png')
  assert opened.num_classes == 2
  assert epath.Path(opened.splits['train'].key(0)).exists()


@pytest.mark.parametrize(('row', 'table'), [
    ('../far/{}.png', {}), ('{}.png', {'folder': '../far'}),
    ('../near/../far/{}.png', {}), ('{root}/near/{}.png', {})])
def test_a_table_is_the_same_from_wherever_it_is_named(
    tmp_path, monkeypatch, row, table):
  for name in ('far', 'near'):
    write_images(tmp_path, *(f'{name}/{i}.png' for i in range(30)))
  (tmp_path / 'near/labels.csv').write_text(lines(
      'path,label', lambda i: f'{row.format(i, root=tmp_path)},{i % 2}', 30))
  monkeypatch.chdir(tmp_path)
  found = []
  for place in ('near/labels.csv', './near', tmp_path / 'near/labels.csv'):
    splits = open_path(place, **table).splits
    found.append({name: [(source.key(i), source[i]['label'])
                         for i in range(len(source))]
                  for name, source in splits.items()})
  assert found[0] == found[1] == found[2]


def test_images_of_one_name_in_two_folders_are_not_taken_by_chance(tmp_path):
  write_images(tmp_path, *(f'{folder}/{i}.png' for i in range(20)
                           for folder in ('test', 'train', 'val')))
  text = lines('path,label', lambda i: f'{i},{ANIMALS[i % 3]}', 20)
  table = tmp_path / 'trainLabels.csv'
  table.write_text(text)
  with pytest.raises(ValueError, match='means is not clear: .* there as '
                     'test/0.png and train/0.png and val/0.png.*folder='):
    open_path(table)
  assert 'train/0.png' in examples(open_path(table, folder='train'))
  for name in ('train', 'validation'):
    (tmp_path / f'{name}.csv').write_text(text)
  table.unlink()
  assert set(examples(open_path(tmp_path))) == {
      f'{folder}/{i}.png' for i in range(20) for folder in ('train', 'val')}
  write_images(tmp_path, *(f'images/{i}.png' for i in range(20)))
  table.write_text(text)
  assert 'images/0.png' in examples(open_path(table))
  write_images(tmp_path, *(f'images/{i}.jpg' for i in range(20)))
  with pytest.raises(ValueError, match='images/0.jpg and images/0.png'):
    open_path(table)


@pytest.mark.parametrize(('broken', 'words'), [
    ('"cat', 'begins at line 5 is no CSV: unexpected end of data'),
    ('"cat\nimages/9.png,"cat"', 'begins at line 5 is no CSV'),
    ('x' * 140_000, 'begins at line 5 is no CSV: field larger')])
def test_a_quote_that_nobody_closes_swallows_no_rows(tmp_path, broken, words):
  table = write_table(tmp_path, lines(
      'path,label', lambda i: f'images/{i}.png,{broken if i == 3 else "cat"}'))
  with pytest.raises(ValueError, match=words):
    open_path(table)


def test_a_line_of_json_ends_where_the_file_says(tmp_path):
  write_table(tmp_path, ''.join(
      json.dumps({'path': f'images/{i}.png', 'label': f'a\u2028{i % 2}\x85'},
                 ensure_ascii=False) + '\r\n' for i in range(40)), 'x.jsonl')
  assert open_path(tmp_path / 'x.jsonl').class_names == (
      'a\u20280\x85'.strip(), 'a\u20281\x85'.strip())


def test_joined_rows_hold_the_labels_of_each_and_nothing_where_empty(tmp_path):
  write_table(tmp_path, 'path,label\n1.png,cat\n2.png,dog|emu\n1.png,\n'
              '2.png,cat\n3.png,cat\n')
  opened = open_path(tmp_path, target='multi')
  assert opened.class_names == ANIMALS
  assert {key: sorted(label) for key, label in examples(opened).items()} == {
      'images/1.png': [0], 'images/2.png': [0, 1, 2], 'images/3.png': [0]}
  (tmp_path / 'labels.csv').unlink()
  write_table(tmp_path, ''.join(json.dumps(
      {'path': '1.png' if i < 2 else f'{i}.png', 'label': label}) + '\n'
      for i, label in enumerate([['cat'], ['dog', None], ['dog', ''], []])),
              'labels.jsonl')
  opened = open_path(tmp_path, target='multi')
  assert opened.class_names == ('cat', 'dog')
  assert sorted(examples(opened)['images/1.png']) == [0, 1]


def test_rows_that_are_there_twice_are_told_of(tmp_path):
  write_table(tmp_path, PLAIN + 'images/3.png,cat\n')
  opened = open_path(tmp_path)
  assert sum(map(len, opened.splits.values())) == 41
  assert '1 rows name an image that is there already' in opened.description
