"""Arrays in files: equal in every process, and written again if damaged."""

import io
import os
import pickle
import tarfile
import time
import tracemalloc

import cloudpickle
import numpy as np
from PIL import Image
import pytest

from tests import pictures
from vit_jax import data
from vit_jax.data import pipeline
from vit_jax.data import shared

ARRAY = np.arange(3 * 10**5, dtype=np.int64).reshape(-1, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  return tmp_path / 'cache' / 'vit_jax' / 'arrays'


def test_a_large_array_is_pickled_as_the_path_of_its_file(folder):
  array = shared.share(ARRAY)
  content = cloudpickle.dumps(array)
  (path,) = folder.iterdir()
  assert len(content) < 1000 and str(path).encode() in content
  copy = pickle.loads(content)
  np.testing.assert_array_equal(copy, ARRAY)
  assert copy.dtype == ARRAY.dtype
  assert len(cloudpickle.dumps(copy)) < 1000
  part = pickle.loads(cloudpickle.dumps(array[5:8]))
  np.testing.assert_array_equal(part, ARRAY[5:8])


def test_released_pages_are_read_again():
  array = shared.share(ARRAY)
  np.testing.assert_array_equal(array, ARRAY)
  shared.release()
  np.testing.assert_array_equal(array, ARRAY)


def test_equal_arrays_share_a_file_and_small_ones_have_none(folder):
  shared.share(ARRAY)
  shared.share(ARRAY.copy())
  assert len(list(folder.iterdir())) == 1
  shared.share(ARRAY + 1)
  assert type(shared.share(ARRAY[:9])) is np.ndarray
  assert len(list(folder.iterdir())) == 2


def test_files_that_no_run_opened_for_long_make_space(folder, monkeypatch):
  def write(number, age_days):
    shared.share(ARRAY + number)
    (path,) = {*folder.iterdir()} - {*paths}
    os.utime(path, (time.time() - 86_400 * age_days,) * 2)
    paths.append(path)

  paths = []
  monkeypatch.setattr(shared, '_MAX_BYTES', 3 * ARRAY.nbytes)
  write(0, age_days=3)
  write(1, age_days=5)
  write(2, age_days=0)
  shared.share(ARRAY + 1)  # Opened again.
  write(3, age_days=0)
  assert {*folder.iterdir()} == {*paths[1:]}
  write(4, age_days=0)  # All others were opened today.
  assert {*folder.iterdir()} == {*paths[1:]}


def _flip(path):
  content = bytearray(path.read_bytes())
  content[1000] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize('damage', [
    _flip, lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(b''), lambda path: path.unlink()])
def test_a_damaged_file_is_written_again(folder, damage):
  shared.share(ARRAY)
  (path,) = folder.iterdir()
  damage(path)
  np.testing.assert_array_equal(shared.share(ARRAY), ARRAY)
  assert path.read_bytes() == ARRAY.tobytes()


@pytest.mark.parametrize('damage', [
    lambda path: path.unlink(),
    lambda path: os.truncate(path, ARRAY.nbytes - 8)])
def test_a_file_that_changed_before_a_worker_opens_it_is_an_error(
    folder, damage):
  content = cloudpickle.dumps(shared.share(ARRAY))
  (path,) = folder.iterdir()
  damage(path)
  with pytest.raises(ValueError, match=f'{path} was removed or changed'):
    pickle.loads(content)


def test_processes_have_copies_where_the_folder_cannot_be_written(folder):
  folder.parent.mkdir(parents=True)
  folder.write_text('')
  array = shared.share(ARRAY)
  assert type(array) is np.ndarray
  np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), ARRAY)


def test_processes_have_copies_without_an_absolute_path_of_a_cache(
    tmp_path, monkeypatch):
  # Without a home folder, '~' is not expanded.
  monkeypatch.setenv('XDG_CACHE_HOME', 'relative')
  monkeypatch.chdir(tmp_path)
  assert type(shared.share(ARRAY)) is np.ndarray
  root = tmp_path / 'images'
  root.mkdir()
  with tarfile.open(root / 'train.tar', 'w') as tar:
    for i in range(4):
      for kind, content in (('png', b'png'), ('cls', b'%d' % (i % 2))):
        member = tarfile.TarInfo(f'{i}.{kind}')
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
  dataset = data.open_dataset(
      data.parse({'source': str(root), 'resolution': 8}), split='all')
  assert len(dataset) == 4
  assert [path.name for path in tmp_path.iterdir()] == ['images']


def test_a_file_that_another_process_wrote_meanwhile_is_kept(
    folder, monkeypatch):
  shared.share(ARRAY)
  (path,) = folder.iterdir()
  path.unlink()
  holds, inodes = shared._holds, []

  def write_after(path, digest):
    found = holds(path, digest)
    path.write_bytes(ARRAY.tobytes())
    inodes.append(os.stat(path).st_ino)
    return found

  monkeypatch.setattr(shared, '_holds', write_after)
  np.testing.assert_array_equal(shared.share(ARRAY), ARRAY)
  assert inodes == [os.stat(path).st_ino]


@pytest.fixture
def opened(tmp_path, monkeypatch):
  """Returns a table of 400 images whose arrays are all in files."""
  monkeypatch.setattr(shared, '_MIN_BYTES', 1)
  root = tmp_path / 'images'
  for i in range(400):
    path = root / ('cat' if i % 3 else 'dog') / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pictures.encode(Image.new('L', (1, 1), i % 256)))
  return data.parse({'source': str(root), 'resolution': 8, 'num_workers': 1})


def test_a_copy_in_a_worker_has_the_same_keys_labels_and_images(opened):
  dataset = data.open_dataset(opened, split='all')
  content = cloudpickle.dumps(dataset)
  copy = pickle.loads(content)
  assert len(content) < 20 * len(dataset)
  for index in range(len(dataset)):
    assert copy.source.key(index) == dataset.source.key(index)
    assert copy[index] == dataset[index]
    assert copy.source.label(index) == dataset.source.label(index)


def test_a_worker_process_yields_the_batches_of_this_process(opened):
  dataset = data.open_dataset(opened)
  batches = [next(pipeline.train_batches(
      data.parse({'source': opened.source, 'resolution': 8,
                  'num_workers': workers}), dataset, seed=0, batch_size=32))
             for workers in (0, 1)]
  for name in batches[0]:
    np.testing.assert_array_equal(batches[0][name], batches[1][name])


def test_selections_keep_no_python_object_per_example():
  def retained_bytes(count):
    section = {'source': 'shapes', 'resolution': 8, 'fraction': 0.5,
               'shapes': {'num_examples': count}}
    tracemalloc.start()
    dataset = data.open_dataset(data.parse(section))
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(dataset) == count // 2
    return found

  few, many = map(retained_bytes, (1_000, 11_000))
  assert many - few < 10 * 10_000
