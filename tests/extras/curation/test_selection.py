"""Selections name examples of a source; listed ones are left out."""

import pytest

from tests import in_memory
from tests import own_data
from tests import pictures
from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.extras.curation import exclude as exclude_lib
from vit_jax.extras.curation import selection as selection_lib


@pytest.mark.parametrize(('text', 'name'), [
    ('shapes', 'shapes:test'),
    ('shapes:train', 'shapes:train'),
    ('shapes:train[:100]+test[50%:]', 'shapes:train[:100]+test[50%:]'),
])
def test_the_default_split_is_that_of_published_results(text, name):
  chosen = selection_lib.parse(text, {})
  assert chosen.name == name
  assert chosen.open() is selection_lib.parse(name, {}).open()


def test_a_folder_that_is_not_trained_on_is_read_whole(tmp_path):
  pictures.save_all(tmp_path, [
      f'{name}/{i}.png' for name in 'ab' for i in range(30)])
  other, own = (selection_lib.parse(str(tmp_path), {'source': source}).open()
                for source in ('shapes', f'{tmp_path}/'))
  assert len(other) == 60 > len(own)


def test_a_colon_before_a_number_or_slash_does_not_begin_a_split():
  for text in ('cifar10:3.0.2', 'gs://bucket/photos', '/a::b/photos'):
    assert selection_lib.build(text, 'test', {}) == selection_lib.parse(
        f'{text}:test', {})
  hub = 'hf://datasets/user/name'
  assert selection_lib.parse(f'{hub}:full:test', {}).name == f'{hub}:full:test'
  assert selection_lib.parse(f'{hub}::test', {}).name == f'{hub}:test'


def test_images_of_a_selection_keep_its_limit_of_pixels(tmp_path):
  pictures.save_all(tmp_path, [
      f'train/{name}/{i}.png' for name in 'ab' for i in range(3)])
  assert selection_lib.build(str(tmp_path), 'train', {}).image(0).size == (8, 8)
  with pytest.raises(ValueError, match='max_pixels'):
    selection_lib.build(str(tmp_path), 'train', {'max_pixels': 63}).image(0)


def test_commas_in_braces_do_not_separate_sources(tmp_path):
  for split in ('train', 'test'):
    own_data.write_tar(tmp_path / f'{split}.tar', (
        (f'{i}.{kind}', 'ab'[i % 2]) for i in range(10)
        for kind in ('png', 'cls')))
  text = f'{tmp_path}/{{train,test}}.tar:test'
  both = selection_lib.parse_others(f'{text},shapes', {})
  assert [chosen.name for chosen in both] == [text, 'shapes:test']
  assert len(both[0].open()) == 10


def test_settings_apply_to_other_sources_where_meaningful(tmp_path):
  own_data.write_table(tmp_path, 'photo,breed,note', [
      f'{i}.png,{i % 2},x' for i in range(10)])
  table, shapes = selection_lib.parse_others(
      f'{tmp_path}/labels.csv:train,shapes',
      {'table': {'path': 'photo', 'label': 'breed'}, 'target': 'single',
       'num_examples': 3, 'max_pixels': 99})
  assert len(table.open()) > 3  # The whole test set.
  assert '"max_pixels": 99' in shapes.section and len(shapes.open())


@pytest.fixture(name='folder')
def _folder(tmp_path):
  own_data.write(tmp_path, 'mine/test/a/0.png', *(
      f'mine/train/{"ab"[i % 2]}/{i}.png' for i in range(12)))
  return tmp_path


def _open(folder, keys, **settings):
  path = folder / 'exclude.txt'
  path.write_text(''.join(f'{key}\n' for key in keys))
  return data.open_dataset(data.parse({
      'source': str(folder / 'mine'), 'exclude': str(path), **settings}))


def _keys(dataset):
  return [dataset.source.key(i) for i in range(len(dataset))]


def test_listed_examples_are_removed_and_order_is_kept(folder):
  whole = _keys(_open(folder, [], exclude=''))
  out = whole[3], whole[7]
  dataset = _open(folder, out)
  assert _keys(dataset) == [key for key in whole if key not in out]
  assert dataset.excluded.startswith('2 examples are excluded by ')
  assert dataset[3]['image'].decode() == f'mine/{whole[4]}'
  part = _open(folder, whole[:1] + whole[-2:], split='train[:50%]')
  assert _keys(part) == whole[1:6]
  assert '2 of its keys match no example of this split' in part.excluded


def test_useless_lists_are_errors(folder):
  with pytest.raises(ValueError, match="the list has 'train/a/12.png'"):
    _open(folder, ['train/a/12.png'])
  with pytest.raises(ValueError, match='names every example'):
    _open(folder, _keys(_open(folder, [], exclude='')))
  with pytest.raises(ValueError, match='main.py deduplicate'):
    _open(folder, [], exclude=str(folder / 'nowhere.txt'))


def test_numbered_examples_are_excluded_by_name_and_number(tmp_path):
  path = tmp_path / 'keys.txt'
  path.write_text('numbers 7\nnumbers 4999\nothers 8\nnumbers 70000\n')
  numbers = in_memory.Numbers(5000)
  source = split_strings.Subset(
      ((numbers, range(5, 10)), (numbers, range(4000, 5000))))
  rest, excluded = exclude_lib.exclude(source, str(path), name='numbers')
  assert [rest.label(i) for i in range(6)] == [5, 6, 8, 9, 4000, 4001]
  assert len(rest) == 1003
  assert excluded.startswith('2 examples') and '(2 of its keys' in excluded
