"""Unreadable images are errors, or replaced, counted and named."""

import itertools

from google.protobuf import message
import numpy as np
import psutil
import pyarrow as pa
import pytest

from tests import hostile
from tests import in_memory
from tests import pictures
from vit_jax import data

FILES = [pictures.encode(hostile.picture(9, 9, seed=i)) for i in range(20)]
BAD = (3, 4, 11, 19)


class Files(in_memory.Arrays):
  """Twenty images, some of them truncated."""

  def __init__(self, *, bad=BAD, error=None):
    super().__init__(
        [file[:99] if i in bad else file for i, file in enumerate(FILES)],
        range(20))
    self._error = error

  def __getitem__(self, index):
    if self._error and index == 5:
      raise self._error
    return super().__getitem__(index)

  def key(self, index):
    return f'{index:02}'


def _dataset(**settings):
  return data.Dataset(
      name='files', split='train', source=Files(**settings), num_classes=20)


def _config(**settings):
  return data.parse({'resolution': 9, 'unreadable': 'skip', **settings})


def _take(count, config, *, dataset=None, **where):
  counter = data.UnreadableCounter()
  batches = data.train_batches(
      config, dataset or _dataset(), seed=0, batch_size=10, unreadable=counter,
      **where)
  taken = list(itertools.islice(batches, count))
  batches.close()
  return taken, counter


@pytest.mark.parametrize('error', [
    FileNotFoundError('of a link'), OverflowError('of .npy'),
    message.DecodeError('of a record'), pa.ArrowException('of Arrow'),
    RecursionError('of JSON')])
def test_errors_of_an_image_are_skipped(error):
  _, counter = _take(2, _config(), dataset=_dataset(error=error, bad=()))
  found, = counter.log.found.values()
  assert '(05): ' in found.error and str(error) in found.error


def test_the_next_readable_example_replaces_an_unreadable_one():
  taken, counter = _take(2, _config())
  labels = np.concatenate([batch['label'] for batch in taken])
  # 03 and 04 are replaced by 05, 11 by 12, 19 by 00, with their own labels.
  expected = [i for i in range(20) if i not in BAD] + [5, 5, 12, 0]
  assert sorted(labels.tolist()) == sorted(expected)
  whole, _ = _take(2, _config(), dataset=_dataset(bad=()))
  kept = ~np.isin(np.concatenate([b['label'] for b in whole]), BAD)
  np.testing.assert_array_equal(
      np.concatenate([b['image'] for b in taken])[kept],
      np.concatenate([b['image'] for b in whole])[kept])
  assert all(batch['mask'].all() for batch in taken)
  assert (counter.rows, counter.count) == (20, 4)
  found = counter.log.found.values()
  assert len(found) == 4 and all('truncated' in one.error for one in found)


def test_workers_shards_and_restarts_change_neither_batches_nor_counts():
  ops = [{'op': 'inception_crop'}, {'op': 'flip'}]
  whole, counter = _take(6, _config(train_ops=ops))
  by_workers, other = _take(6, _config(train_ops=ops, num_workers=2))
  np.testing.assert_equal(by_workers, whole)
  assert whole[0].keys() == {'image', 'label', 'mask'}
  assert other.count == counter.count == 12
  restarted, later = _take(2, _config(train_ops=ops), start_step=4)
  np.testing.assert_equal(restarted, whole[4:])
  earlier = _take(4, _config(train_ops=ops))[1]
  assert earlier.count + later.count == counter.count
  halves = [_take(6, _config(train_ops=ops), shards=(shard,), num_shards=2)
            for shard in range(2)]
  assert sum(half[1].count for half in halves) == counter.count


def test_evaluation_masks_unreadable_images():
  counter = data.UnreadableCounter()
  batches = list(data.eval_batches(
      _config(), _dataset(), batch_size=8, unreadable=counter))
  mask = np.concatenate([batch['mask'] for batch in batches])
  assert np.flatnonzero(mask == 0).tolist() == [*BAD, 20, 21, 22, 23]
  assert counter.count == len(counter.log.found) == 4


def test_a_killed_worker_is_explained():
  batches = data.train_batches(
      _config(num_workers=1, prefetch=1), _dataset(bad=()), seed=0,
      batch_size=10)
  before = set(psutil.Process().children(recursive=True))
  next(batches)
  for child in set(psutil.Process().children(recursive=True)) - before:
    if 'spawn_main' in ' '.join(child.cmdline()):
      child.kill()
  with pytest.raises(ValueError, match='exit code -9.*num_workers'):
    for _ in range(10_000):
      next(batches)
  batches.close()
