"""The batch at step s is a pure function of (seed, s)."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from tests import in_memory
from vit_jax import data

OPS = [{'op': 'inception_crop'}, {'op': 'flip'}, {'op': 'randaugment'}]


@functools.cache
def _opened(**settings):
  config = data.parse({'resolution': 8, **settings})
  return config, data.open_dataset(config)


def _config(**settings):
  return data.parse({'resolution': 8, 'split': 'train[:50]', **settings})


def _take(count, config, *, seed=0, batch_size=16, **where):
  dataset = data.open_dataset(config)
  batches = data.train_batches(
      config, dataset, seed=seed, batch_size=batch_size, **where)
  taken = list(itertools.islice(batches, count))
  batches.close()
  return taken


def _assert_equal(a, b):
  assert len(a) == len(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def _epochs(batches, num_examples):
  """Returns a row of bytes for each example drawn, by epoch."""
  rows = np.concatenate([b['image'].reshape(len(b['image']), -1)
                         for b in batches])
  rows = [row.tobytes() for row in rows]
  return [rows[i:i + num_examples]
          for i in range(0, len(rows) - num_examples + 1, num_examples)]


def test_batches_have_the_abstract_shapes():
  for source in ('digits', 'shapes'):
    config = _config(source=source, channels=1, resolution=(8, 12))
    dataset = data.open_dataset(config)
    (batch,) = _take(1, config)
    abstract = data.abstract_batch(config, dataset, 16)
    assert abstract.keys() == batch.keys()
    for name, leaf in abstract.items():
      assert (leaf.shape, leaf.dtype) == (batch[name].shape, batch[name].dtype)
    assert batch['mask'].tolist() == [1] * 16


def test_four_processes_read_the_batch_of_one():
  config = _config(train_ops=OPS)
  whole = _take(5, config)
  parts = [_take(5, config, shards=(i,), num_shards=4) for i in range(4)]
  joined = [jax.tree.map(lambda *rows: np.concatenate(rows), *step)
            for step in zip(*parts)]
  _assert_equal(joined, whole)


def test_a_process_may_hold_separate_shards():
  config = _config(train_ops=OPS)
  chosen = _take(4, config, shards=(0, 3), num_shards=4, start_step=2)
  expected = [
      {name: np.concatenate([rows[:4], rows[12:]])
       for name, rows in batch.items()}
      for batch in _take(4, _config(train_ops=OPS), start_step=2)]
  _assert_equal(chosen, expected)


def test_a_process_reads_only_its_shards():
  config = _config(prefetch=1)
  opened = data.open_dataset(config)
  evaluated = []
  for shard in range(5):
    dataset = dataclasses.replace(
        opened, source=in_memory.Recording(opened.source))
    list(data.eval_batches(
        config, dataset, batch_size=10, shards=(shard,), num_shards=5))
    assert len(dataset.source.read) == 10
    evaluated += dataset.source.read
    dataset = dataclasses.replace(
        opened, source=in_memory.Recording(opened.source))
    batches = data.train_batches(
        config, dataset, seed=0, batch_size=10, shards=(shard,), num_shards=5)
    list(itertools.islice(batches, 5))
    batches.close()
    # Two rows per batch, at most two batches prefetched.
    assert 10 <= len(dataset.source.read) <= 14
  assert sorted(evaluated) == list(range(50))


def test_workers_and_threads_do_not_change_batches():
  config = _config(train_ops=OPS)
  whole = _take(5, config)
  _assert_equal(_take(5, _config(train_ops=OPS, num_workers=2)), whole)
  _assert_equal(
      _take(5, _config(train_ops=OPS, num_threads=8, prefetch=9)), whole)


@pytest.mark.parametrize('step', [1, 40])
def test_starting_at_a_step_skips_to_it(step):
  config = _config(train_ops=OPS)
  last = _take(step + 1, config, batch_size=4)[-1]
  (first,) = _take(1, config, batch_size=4, start_step=step)
  _assert_equal([first], [last])


def test_every_epoch_has_every_example_once_in_a_new_order():
  config = _config()
  dataset = data.open_dataset(config)
  expected = sorted(np.repeat(dataset[i]['image'], 3, -1).tobytes()
                    for i in range(50))
  # 16 does not divide 50: batches continue across epochs.
  epochs = _epochs(_take(10, config), 50)
  assert len(epochs) == 3
  for epoch in epochs:
    assert sorted(epoch) == expected
  assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_augmentation_differs_between_epochs_and_seeds():
  config = _config(source='shapes', resolution=32,
                   train_ops=[{'op': 'inception_crop'}])
  epochs = _epochs(_take(10, config), 50)
  assert not set(epochs[0]) & set(epochs[1])
  other = _epochs(_take(10, config, seed=1), 50)
  assert not set(epochs[0]) & set(other[0])


@pytest.mark.parametrize(
    'process_count,num_workers', [(1, 2), (2, 0)])
def test_evaluation_sees_every_example_once_in_order(
    process_count, num_workers):
  config = _config(num_workers=num_workers)
  dataset = data.open_dataset(config)
  parts = [list(data.eval_batches(
      config, dataset, batch_size=16, shards=(i,), num_shards=process_count))
      for i in range(process_count)]
  assert {len(part) for part in parts} == {4}
  batches = [jax.tree.map(lambda *rows: np.concatenate(rows), *step)
             for step in zip(*parts)]
  masks = np.concatenate([b['mask'] for b in batches])
  assert masks.tolist() == [1] * 50 + [0] * 14
  images = np.concatenate([b['image'] for b in batches])
  labels = np.concatenate([b['label'] for b in batches])
  for i in range(50):
    np.testing.assert_array_equal(
        images[i], np.repeat(dataset[i]['image'], 3, -1))
    assert labels[i] == dataset[i]['label']
  assert not images[50:].any() and not labels[50:].any()


def _listed(labels, num_classes):
  images = [np.full((8, 8, 1), i % 256, np.uint8) for i in range(len(labels))]
  return data.Dataset(
      name='listed', split='train', source=in_memory.Arrays(images, labels),
      num_classes=num_classes, class_names=None, multi_label=True,
      eval_split='test')


def _prepared(config, dataset, batch, *, train=False, key=None):
  prepare = data.prepare(
      config, num_classes=dataset.num_classes, multi_label=dataset.multi_label)
  return jax.jit(functools.partial(prepare, train=train))(batch, key)


def test_labels_of_30000_classes_are_transferred_as_lists():
  rng = np.random.default_rng(0)
  labels = [tuple(rng.integers(0, 30_000, rng.integers(0, 9)).tolist())
            for _ in range(256)]
  dataset = _listed(labels, 30_000)
  config = _config()
  (batch,) = data.eval_batches(config, dataset, batch_size=256)
  assert batch['label'].nbytes == 256 * 32 * 4
  dense = np.zeros((256, 30_000), np.float32)
  for i, classes in enumerate(labels):
    dense[i, list(classes)] = 1
  np.testing.assert_array_equal(
      _prepared(config, dataset, batch)['label'], dense)


def test_repeated_labels_count_once_and_padding_is_zero():
  dataset = _listed([(3, 1, 3, 1), ()], 5)
  config = _config(max_labels=2)
  (batch,) = data.eval_batches(config, dataset, batch_size=3)
  assert batch['label'].tolist() == [[1, 3], [-1, -1], [-1, -1]]
  assert _prepared(config, dataset, batch)['label'].tolist() == [
      [0, 1, 0, 1, 0], [0] * 5, [0] * 5]


@pytest.mark.parametrize('labels,message', [
    ((0, 1, 2), r'Example 1 .*\(image 1\).*3 labels.*max_labels is 2.*=3'),
    ((0, -1), 'Example 1 .*one of its labels is -1.* 5 classes'),
    ((5,), 'one of its labels is 5')])
def test_invalid_label_lists_are_errors(labels, message):
  batches = data.eval_batches(
      _config(max_labels=2), _listed([(0,), labels], 5), batch_size=2)
  with pytest.raises(ValueError, match=message):
    list(batches)


def test_the_batch_size_must_divide_into_shards():
  config, dataset = _opened()
  with pytest.raises(ValueError, match='6 does not divide into 4 shards'):
    data.train_batches(
        config, dataset, seed=0, batch_size=6, num_shards=4)


def test_prepare_normalises_and_mixes():
  config, dataset = _opened(mixup=0.4)
  prepare = data.prepare(
      config, num_classes=dataset.num_classes, multi_label=False)
  (batch,) = _take(1, config)
  trained = jax.jit(functools.partial(prepare, train=True))(
      batch, jax.random.key(0))
  assert trained['label'].shape == (16, 10)
  evaluated = prepare(batch, None, train=False)
  np.testing.assert_allclose(
      evaluated['image'], batch['image'] / 127.5 - 1, atol=1e-6)
