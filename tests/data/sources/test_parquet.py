"""Images in Parquet are read by row group, in any order, and cached."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vit_jax.data.sources import layouts
from vit_jax.data.sources import parquet
from vit_jax.data.sources import rows

NAMES = ('cat', 'dog', 'emu')


def open_path(path, **table):
  return layouts.open_path(
      str(path), rows.Understood('auto', rows.TableConfig(**table)))


def write(path, first, last, *, struct=True, names=NAMES, label='label'):
  """Writes images that say their number, four rows to a group."""
  path.parent.mkdir(parents=True, exist_ok=True)
  numbers = range(first, last)
  images = [str(i).encode() for i in numbers]
  if struct:
    images = pa.array(
        [{'bytes': image, 'path': None} for image in images],
        pa.struct([('bytes', pa.binary()), ('path', pa.string())]))
  table = pa.table({'image': images, label: [i % 3 for i in numbers]})
  if names:
    feature = {'_type': 'ClassLabel', 'names': names}
    table = table.replace_schema_metadata({'huggingface': json.dumps(
        {'info': {'features': {label: feature}}})})
  pq.write_table(table, path, row_group_size=4)


def assert_all_there(opened, count):
  found = {}
  for source in opened.splits.values():
    for i in range(len(source)):
      example = source[i]
      assert example['label'] == source.label(i)
      found[int(example['image'])] = example['label']
  assert found == {i: i % 3 for i in range(count)}


@pytest.fixture
def hub(tmp_path):
  """A data set as Hugging Face's hub holds it."""
  write(tmp_path / 'data/train-00000-of-00002.parquet', 0, 18)
  write(tmp_path / 'data/train-00001-of-00002.parquet', 18, 30)
  write(tmp_path / 'data/test-00000-of-00001.parquet', 30, 40)
  return tmp_path


def test_examples_of_parquet_are_read_by_index(hub):
  opened = open_path(hub)
  assert opened.class_names == NAMES and opened.num_classes == 3
  assert {k: len(v) for k, v in opened.splits.items()} == {
      'train': 30, 'test': 10}
  assert_all_there(opened, 40)
  keys = {opened.splits['train'].key(i) for i in range(30)}
  assert len(keys) == 30 and 'train-00001-of-00002.parquet 11' in keys


@pytest.mark.parametrize('struct', [True, False])
def test_one_file_is_split_by_a_hash(tmp_path, struct):
  write(tmp_path / 'a.parquet', 0, 60, struct=struct, names=None)
  opened = open_path(tmp_path / '*.parquet')
  assert opened.class_names == ('0', '1', '2')
  assert 0 < len(opened.splits['test']) < 20
  assert_all_there(opened, 60)


def test_in_order_each_row_group_is_read_once_and_few_stay(hub, monkeypatch):
  read = []
  group = pq.ParquetFile.iter_batches
  train = open_path(hub).splits['train']
  kept = parquet._groups._kept

  def batches(*args, row_groups, **kwargs):
    assert not kept  # The room for a group is made before it is read.
    read.append(row_groups)
    return group(*args, row_groups=row_groups, **kwargs)

  monkeypatch.setattr(pq.ParquetFile, 'iter_batches', batches)
  monkeypatch.setattr(parquet, '_CACHE_BYTES', 0)
  for i in range(30):
    train[i]
  assert len(read) == 5 + 3
  assert len(kept) == 1


def test_a_row_group_that_fills_a_memory_is_said_with_the_figure(
    hub, monkeypatch):
  assert 'row group' not in open_path(hub).description
  monkeypatch.setattr(parquet, '_LARGE_BYTES', 20)
  assert re.search(
      'a row group of .* GiB is read whole, .* up to .* GiB of memory: write '
      'smaller ones', open_path(hub).description)


def test_labels_are_read_without_the_images(hub, monkeypatch):
  monkeypatch.setattr(parquet.Images, 'read', None)
  train = open_path(hub).splits['train']
  assert sorted(train.label(i) for i in range(30)) == [0] * 10 + [1] * 10 + [
      2] * 10


def test_a_parquet_table_of_paths_is_a_table(tmp_path):
  for i in range(6):
    (tmp_path / f'{i}.png').write_bytes(b'')
  pq.write_table(pa.table({
      'file': [f'{i}.png' for i in range(6)],
      'label': [NAMES[i % 2] for i in range(6)]}), tmp_path / 'a.parquet')
  assert open_path(tmp_path).class_names == ('cat', 'dog')


def test_mistakes_of_parquet_are_said(hub):
  file = hub / 'data/test-00000-of-00001.parquet'
  with pytest.raises(ValueError, match="'labels'. Did you mean 'label'"):
    open_path(hub, label='labels')
  whole = file.read_bytes()
  write(file, 0, 4, label='class')
  with pytest.raises(ValueError, match='Files of one data set have the same'):
    open_path(hub / 'data')
  cut = hub / 'cut/a.parquet'
  cut.parent.mkdir()
  cut.write_bytes(whole[:-9])
  with pytest.raises(ValueError, match=f'{cut} is cut off, or no Parquet'):
    open_path(cut)


def test_lists_of_named_classes_are_multi_label(tmp_path):
  feature = {'_type': 'Sequence', 'feature': {
      '_type': 'ClassLabel', 'names': NAMES}}
  table = pa.table({
      'image': [str(i).encode() for i in range(9)],
      'caption': ['long'] * 9, 'objects': [[2], [0, 1], []] * 3})
  pq.write_table(table.replace_schema_metadata({'huggingface': json.dumps(
      {'info': {'features': {'objects': feature}}})}), tmp_path / 'a.parquet')
  opened = open_path(tmp_path, label='objects')
  assert opened.multi_label and opened.class_names == NAMES
  train = opened.splits['train']
  for i in range(len(train)):
    assert train.label(i).tolist() == [[2], [0, 1], []][
        int(train[i]['image']) % 3]


def test_images_that_were_left_out_are_said(tmp_path):
  pq.write_table(pa.table({
      'image': pa.array([None, None, None], pa.binary()),
      'label': [0, 1, 0]}), tmp_path / 'a.parquet')
  with pytest.raises(ValueError, match='the image is not in .*a.parquet'):
    open_path(tmp_path).splits['train'][0]


def test_files_that_number_the_classes_otherwise_are_not_joined(hub):
  path = hub / 'data/test-00000-of-00001.parquet'
  write(path, 30, 40, names=('dog', 'cat', 'emu'))
  with pytest.raises(ValueError, match='train-00000.* names the classes cat, '
                     'dog, emu, but .*test-.* dog, cat, emu: the same number'):
    open_path(hub)
  write(path, 30, 40, names=None)  # Nobody says otherwise.
  assert open_path(hub).class_names == NAMES
