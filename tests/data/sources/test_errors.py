"""Data that break a convention or contradict a declaration are errors.

They name the file, the row or the member, and what to do.
"""

import os

import pytest

from tests import leaves
from tests import own_data
from vit_jax import registry


def folders(*names):
  return lambda root: own_data.write_folders(root, *names)


def files(*names):
  return lambda root: own_data.write(root, *names)


FOLDERS = [
    (folders('a', 'b'), {'table.label': 'x'}, 'data.table describes the'),
    (folders('a', 'b'), {'target': 'multi'}, 'has no class folders'),
    (folders('a', 'b'), {'group': '(P'}, 'regular expression: .*one group'),
    (folders('a', 'b'), {'group': 'P'}, 'has 0 groups in parentheses'),
    (folders('a', 'b'), {'group': 'b/(.)'},
     r'finds no group in \d of \d images: a/0.png'),
    (folders('train', 'test', 'extra'), {'target': 'none'},
     r'name a split \(test, train\), but 3 do not: extra/'),
    (files('train/cat/a.png', 'train/dog/b.png', 'test/cat/c.png',
           'test/Dog/d.png'), {},
     '1 of the classes .* only in other splits: Dog. .*lower case'),
    (files('train/cat/x.heic', 'test/cat/0.png', 'test/dog/0.png'), {},
     r'train has no images: no image that can be read in train/cat \(1 .heic'),
    (folders('train/cat'), {}, "single class folder 'cat'"),
    (files('train/1.png', 'test/1.png'), {},
     'no class folders; it holds test/, train/'),
    (folders('train/a', 'train/b', 'valid/a'), {},
     'no class folders; it holds train/, valid/'),
    (folders('tea', os.fsdecode(b'caf\xe9')), {},
     r"'caf\\udce9' is not Unicode text. Rename the file."),
    (folders('train/a', 'train/b', 'test/a', 'test/b'), {'holdout': 0.25},
     'is 0.25, but .*test, train'),
    (folders('a', 'b'), {'val_source': 'digits'},
     'The validation data has other classes than'),
    *[(folders('a', 'b'), {'val_source': 'shapes'},
       'of the kind multi, but .* single')] * leaves.has(
           registry.SOURCES['shapes']),
    (folders('a', 'b'), {'val_source': 'digits', 'holdout': 0.2},
     'val_source and holdout exclude each other'),
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
    (['path,label', '1.png,"a', '2.png,b', '3.png,a"', '4.png,b'], {},
     'has a line break'),
    (['path,label', '1.png,a', '70.png,b', '80.png,a'], {},
     r'2 of 3 images of .*labels.csv do not exist .*row 2.: '
     r'\S*/70.png, \S*/80.png'),
    (['path,label', ',a', '1.png,b'], {},
     '1 of 2 images of .* do not exist .*row 1'),
    (['path,label'], {}, 'holds no rows'), ([], {}, 'holds no rows'),
    (['path,label', '1.png,a,b'], {},
     'Line 2 of .* has 3 cells.*double quotes'),
    (['path,label', '1.png,a', '2.png,"b', '3.png,a'], {},
     'begins at line 3 is not valid CSV'),
    (['path,path,label'], {}, "two columns of one name: .'path'"),
    (['path,label', '1.png,cat', '2.png,dog', '1.png,dog'], {},
     "Rows 1 and 3 .* 1.png, but label is 'cat' and 'dog'.*target=multi"),
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
    (['path,label,split', '1.png,,test', '2.png,a,train', '3.png,,train'], {},
     '1 of 2 cells .*row 3: None'),
    (['path,label', '1.png,a', '2.png,b'], {'table.label': 'labels'},
     "'labels'. Did you mean 'label'"),
    (['path,label', '1.png,a', '2.png,b'], {'group': 'label'},
     "'label', the label column"),
    (['path,label,of', '1.png,a,7', '2.png,b, '], {'group': 'of'},
     "1 of 2 rows of .* no group in 'of' .*the first: row 2"),
    (['path,label,of', '1.png,a,7'], {'group': 'off'}, "'off'. Did you mean"),
    (['{"path": "1.png"}', '[1]'], {}, 'Line 2 of .* must be an object'),
    (['{"path": "1.png"}', '{"path"}'], {}, 'Line 2 of .* is not JSON'),
    (['{"label": 1}', '{"label": "a"}'], {},
     "'label' of .* values of several types"),
    (['{"path": "1.png", "lable": 1}'], {},
     'path, lable, but .*label were exp'),
    # A list of flags is no list of classes.
    ([f'{{"path": "{i}.png", "label": [0, {i}, 1]}}' for i in (1, 2, 3)],
     {'target': 'multi'}, "Row 1 .* has the label '1' twice")]


@pytest.mark.parametrize(('lines', 'flags', 'message'), TABLES)
def test_tables(tmp_path, lines, flags, message):
  own_data.write(tmp_path, '1.png', '2.png', '3.png')
  table = tmp_path / ('labels.jsonl' if '{' in ''.join(lines) else 'labels.csv')
  table.write_text('\n'.join(lines) + '\n')
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(table, **flags)
