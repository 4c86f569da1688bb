"""WebDataset shards are scanned once and then read in any order."""

import json
import pathlib

import pytest

from tests import own_data
from vit_jax.extras.shards import file_keys


def pairs(first, last, kind='cls', folder='deep.er/'):
  for i in range(first, last):
    text = {'cls': str(i % 3), 'json': json.dumps({
        'caption': f'No. {i}', 'class': ['cat', 'dog', 'emu'][i % 3],
        'tags': ['pet', 'cat'][:1 + (i % 3 == 0)]})}[kind]
    yield f'{folder}{i:04}.{kind}', text.encode()
    yield f'{folder}{i:04}.seg.PNG', str(i).encode() * 300


def split_of_key(path):
  return {source.key(i): split
          for split, source in own_data.open_path(path).splits.items()
          for i in range(len(source))}


def test_labels_without_an_image_are_counted(tmp_path):
  own_data.write_tar(tmp_path / 'train-0.tar', [
      *pairs(0, 9), ('x.cls', b'1'), ('y.heic', b''), ('y.cls', b'1'),
      ('y.json', b'{}')])
  own_data.write_tar(tmp_path / 'train-1.tar', pairs(9, 18))
  note = 'labels without an image that can be read: 2 in train-0.tar'
  for _ in range(2):  # Scanned, and then from the index.
    assert own_data.open_path(tmp_path).description.count(note) == 1
  own_data.write_tar(tmp_path / 'x/a.tar', [('x.heic', b''), ('x.cls', b'1')])
  with pytest.raises(ValueError, match='holds no images.* 1 in a.tar'):
    own_data.open_path(tmp_path / 'x')


@pytest.fixture
def tars(tmp_path):
  own_data.write_tar(tmp_path / 'train-08.tar', pairs(0, 20))
  own_data.write_tar(tmp_path / 'train-09.tar', pairs(20, 30))
  own_data.write_tar(tmp_path / 'val-00.tar', pairs(30, 40))
  return tmp_path


def test_examples_are_read_by_index(tars):
  for _ in range(2):  # Scanned, and then from the index.
    opened = own_data.open_path(tars)
    assert own_data.sizes(opened) == {'train': 30, 'val': 10}
    train = opened.splits['train']
    for i in range(30):
      number = int(train.key(i).rpartition('/')[2])
      assert train[i] == {'image': str(number).encode() * 300,
                          'label': number % 3}
    assert {train.key(i) for i in range(30)} == {
        f'train-{"08" if i < 20 else "09"}/deep.er/{i:04}' for i in range(30)}


def test_a_split_without_labels_is_named(tars):
  own_data.write_tar(tars / 'test-00.tar', [
      pair for pair in pairs(40, 50) if pair[0].endswith('PNG')])
  opened = own_data.open_path(tars)
  assert opened.unlabelled == ('test',) and opened.eval_split == 'val'


def test_a_range_in_braces_names_shards(tars):
  opened = own_data.open_path(tars / '{train-*,val-00}.tar')
  assert own_data.sizes(opened) == {'train': 30, 'val': 10}
  with pytest.raises(ValueError, match='4 of 6 files .*train-10.tar'):
    own_data.open_path(tars / '{train,val}-{08..10}.tar')


@pytest.mark.parametrize(('key', 'target', 'label'), [
    ('class', '', lambda i: ['cat', 'dog', 'emu'][i % 3]),
    ('tags', 'multi', lambda i: ['cat', 'pet'] if i % 3 == 0 else ['pet'])])
def test_labels_may_be_values_of_json(tmp_path, key, target, label):
  own_data.write_tar(tmp_path / 'a.tar', pairs(0, 9, 'json'))
  opened = own_data.open_path(tmp_path / 'a.tar', target, label=key)
  assert own_data.images(opened) == {f'{i}' * 300: label(i) for i in range(9)}


@pytest.mark.parametrize('names', ['cat dog emu', '1 2 9'])
def test_classes_are_names_or_indices_from_0(tmp_path, names):
  own_data.write_tar(tmp_path / 'a.tar', [
      member for i in range(9) for member in (
          (f'{i}.png', ''), (f'{i}.cls', names.split()[i % 3] + '\n'))])
  assert own_data.open_path(tmp_path / 'a.tar').class_names == (
      tuple(map(str, range(10))) if '1' in names else tuple(names.split()))


def test_shards_may_repeat_keys(tmp_path):
  for name in ('a', 'x/0', 'y/0'):
    own_data.write_tar(tmp_path / f'{name}.tar', pairs(0, 20, folder=''))
  assert len(split_of_key(tmp_path)) == 20
  assert {'x/0/0003', 'y/0/0003'} <= set(split_of_key(f'{tmp_path}/*/0.tar'))


