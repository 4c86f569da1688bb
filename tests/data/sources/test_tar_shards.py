"""Tar shards are walked once, and then read in any order."""

import io
import json
import os
import tarfile

import pytest

from vit_jax.data.sources import layouts
from vit_jax.data.sources import rows
from vit_jax.data.sources import tar_shards


def open_path(path, **table):
  return layouts.open_path(
      str(path), rows.Understood('auto', rows.TableConfig(**table)))


def write(path, members):
  path.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(path, 'w') as tar:
    for name, content in members:
      member = tarfile.TarInfo(name)
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))


def pairs(first, last, kind='cls', folder='deep.er/'):
  for i in range(first, last):
    text = {'cls': str(i % 3), 'txt': ['cat', 'dog', 'emu'][i % 3],
            'json': json.dumps({'caption': f'No. {i}', 'label': i % 3})}[kind]
    yield f'{folder}{i:04}.{kind}', text.encode()
    yield f'{folder}{i:04}.seg.PNG', str(i).encode() * 300


@pytest.fixture
def tars(tmp_path):
  write(tmp_path / 'train-08.tar', pairs(0, 20))
  write(tmp_path / 'train-09.tar', pairs(20, 30))
  write(tmp_path / 'val-00.tar', pairs(30, 40))
  return tmp_path


def test_examples_of_tars_are_read_by_index(tars):
  for _ in range(2):  # Walked, and then from the index.
    opened = open_path(tars)
    assert {k: len(v) for k, v in opened.splits.items()} == {
        'train': 30, 'val': 10}
    train = opened.splits['train']
    for i in range(30):
      number = int(train.key(i).rpartition('/')[2])
      assert train[i] == {'image': str(number).encode() * 300,
                          'label': number % 3}
    assert {train.key(i) for i in range(30)} == {
        f'train-{"08" if i < 20 else "09"}/deep.er/{i:04}' for i in range(30)}


def test_a_range_in_braces_names_shards(tars):
  opened = open_path(tars / 'train-{08..09}.tar')
  assert sum(len(source) for source in opened.splits.values()) == 30
  assert len(open_path(tars / '{train-*,val-00}.tar').splits['val']) == 10
  with pytest.raises(ValueError, match='1 of 3 files .*train-10.tar'):
    open_path(tars / 'train-{08..10}.tar')


@pytest.mark.parametrize(('kind', 'names'), [
    ('txt', ('cat', 'dog', 'emu')), ('json', ('0', '1', '2'))])
def test_labels_of_other_members(tmp_path, kind, names):
  write(tmp_path / 'a.tar', pairs(0, 9, kind))
  opened = open_path(tmp_path / 'a.tar')
  assert opened.class_names == names
  train = opened.splits['train']
  assert train.label(0) == int(train.key(0)[-4:]) % 3


def test_shards_may_each_count_from_0(tmp_path):
  for shard in 'ab':
    write(tmp_path / f'{shard}.tar', pairs(0, 20, folder=''))
  opened = open_path(tmp_path)
  assert sum(len(source) for source in opened.splits.values()) == 40
  keys = {s.key(i) for s in opened.splits.values() for i in range(len(s))}
  assert {'a/0003', 'b/0003'} <= keys
  for folder in 'xy':
    write(tmp_path / folder / '0.tar', pairs(0, 20, folder=''))
  opened = open_path(f'{tmp_path}/*/0.tar')
  keys = {s.key(i) for s in opened.splits.values() for i in range(len(s))}
  assert {'x/0/0003', 'y/0/0003'} <= keys


def test_a_shard_that_is_added_renames_and_moves_no_other_example(tmp_path):
  def splits():
    return {source.key(i): split
            for split, source in open_path(tmp_path).splits.items()
            for i in range(len(source))}
  write(tmp_path / 'b.tar', pairs(0, 40))
  before = splits()
  assert set(before.values()) == {'train', 'test'}
  write(tmp_path / 'a.tar', pairs(20, 60))
  after = splits()
  assert before.items() <= after.items() and len(after) == 80
  for i in range(20, 40):  # Perhaps the same image: never trained and tested.
    assert after[f'a/deep.er/{i:04}'] == after[f'b/deep.er/{i:04}']


def test_an_index_is_kept_and_holds_until_the_shard_changes(
    tars, monkeypatch):
  open_path(tars)
  walk = tar_shards._walk
  walked = []
  monkeypatch.setattr(
      tar_shards, '_walk', lambda path: (walked.append(path), walk(path))[1])
  open_path(tars)
  assert walked == []
  write(tars / 'val-00.tar', pairs(30, 50))
  assert len(open_path(tars).splits['val']) == 20
  assert [path.name for path in walked] == ['val-00.tar']
  (tars / '.val-00.tar.tar-index.npz').write_bytes(b'damaged')
  assert len(open_path(tars).splits['val']) == 20


