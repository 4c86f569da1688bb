"""Listed examples are left out."""

import pytest

from tests import in_memory
from tests import own_data
from vit_jax import data
from vit_jax.data.splits import split_strings
from vit_jax.extras.curation import exclude as exclude_lib


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