def test_an_added_shard_renames_no_example_and_moves_few(tmp_path):
  own_data.write_tar(tmp_path / 'b.tar', pairs(0, 40))
  before = split_of_key(tmp_path)
  assert set(before.values()) == {'train', 'test'}
  own_data.write_tar(tmp_path / 'a.tar', pairs(20, 60))
  after = split_of_key(tmp_path)
  assert before.keys() <= after.keys() and len(after) == 80
  # 40 more images hold out 4 more.
  assert sum(before[key] != after[key] for key in before) <= 4
  for i in range(20, 40):  # Equal keys may be the same image.
    assert after[f'a/deep.er/{i:04}'] == after[f'b/deep.er/{i:04}']


def test_a_changed_shard_is_scanned_again(tars):
  path, index = tars / 'val-00.tar', tars / '.val-00.tar.tar-index.arrow'
  own_data.open_path(tars)
  saved = index.stat().st_mtime_ns
  own_data.open_path(tars)
  assert index.stat().st_mtime_ns == saved
  own_data.write_tar(path, pairs(40, 50))
  keys = split_of_key(tars)
  assert {key[-4:] for key, split in keys.items() if split == 'val'} == {
      f'{i:04}' for i in range(40, 50)}


def test_an_index_is_cached_if_the_folder_is_read_only(
    tmp_path, tmp_path_factory, monkeypatch):
  cache = tmp_path_factory.mktemp('cache')
  monkeypatch.setenv('XDG_CACHE_HOME', str(cache))
  own_data.write_tar(tmp_path / 'a.tar', pairs(0, 9))
  # A folder in place of the index, because root ignores permissions.
  (tmp_path / '.a.tar.tar-index.arrow').mkdir()
  for _ in range(2):
    assert own_data.open_path(tmp_path / 'a.tar').num_classes == 3
  assert len(list(cache.rglob('*.arrow'))) == 1
  assert not [*tmp_path.rglob('*.tmp'), *cache.rglob('*.tmp')]


@pytest.mark.parametrize('cut', [512, 100])
def test_a_truncated_tar_is_an_error(tmp_path, cut):
  path = tmp_path / 'a.tar'
  own_data.write_tar(path, pairs(20, 30))
  content = path.read_bytes()
  end = len(content.rstrip(b'\0')) // 512 * 512 + 512
  path.write_bytes(content[:end + 512 - cut])
  with pytest.raises(ValueError, match=f'{path} is truncated, or not a tar'):
    own_data.open_path(path)


def test_tars_may_have_a_split_in_their_json(tmp_path):
  own_data.write_tar(tmp_path / 'x.tar', [
      member for i in range(9) for member in (
          (f'{i}.png', b'x'), (f'{i}.cls', b'%d' % (i % 2)),
          (f'{i}.json', b'{"part": "%s"}' % (b'train', b'test')[i % 3 == 0]))])
  assert own_data.sizes(own_data.open_splits(
      tmp_path / 'x.tar', **{'table.split': 'part'})) == {'train': 6, 'test': 3}


def labelled(kind='cls', count=4):
  return [member for i in range(count) for member in (
      (f'{i}.{kind}', {'cls': str(i % 3), 'json': json.dumps(
          {'class': 'abc'[i % 3]})}[kind]), (f'{i}.png', str(i)))]


TARS = [
    ([('1.png', b''), ('2.png', b'')], {}, 'have no labels. .*KEY.cls'),
    (labelled('json'), {}, 'have no labels. .*table.label=NAME'),
    ([('1.cls', b'0')], {}, 'holds no images'),
    ([*labelled(), ('1.jpg', b'')], {}, "1.jpg' and another image of '1'"),
    ([*labelled(), ('1.cls', b'')], {}, "1.cls' and another label of '1'"),
    (labelled('json'), {'table.label': 'clas'}, "'clas'. Did you mean 'class'"),
    ([*labelled(), ('1.json', b'{')], {'table.label': 'class'},
     '1.json of .* is not JSON'),
    ([*labelled(count=3), ('x.png', b'')], {}, '1 of 4 cells .*4: it is empty'),
    (labelled('json'), {'table.label': 'class', 'group': 'patients'},
     "Unknown key of the JSON .*'patients'"),
    ([*labelled(), ('\udcff.png', '')], {}, 'A name in .* is not UTF-8')]


@pytest.mark.parametrize(('members', 'flags', 'message'), TARS)
def test_malformed_members_and_labels_are_errors(
    tmp_path, members, flags, message):
  own_data.write_tar(tmp_path / 'a.tar', members)
  with pytest.raises(ValueError, match=message):
    own_data.open_splits(tmp_path / 'a.tar', **flags)


@pytest.mark.parametrize(('names', 'splits'), [
    (['train-0.tar', 'val-1.tar'], ['train', 'val']),
    (['train/0.tar', 'test/0.tar'], ['train', 'test']),
    (['my_test/0.tar', 'trainer-1.tar'], None),
    (['train-0.tar', 'train-1.tar'], None), (['a.tar', 'b.tar'], None)])
def test_file_names_contain_the_split(names, splits):
  found = file_keys.splits_of_files(
      [*map(pathlib.Path, names)], [1] * len(names), where='x')
  assert splits == (found if found is None else found.to_pylist())