def test_a_shard_of_the_same_size_and_time_is_seen_to_be_another(tars):
  path = tars / 'val-00.tar'
  open_path(tars)
  old = path.stat()
  write(path, pairs(40, 50))
  os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
  assert path.stat().st_size == old.st_size
  val = open_path(tars).splits['val']
  assert {val.key(i)[-4:] for i in range(10)} == {
      f'{i:04}' for i in range(40, 50)}


def test_an_index_goes_to_the_cache_where_the_shard_cannot_have_it(
    tars, tmp_path_factory, monkeypatch):
  cache = tmp_path_factory.mktemp('cache')
  monkeypatch.setenv('XDG_CACHE_HOME', str(cache))
  write(tars / 'ro/a.tar', pairs(0, 9))
  # A folder in the index's place: root writes to what is read-only.
  (tars / 'ro/.a.tar.tar-index.npz').mkdir()
  for _ in range(2):
    assert open_path(tars / 'ro/a.tar').num_classes == 3
  assert len(list(cache.rglob('*.npz'))) == 1
  assert not list(tars.rglob('*.tmp')) and not list(cache.rglob('*.tmp'))


@pytest.mark.parametrize('cut', [700, 512, 100, 1536])
def test_a_tar_that_is_cut_off_is_named(tars, cut):
  path = tars / 'train-09.tar'
  content = path.read_bytes()
  end = len(content.rstrip(b'\0')) // 512 * 512 + 512
  path.write_bytes(content[:end + 512 - cut])
  with pytest.raises(ValueError, match=f'{path} is cut off, or no tar'):
    open_path(tars)


def test_mistakes_of_tars_are_said(tmp_path):
  path = tmp_path / 'a.tar'
  write(path, [('1.png', b''), ('2.png', b'')])
  with pytest.raises(ValueError, match="have no labels.*KEY.cls.*'1' has"):
    open_path(path)
  write(path, [('1.cls', b'0')])
  with pytest.raises(ValueError, match='holds no images'):
    open_path(path)
  write(path, [*pairs(0, 4), ('deep.er/0001.jpg', b'')])
  with pytest.raises(ValueError, match="two images 'deep.er/0001'"):
    open_path(path)
  write(path, pairs(0, 4, 'json'))
  with pytest.raises(ValueError, match="'lable'. Did you mean 'label'"):
    open_path(path, label='lable')
  write(path, [*pairs(0, 3), ('x.png', b'')])
  with pytest.raises(ValueError, match='1 of 4 rows have no label'):
    open_path(path)


def test_links_lead_to_what_lies_in_the_same_tar(tmp_path):
  def add(tar, name, kind, target):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    tar.addfile(member)
  path = tmp_path / 'a.tar'
  write(path, [*pairs(0, 5, folder='./x/'), ('/z/7.png', b'7')])
  with tarfile.open(path, 'a') as tar:
    add(tar, './y/9.png', tarfile.LNKTYPE, './x/0004.seg.PNG')
    add(tar, 'y/9.cls', tarfile.SYMTYPE, '../y/8.cls')
    add(tar, 'y/8.cls', tarfile.SYMTYPE, '../x/0001.cls')
    # A label is its image's, however both are spelt.
    add(tar, '/z/7.cls', tarfile.SYMTYPE, '../x/0001.cls')
  opened = open_path(path)
  found = {source.key(i): source[i] for source in opened.splits.values()
           for i in range(len(source))}
  assert len(found) == 7 and found['a//z/7']['label'] == 1
  assert found['a/y/9'] == {'image': b'4' * 300, 'label': 1}
  with tarfile.open(path, 'a') as tar:
    add(tar, '1.png', tarfile.LNKTYPE, '2.png')
    add(tar, '3.cls', tarfile.SYMTYPE, '3.cls')
  with pytest.raises(ValueError, match="2 links in .*a.tar lead to nothing in "
                     "it, the first '1.png' to '2.png'.*--dereference"):
    open_path(path)


def test_a_caption_is_no_class_where_there_are_classes(tmp_path):
  members = [(f'{i}.{kind}', text.encode()) for i in range(9)
             for kind, text in (('jpg', f'{i}'), ('txt', f'A {i % 2}.'),
                                ('cls', '' if i == 4 else f'{i % 3}'))]
  write(tmp_path / 'x.tar', members)
  with pytest.raises(ValueError, match="1 of 9 rows have no label in column "
                     "'cls' .* row 5"):
    open_path(tmp_path / 'x.tar')
