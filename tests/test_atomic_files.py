"""Files and folders are written completely or not at all."""

import json
import math

from etils import epath
import pytest

from vit_jax import atomic_files


@pytest.fixture
def bucket(tmp_path, monkeypatch):
  """A local folder that stands in for gs://bucket."""
  (tmp_path / 'bucket').mkdir()
  path = epath.Path

  def fake(text):
    if str(text).startswith('gs://'):
      return path(str(text).replace('gs:/', str(tmp_path)))
    return path(text)

  monkeypatch.setattr(atomic_files.epath, 'Path', fake)
  return tmp_path / 'bucket'


def write(path, kind):
  if kind == 'file':
    path.write_text('a')
    return
  (path / 'deep').mkdir(parents=True)
  (path / 'one').write_text('a')
  (path / 'deep/two').write_text('b')


def contents(root):
  return {path.relative_to(root).as_posix(): path.read_text()
          for path in root.rglob('*') if path.is_file()}


@pytest.mark.parametrize(('kind', 'files'), [
    ('file', {'x': 'a'}), ('folder', {'x/one': 'a', 'x/deep/two': 'b'})])
@pytest.mark.parametrize('place', ['', 'file://', 'gs://'])
def test_files_and_folders_appear_at_the_end_of_the_context(
    place, kind, files, bucket, tmp_path):
  target = 'gs://bucket/x' if place == 'gs://' else f'{place}{bucket}/x'
  with atomic_files.create(target) as path:
    write(path, kind)
    assert contents(bucket).keys().isdisjoint(files)
  assert contents(bucket) == files
  assert [p.name for p in tmp_path.iterdir()] == ['bucket']


@pytest.mark.parametrize('target', ['{}/new/x', 'gs://bucket/new/x'])
def test_an_error_while_writing_leaves_nothing(target, bucket):
  with (pytest.raises(KeyError),
        atomic_files.create(target.format(bucket)) as path):
    write(path, 'folder')
    raise KeyError
  assert contents(bucket) == {}


def test_a_failed_upload_leaves_nothing(bucket, monkeypatch):
  path_class = epath.Path('.').__class__
  copy, calls = path_class.copy, []

  def fail_second(self, dst, *args, **kwargs):
    calls.append(dst)
    if len(calls) == 2:
      raise ConnectionError('gone')
    return copy(self, dst, *args, **kwargs)

  monkeypatch.setattr(path_class, 'copy', fail_second)
  with (pytest.raises(ConnectionError),
        atomic_files.create('gs://bucket/x') as path):
    write(path, 'folder')
  assert len(calls) == 2
  assert contents(bucket) == {}


@pytest.mark.parametrize('target', ['{}/x', 'gs://bucket/x'])
def test_create_never_overwrites(target, bucket):
  (bucket / 'x').write_text('precious')
  with (pytest.raises(ValueError, match='exists already. Remove it'),
        atomic_files.create(target.format(bucket))):
    pass
  (bucket / 'x').unlink()
  with (pytest.raises(ValueError), atomic_files.create(f'{bucket}/x') as path):
    write(path, 'file')
    (bucket / 'x').write_text('precious')
  assert contents(bucket) == {'x': 'precious'}


@pytest.mark.parametrize('target', ['https://host/x', 'hf://user/model'])
def test_unsupported_addresses_are_errors(target):
  with (pytest.raises(ValueError, match=f'Cannot write to {target}: expected'),
        atomic_files.create(target)):
    pass


def test_write_json_replaces_and_is_strict(tmp_path):
  path = tmp_path / 'new/x.json'
  for value in ({'a': 1}, {'a': [math.nan, {'b': math.inf}], 'c': 0.5}):
    atomic_files.write_json(path, value)
  assert json.loads(path.read_text()) == {'a': [None, {'b': None}], 'c': 0.5}
  assert [p.name for p in path.parent.iterdir()] == ['x.json']
