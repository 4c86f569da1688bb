"""Parquet files and datasets of the Hugging Face hub."""

import pickle

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import own_data

NAMES = ('cat', 'dog', 'emu')


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
  monkeypatch.setattr(
      datasets.config, 'HF_DATASETS_CACHE', tmp_path_factory.mktemp('hf'))
  datasets.disable_progress_bars()


CLASSES = datasets.ClassLabel(names=list(NAMES))
NUMBERS = datasets.Value('int64')


def dataset(images, **columns):
  """Makes a dataset of numbered images and of columns: values and feature."""
  return datasets.Dataset.from_dict({
      'image': [{'bytes': b'%d' % i, 'path': None} for i in images],
      **{name: values for name, (values, _) in columns.items()}},
      features=datasets.Features({'image': datasets.Image(), **{
          name: feature for name, (_, feature) in columns.items()}}))


def write(path, first, last, *, classes=CLASSES, label='label'):
  """Writes images whose content is their number."""
  path.parent.mkdir(parents=True, exist_ok=True)
  numbers = range(first, last)
  dataset(numbers, **{label: ([i % 3 for i in numbers], classes)}).to_parquet(
      path)


def assert_complete(opened, count):
  found = {}
  for source in opened.splits.values():
    for i in range(len(source)):
      example = source[i]
      assert example['label'] == source.label(i)
      found[int(example['image'])] = example['label']
  assert found == {i: i % 3 for i in range(count)}


@pytest.fixture
def hub(tmp_path):
  """Files of a dataset as the Hugging Face hub stores them."""
  write(tmp_path / 'data/train-00000-of-00002.parquet', 0, 18)
  write(tmp_path / 'data/train-00001-of-00002.parquet', 18, 30)
  write(tmp_path / 'data/test-00000-of-00001.parquet', 30, 40)
  return tmp_path


def test_examples_are_read_by_index_with_stable_keys(hub):
  opened = own_data.open_path(hub)
  assert opened.class_names == NAMES and opened.num_classes == 3
  assert own_data.sizes(opened) == {'train': 30, 'test': 10}
  assert_complete(opened, 40)
  train = opened.splits['train']
  image = {train.key(i): train[i]['image'] for i in range(30)}
  assert len(image) == 30
  assert image['train-00001-of-00002.parquet 11'] == b'29'
  copy = pickle.loads(pickle.dumps(train))
  assert [copy[i] for i in range(30)] == [train[i] for i in range(30)]


@pytest.mark.parametrize('struct', [True, False])
def test_one_file_is_split_by_a_hash(tmp_path, struct):
  write(tmp_path / 'a.parquet', 0, 60, classes=NUMBERS)
  if not struct:  # Images may be binary cells.
    pq.write_table(pa.table({
        'image': [b'%d' % i for i in range(60)],
        'label': [i % 3 for i in range(60)]}), tmp_path / 'a.parquet')
  opened = own_data.open_path(
      tmp_path / '*.parquet', **{} if struct else {'path': 'image'})
  assert opened.class_names == ('0', '1', '2')
  assert 0 < len(opened.splits['test']) < 20
  assert_complete(opened, 60)


def test_a_data_set_of_the_hub_is_opened_by_its_address(tmp_path, monkeypatch):
  def load_dataset(**arguments):
    if arguments != {'path': 'me/pets', 'revision': 'v2', 'name': 'small',
                     'keep_in_memory': False}:
      raise datasets.exceptions.DatasetNotFoundError('not found')
    for split, numbers in (('train', range(30)), ('test', range(30, 40))):
      dataset(numbers, label=([i % 3 for i in numbers], CLASSES)).save_to_disk(
          tmp_path / split, num_shards=2)
    return {split: datasets.load_from_disk(tmp_path / split)
            for split in ('train', 'test')}

  monkeypatch.setattr(datasets, 'load_dataset', load_dataset)
  opened = own_data.open_path('hf://datasets/me/pets@v2:small')
  assert opened.class_names == NAMES and len(opened.splits['test']) == 10
  assert_complete(opened, 40)
  assert opened.splits['test'].key(0).startswith('test ')
  with pytest.raises(ValueError, match='hf://datasets/me/x .*cannot be opened'):
    own_data.open_path('hf://datasets/me/x')
  with pytest.raises(ValueError, match='not of the form hf://datasets/USER'):
    own_data.open_path('hf://datasets/')


def test_unusual_columns_of_the_hub_have_flags_to_paste(tmp_path, monkeypatch):
  dataset(range(6), breed=(
      ['a', 'b'] * 3, datasets.Value('string'))).rename_column(
          'image', 'photo').save_to_disk(tmp_path / 'x')
  monkeypatch.setattr(datasets, 'load_dataset', lambda **_: {
      'train': datasets.load_from_disk(tmp_path / 'x')})
  with pytest.raises(ValueError, match=(
      r'breed.*To use them:\s+--config.data.table.label=breed$')):
    own_data.open_path('hf://datasets/me/pets')
  assert len(own_data.open_path(
      'hf://datasets/me/pets', label='breed').class_names) == 2


def test_errors_name_the_file(hub):
  file = hub / 'data/test-00000-of-00001.parquet'
  with pytest.raises(ValueError, match="'labels'. Did you mean 'label'"):
    own_data.open_path(hub, label='labels')
  content = file.read_bytes()
  for settings in ({'label': 'class'}, {'classes': NUMBERS}, {
      'classes': datasets.ClassLabel(names=['dog', 'cat', 'emu'])}):
    write(file, 30, 40, **settings)
    with pytest.raises(ValueError, match='have different class names: '):
      own_data.open_path(hub)
  file.write_bytes(content[:-9])
  with pytest.raises(ValueError, match=f'{file} is truncated, or not a Parqu'):
    own_data.open_path(file)
  dataset(range(3), label=([0, -1, 1], CLASSES)).to_parquet(file)
  with pytest.raises(ValueError, match='1 of 3 cells .*row 2: -1'):
    own_data.open_path(file)


def test_lists_of_declared_classes_are_multi_label(tmp_path):
  lists = [[2], [0, 1], []]
  dataset(
      range(9), caption=(['long'] * 9, datasets.Value('string')),
      objects=(lists * 3, datasets.Sequence(CLASSES))).to_parquet(
          tmp_path / 'a.parquet')
  opened = own_data.open_path(tmp_path, 'multi', label='objects')
  assert opened.multi_label and opened.class_names == NAMES
  train = opened.splits['train']
  for i in range(len(train)):
    assert train.label(i).tolist() == lists[int(train[i]['image']) % 3]


def test_images_stored_as_paths_are_not_read(tmp_path):
  (tmp_path / 'secret.png').write_bytes(b'secret')
  images = pa.array([{'bytes': None, 'path': f'{tmp_path}/secret.png'}] * 3,
                    pa.struct({'bytes': pa.binary(), 'path': pa.string()}))
  pq.write_table(pa.table({'image': images, 'label': [0, 1, 0]}),
                 tmp_path / 'a.parquet')
  with pytest.raises(ValueError, match='stored as a path only'):
    own_data.open_path(tmp_path / 'a.parquet', path='image').splits['train'][0]


def test_images_without_labels_are_opened_for_objectives_without_labels(
    tmp_path):
  dataset(range(20)).to_parquet(tmp_path / 'a.parquet')
  opened = own_data.open_path(tmp_path, labelled=False)
  assert 'has the columns (none), but label was expected' in opened.no_labels
  assert sum(own_data.sizes(opened).values()) == 20
