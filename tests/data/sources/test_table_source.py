"""Splits of tables: equal label columns, kinds of labels, missing labels."""

import gc
import json
import tracemalloc

import pytest

from tests import own_data
from vit_jax.data import cells as cells_lib
from vit_jax.data.sources import columns
from vit_jax.data.sources import table_source


def write_labels(root, train, test):
  """Writes a table with 30 labels of `train` and 10 of `test`."""
  own_data.write_table(root, 'path,label,split', (
      (f'{i}.png', label, 'train' if i < 30 else 'test')
      for i, label in enumerate([*train, *test])))


def write_split(root, name, header, numbers):
  """Writes a table whose labels are those numbers modulo 3."""
  own_data.write_table(root, header, (
      [f'{i}.png', *[i % 3] * header.count(',')] for i in numbers), name=name)


@pytest.mark.parametrize('header', ['path,target', 'path,Label'])
def test_a_label_column_of_another_name_is_an_error(tmp_path, header):
  write_split(tmp_path, 'train.csv', 'path,label', range(30))
  write_split(tmp_path, 'val.csv', header, range(30, 36))
  for _ in range(2):  # Alone, and beside a good test.csv.
    with pytest.raises(ValueError, match=(
        "val of .* lacks the label column 'label': its columns are "
        f'{header.replace(",", ", ")}, but those of train are path, label')):
      own_data.open_path(tmp_path)
    write_split(tmp_path, 'test.csv', 'path,label', range(36, 42))


def test_one_of_several_label_columns_may_not_be_missing(tmp_path):
  write_split(tmp_path, 'train.csv', 'path,x,y', range(30))
  write_split(tmp_path, 'test.csv', 'path,x', range(30, 36))
  with pytest.raises(ValueError, match="test of .* lacks .* column 'y'"):
    own_data.open_path(tmp_path, target='regression', label='x,y')


def test_labels_of_json_have_one_name_in_all_splits(tmp_path):
  own_data.write(tmp_path, *(f'{i}.png' for i in range(40)))
  (tmp_path / 'all.jsonl').write_text('\n'.join(
      json.dumps({'image': f'{i}.png', 'label' if i < 30 else 'target': i % 2,
                  'split': 'train' if i < 30 else 'test'}) for i in range(40)))
  with pytest.raises(ValueError, match=(
      "test of .*lacks the label column 'label': .*target, but")):
    own_data.open_path(tmp_path)


@pytest.mark.parametrize('label', ['', '-1', '-1.0'])
def test_a_split_without_labels_is_named_and_not_replaced(tmp_path, label):
  write_labels(tmp_path, [0, 1] * 15, [label] * 10)
  opened = own_data.open_path(tmp_path)
  assert opened.class_names == ('0', '1') and not opened.targets
  assert opened.unlabelled == ('test',) and opened.eval_split == 'val'
  assert own_data.sizes(opened) == {'train': 26, 'val': 4}
  assert ('val 4, chosen by a hash, evaluated on val; test has no labels and '
          'is ignored') in opened.description


@pytest.mark.parametrize(('train', 'test'), [
    ([0.5, 'n/a', 2.5], ['NaN', 'n/a']), ([0, 1, 1], ['nan', '-1']),
    (['cat', 'dog', 'dog'], ['None', 'NA'])])
def test_a_split_of_words_for_missing_labels_has_none(tmp_path, train, test):
  write_labels(tmp_path, train * 10, test * 5)
  assert own_data.open_path(tmp_path).unlabelled == ('test',)


def test_a_word_for_missing_labels_may_be_a_class(tmp_path):
  write_labels(tmp_path, ['cat', 'none'] * 15, ['none'] * 10)
  assert own_data.sizes(own_data.open_path(tmp_path)) == {
      'train': 30, 'test': 10}


def test_minus_one_is_a_label_if_train_has_it(tmp_path):
  write_labels(tmp_path, [-1, 1] * 15, [-1] * 10)
  opened = own_data.open_path(tmp_path, target='single')
  assert opened.class_names == ('-1', '1')
  assert own_data.sizes(opened) == {'train': 30, 'test': 10}


def test_classes_of_train_are_classes_in_every_split(tmp_path):
  write_labels(tmp_path, [0, 1] * 15, [0, 1] * 4 + ['0.5', 1])
  with pytest.raises(ValueError, match='no image in train, .*: 0.5'):
    own_data.open_path(tmp_path)
  assert own_data.open_path(tmp_path, target='regression').targets


def test_training_images_without_labels_are_an_error(tmp_path):
  write_labels(tmp_path, [-1] * 30, [0, 1] * 5)
  with pytest.raises(ValueError, match='training images of .* have no labels'):
    own_data.open_path(tmp_path)


def test_tables_beside_a_usual_one_are_an_error_unless_they_lack_labels(
    tmp_path):
  write_split(tmp_path, 'labels.csv', 'path,label', range(30))
  write_split(tmp_path, 'test.csv', 'path', range(30, 36))
  assert 'labels.csv: single' in own_data.open_path(tmp_path).description
  write_split(tmp_path, 'test.csv', 'path,label', range(30, 36))
  message = (r'2 tables .*: labels.csv, test.csv. Give one as data.source, or '
             r'one per split, .*/\{train,test\}.csv')
  with pytest.raises(ValueError, match=message):
    own_data.open_path(tmp_path)
  own_data.write(tmp_path, 'cat/1.png', 'dog/1.png')
  with pytest.raises(ValueError, match=r'class folders \(cat, dog\), move the'):
    own_data.open_path(tmp_path)


def test_two_tables_of_train_do_not_replace_class_folders(tmp_path):
  own_data.write(tmp_path, *(f'train/{name}/{i}.png' for i in range(9)
                             for name in ('cat', 'dog')))
  for name in ('train_a.csv', 'train_b.csv'):
    (tmp_path / name).write_text('path,label\ntrain/cat/1.png,x\n')
  assert own_data.open_path(tmp_path).class_names == ('cat', 'dog')


def test_every_table_of_a_split_is_used(tmp_path):
  write_split(tmp_path, 'train.csv', 'path,label', range(30))
  write_split(tmp_path, 'my_val.csv', 'path,label', range(30, 36))
  assert own_data.sizes(own_data.open_path(tmp_path)) == {
      'train': 30, 'val': 6}
  (tmp_path / 'my_val.csv').rename(tmp_path / 'labels.csv')
  with pytest.raises(ValueError, match='2 tables .*: labels.csv, train.csv'):
    own_data.open_path(tmp_path)


def test_an_open_table_keeps_no_python_object_per_example():
  config = columns.LabelConfig(table=columns.TableConfig(label=('class',)))

  def retained_bytes(count):
    tracemalloc.start()
    texts = cells_lib.Texts.of(f'{i}.png' for i in range(count))
    opened = table_source.build(
        bytes, texts.__getitem__, {'class': [str(i % 2) for i in range(count)]},
        config, where='a table', num_rows=count)
    gc.collect()
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert opened.splits
    return found

  few, many = map(retained_bytes, (1_000, 11_000))
  assert many - few < 25 * 10_000  # An `int` of a list takes 36 bytes.
