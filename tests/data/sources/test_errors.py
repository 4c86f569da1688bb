"""Data that break a convention or contradict a declaration are errors.

They name the file, the row or the member, and what to do.
"""

import pytest

from tests import own_data


def folders(*names, each=3):
  return lambda root: own_data.write(root, *(
      f'{name}/{i}.png'.lstrip('/') for name in names for i in range(each)))


def files(*names):
  return lambda root: own_data.write(root, *names)


def table(*lines, name='labels.csv'):
  """Writes a table and three images."""
  def write(root):
    own_data.write(root, '1.png', '2.png', '3.png')
    (root / name).write_text('\n'.join(lines) + '\n')
  return write


def lists(root):
  own_data.write(root, *(f'{i}.png' for i in range(4)))
  (root / 'a.jsonl').write_text('\n'.join(
      f'{{"path": "{i}.png", "label": [0, {i % 2}, 1]}}' for i in range(4)))


FOLDERS = [
    (folders('a', 'b'), {'table.label': 'x'}, 'data.table describes the'),
    (folders('a', 'b'), {'target': 'multi'}, 'has no class folders'),
    (folders('train', 'test', 'extra'), {'target': 'none'},
     r'name a split \(test, train\), but 3 do not: extra/'),
    (folders('images', 'masks'), {'target': 'none'}, 'has no class folders'),
    (files('train/cat/a.png', 'train/dog/b.png', 'test/cat/c.png',
           'test/Dog/d.png'), {},
     '1 of the classes .* only in other splits: Dog. .*lower case'),
    (files('train/cat/x.heic', 'test/cat/0.png', 'test/dog/0.png'), {},
     r'train has no images: no image that can be read in train/cat \(1 .heic'),
    (files('cat/a.png', 'dog/x.heic'), {},
     r"(?s)'cat'.* no image that can be read in dog \(1 .heic"),
    (files('train/cat/a.png', 'train/cat/b.png'), {},
     "single class folder 'cat'"),
    (files('train/1.png', 'test/1.png'), {},
     'no class folders; it holds test/, train/'),
    (files('train/a/1.png', 'train/b/1.png', 'valid/a/1.png'), {},
     'no class folders; it holds train/, valid/'),
    (files('val/a/1.png', 'val/b/1.png'), {},
     'no class folders; it holds val/'),
    (files('a.tar', 'b.parquet'), {},
     r'holds \S*/b.parquet and \S*/a.tar. Name those to use')]


@pytest.mark.parametrize(('write', 'flags', 'message'), FOLDERS)
def test_folders(tmp_path, write, flags, message):
  write(tmp_path)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path, **flags)


@pytest.mark.parametrize(('name', 'written', 'message'), [
    ('a.tar.gz', ['a.tar.gz'], '1 files of type .gz. Expected a folder, one'),
    ('*.csv', ['a.csv', 'b.csv'], '2 files of type .csv. .*data.val_source'),
    ('x.csv', [], 'x.csv does not exist.*a table'),
    ('*.tar', [], r'No file matches .*\*.tar')])
def test_other_and_missing_files(tmp_path, name, written, message):
  own_data.write(tmp_path, *written)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path / name)


TABLES = [
    (['path,label', '1.png,1_000', '2.png,2'], {'target': 'regression'},
     "row 1: '1_000'"),
    (['path,label', '1.png,nan', '2.png,2'], {'target': 'regression'},
     "row 1: 'nan'"),
    (['path,label', '1.png,"a', '2.png,b', '3.png,a"', '4.png,b'], {},
     'has a line break'),
    (['path,label', '1.png,a', '1.png,a', '2.png,a', '3.png,-1'], {},
     "row 4: '-1'"),
    (['path,label', '1.png,a', '70.png,b', '80.png,a'], {},
     r'2 of 3 images of .*labels.csv do not exist .*row 2.: '
     r'\S*/70.png, \S*/80.png'),
    (['path,label'], {}, 'holds no rows'), ([], {}, 'holds no rows'),
    (['path,label', '1.png,a,b'], {},
     'Line 2 of .* has 3 cells.*double quotes'),
    (['path,path,label'], {}, "two columns of one name: .'path'"),
    (['path,label,split', '1.png,a,train', '1.png,a,test'], {},
     "Rows 1 and 2 .* same image, 1.png, but split is 'train' and 'test'"),
    (['path,label,split', '1.png,a,train', '2.png,b,'], {},
     '1 of 2 rows of .* have no split .*row 2'),
    (['path,label,split', '1.png,a,test', '2.png,b,val'], {},
     'no training split'),
    (['path,label,split', '1.png,a,train', '2.png,b,test', '3.png,a,train'], {},
     '1 of the classes of .* have no image in train, only in other splits: b'),
    (['path,label,split', '1.png,,train', '2.png,b,test'], {},
     'training images of .* have no labels'),
    (['path,label', ',a', '1.png,b'], {},
     '1 of 2 images of .* do not exist .*row 1'),
    (['path,label', '1.png,cat', '2.png,dog', '1.png,dog'], {},
     "Rows 1 and 3 .* 1.png, but label is 'cat' and 'dog'.*target=multi"),
    (['path,label', '1.png,a', '2.png,"b', '3.png,a'], {},
     'begins at line 3 is not valid CSV'),
    (['path,label', '1.png,"a"b"'], {}, 'begins at line 2 is not valid CSV'),
    *((['path,label,split', '1.png,a,train', '2.png,b,train'],
       {f'table.{role}': f'{role}s'}, f"'{role}s'. Did you mean '{role}'")
      for role in ('path', 'label', 'split'))]


@pytest.mark.parametrize(('lines', 'flags', 'message'), TABLES)
def test_tables(tmp_path, lines, flags, message):
  table(*lines)(tmp_path)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path / 'labels.csv', **flags)


@pytest.mark.parametrize(('lines', 'message'), [
    (['{"path": "1.png"}', '[1]'], 'Line 2 of .* must be an object'),
    (['{"path": "1.png"}', '{"path"}'], 'Line 2 of .* is not JSON'),
    (['{"label": 1}', '{"label": "a"}'],
     "'label' of .* values of several types"),
    (['{"path": "1.png", "lable": 1}'], 'path, lable, but .*label were exp')])
def test_json_lines(tmp_path, lines, message):
  table(*lines, name='a.jsonl')(tmp_path)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path / 'a.jsonl')


def test_a_list_of_flags_is_no_list_of_classes(tmp_path):
  lists(tmp_path)
  with pytest.raises(ValueError, match="Row 1 .* has the label '0' twice"):
    own_data.open_splits(tmp_path / 'a.jsonl', target='multi')
