"""Tables of image files: dialects, columns, image paths, splits, errors."""

import gc
import json
import tracemalloc

from etils import epath
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import own_data
from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import table_source

ANIMALS = ('cat', 'dog', 'emu')
LABELS = {f'images/{i}.png': ANIMALS[i % 3] for i in range(40)}


def write(root, text, name='labels.csv', images=40):
  own_data.write(root, *(f'images/{i}.png' for i in range(images)))
  (root / name).write_text(text)
  return root / name


def lines(header, row, count=40):
  return '\n'.join([header, *(
      row.format(i, ANIMALS[i % 3], i % 2) for i in range(count)), ''])


def test_examples_are_read_by_index(tmp_path):
  path = write(tmp_path, lines('file_name,label', 'images/{0}.png,{1}'),
               'metadata.csv')
  for place in (path, tmp_path):
    opened = own_data.open_path(place)
    assert own_data.images(opened) == LABELS
    train = opened.splits['train']
    assert all(train[i] == {'image': train.key(i).encode(),
                            'label': train.label(i)} for i in range(len(train)))
    # In hash order, so that a slice of the split is a sample.
    assert len({train.label(i) for i in range(8)}) == 3
  assert ('metadata.csv: single-label, 3 classes: cat, dog, emu (label)'
          in opened.description)


@pytest.mark.parametrize(('name', 'text', 'table'), [
    ('a.csv', lines('\ufeffpath;label', 'images/{0}.png;{1}'), {}),
    ('a.tsv', lines('label\tpath', '{1}\timages/{0}.png'), {}),
    ('a.csv', lines('path,label', '"images/{0}.png"," {1}"\n'), {}),
    ('a.csv', lines('id,breed,shot', '{0},{1},images\\{0}.png'),
     {'path': 'shot', 'label': 'breed'}),
    ('a.jsonl', lines('', '{{"id": {0}, "label": "{1}"}}\r'),
     {'path': 'id', 'folder': 'images', 'suffix': '.png'}),
    ('a.parquet', '', {})])
def test_dialects_and_declared_columns(
    tmp_path, monkeypatch, name, text, table):
  path = write(tmp_path, text, name)
  if not text:
    pq.write_table(pa.table({'path': [*LABELS], 'label': [*LABELS.values()]}),
                   path)
  monkeypatch.chdir(tmp_path)
  assert own_data.images(own_data.open_path(path, **table)) == LABELS


def test_columns_of_flags_in_parquet_are_classes(tmp_path):
  own_data.write(tmp_path, *(f'{i}.png' for i in range(4)))
  pq.write_table(pa.table({
      'path': [f'{i}.png' for i in range(4)], 'label': [True, False] * 2,
      'other': [True, False, False, True]}), tmp_path / 'x.parquet')
  assert own_data.open_path(
      tmp_path / 'x.parquet', 'multi', label='label,other',
  ).class_names == ('label', 'other')


def test_text_stays_text(tmp_path):
  table = own_data.write_table(tmp_path, 'path,label', (
      (f'{i}.png', ('007', '08', '1e3')[i % 3]) for i in range(12)))
  assert own_data.open_path(table).class_names == ('007', '08', '1e3')


@pytest.mark.parametrize('column', ['split', 'part'])
def test_a_split_column_and_a_split_without_labels(tmp_path, column):
  splits = ['train'] * 20 + ['Validation'] * 10 + ['test'] * 10
  write(tmp_path, ''.join(json.dumps({
      'path': path, column: split, 'label': '' if split == 'test' else label,
  }) + '\n' for split, (path, label) in zip(splits, LABELS.items())), 'a.jsonl')
  opened = own_data.open_path(
      tmp_path / 'a.jsonl', **{'split': column} if column == 'part' else {})
  assert own_data.sizes(opened) == {'train': 20, 'validation': 10}
  assert opened.eval_split == 'validation' and opened.unlabelled == ('test',)
  assert 'test has no labels and is ignored' in opened.description


def test_rows_of_one_image_are_joined_if_multi_label(tmp_path):
  table = own_data.write_table(tmp_path, 'path,label', [
      '1.png,cat', '2.png,dog|emu', '1.png,', '2.png,cat', '1.png,dog',
      '3.png,cat'])
  opened = own_data.open_path(table, 'multi', separator='|')
  assert own_data.images(opened) == {
      '1.png': ['cat', 'dog'], '2.png': [*ANIMALS], '3.png': ['cat']}
  repeated = own_data.open_path(own_data.write_table(tmp_path, 'path,label', [
      '1.png,cat', '2.png,dog', '1.png,cat', '3.png,cat']))
  assert sum(own_data.sizes(repeated).values()) == 3
  assert '1 rows repeat an image' in repeated.description


def test_hash_splits_are_the_same_for_all_ways_to_write_a_path(
    tmp_path, monkeypatch):
  far, near = tmp_path / 'far', tmp_path / 'near'
  own_data.write(far, *(f'{i}.png' for i in range(40)))
  near.mkdir()
  monkeypatch.chdir(near)
  found = []
  for path, table in (
      ('../far/{0}.png', {}), ('{0}.png', {'folder': '../far'}),
      ('{0}', {'folder': str(far), 'suffix': '.png'}),
      (f'{near}/../far/{{0}}.png', {})):
    (near / 'a.csv').write_text(lines('path,label', path + ',{1}'))
    opened = own_data.open_path('./a.csv', **table)
    key = opened.splits['train'].key(0)
    assert key.startswith('../far/') and epath.Path(key).exists()
    found.append([*own_data.labels(opened).items()])
  assert found[0] == found[1] == found[2] == found[3]


def test_an_open_table_keeps_no_python_object_per_example():
  def retained_bytes(count):
    tracemalloc.start()
    keys = columns_lib.texts(f'{i}.png' for i in range(count))
    opened = table_source.build(table_source.Images(
        where='a table', read=bytes, keys=keys, labels={
            'class': pa.array(str(i % 2) for i in range(count))}),
                              columns_lib.DEFAULT)
    gc.collect()
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert opened.splits
    return found

  few, many = map(retained_bytes, (1_000, 11_000))
  assert many - few < 25 * 10_000  # An `int` of a list takes 36 bytes.
