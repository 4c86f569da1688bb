"""What is written is there whole, or not at all, wherever it is written."""

import pytest

from vit_jax import atomic_files


@pytest.fixture
def bucket(tmp_path, monkeypatch):
  """A folder that stands for gs://bucket; what is written to it arrives."""
  (tmp_path / 'bucket').mkdir()
  path = atomic_files.epath.Path

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


def found(root):
  return {path.relative_to(root).as_posix(): path.read_text()
          for path in root.rglob('*') if path.is_file()}


@pytest.mark.parametrize(('kind', 'files'), [
    ('file', {'x': 'a'}), ('folder', {'x/one': 'a', 'x/deep/two': 'b'})])
@pytest.mark.parametrize('place', ['', 'file://', 'gs://'])
def test_a_file_and_a_folder_arrive_everywhere(
    place, kind, files, bucket, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  target = 'gs://bucket/x' if place == 'gs://' else f'{place}{bucket}/x'
  with atomic_files.whole(target) as path:
    write(path, kind)
    assert found(bucket).keys().isdisjoint(files)
  assert found(bucket) == files
  assert [p.name for p in tmp_path.iterdir()] == ['bucket']


@pytest.mark.parametrize('target', ['{}/new/x', 'gs://bucket/new/x'])
@pytest.mark.parametrize('kind', ['file', 'folder'])
def test_an_error_while_writing_leaves_nothing(kind, target, bucket):
  with pytest.raises(KeyError), atomic_files.whole(target.format(bucket)) as path:
    write(path, kind)
    raise KeyError
  assert found(bucket) == {}


def test_an_upload_that_fails_half_way_leaves_nothing(bucket, monkeypatch):
  copy = atomic_files.epath.Path('.').__class__.copy
  calls = []

  def fails(self, dst, *args, **kwargs):
    calls.append(dst)
    if len(calls) == 2:
      raise ConnectionError('gone')
    return copy(self, dst, *args, **kwargs)

  monkeypatch.setattr(atomic_files.epath.Path('.').__class__, 'copy', fails)
  with (pytest.raises(ConnectionError),
        atomic_files.whole('gs://bucket/x') as path):
    write(path, 'folder')
  assert len(calls) == 2
  assert found(bucket) == {}


@pytest.mark.parametrize('target', ['{}/x', 'gs://bucket/x'])
def test_nothing_is_overwritten(target, bucket):
  (bucket / 'x').write_text('precious')
  # No flag's name: each command has its own.
  with (pytest.raises(FileExistsError, match='already. Remove it, or name an'),
        atomic_files.whole(target.format(bucket)) as path):
    write(path, 'file')
  assert found(bucket) == {'x': 'precious'}


def test_what_appears_meanwhile_is_not_overwritten(tmp_path):
  with pytest.raises(FileExistsError), atomic_files.whole(tmp_path / 'x') as path:
    write(path, 'file')
    (tmp_path / 'x').write_text('precious')
  assert found(tmp_path) == {'x': 'precious'}


@pytest.mark.parametrize('target', [
    'https://host/x', 'hf://user/model', 'memory://x'])
def test_where_nothing_can_be_written_is_an_error(
    target, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with (pytest.raises(ValueError, match='cannot be written to: only paths'),
        atomic_files.whole(target)):
    pass
  assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)

  def missing(_):
    raise ImportError('Please install gcsfs to access Google Storage')

  monkeypatch.setattr(atomic_files, '_check_free', missing)
  with pytest.raises(ValueError, match='gs://b/x cannot be written.*pip install'
                     ' gcsfs'), atomic_files.whole('gs://b/x'):
    pass
  assert not list(tmp_path.iterdir())
