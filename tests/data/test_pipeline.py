"""The batch at step s is a pure function of (seed, s)."""

import copy
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import in_memory
from vit_jax import data
from vit_jax.data import examples
from vit_jax.data import on_device
from vit_jax.data import pipeline

OPS = [{'op': 'inception_crop'}, {'op': 'flip'}, {'op': 'pad_crop'}]


def _config(**settings):
  return data.parse({'resolution': 8, 'split': 'train[:50]', **settings})


def _take(count, config, *, seed=0, batch_size=16, **where):
  dataset = data.open_dataset(config)
  batches = data.train_batches(
      config, dataset, seed=seed, batch_size=batch_size, **where)
  taken = list(itertools.islice(batches, count))
  batches.close()
  return taken


def _join(*batches):
  return jax.tree.map(lambda *rows: np.concatenate(rows), *batches)


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


@pytest.mark.parametrize(
    'step', [2, pytest.param(40, marks=pytest.mark.slow)])
def test_processes_together_read_the_batches_of_one_from_any_step(step):
  config = _config(train_ops=OPS)
  whole = _take(step + 4, config)[step:]
  parts = [_take(4, config, shards=(i,), num_shards=4, start_step=step)
           for i in range(4)]
  np.testing.assert_equal([_join(*step) for step in zip(*parts)], whole)
  # The batch size does not change the stream.
  np.testing.assert_equal(_join(*_take(
      64, config, batch_size=1, start_step=16 * step)), _join(*whole))
  # Nor does the number of threads.
  np.testing.assert_equal(_take(4, _config(
      train_ops=OPS, num_threads=8, prefetch=9), start_step=step), whole)
  # A process may hold separate shards.
  np.testing.assert_equal(
      _take(4, config, shards=(0, 3), num_shards=4, start_step=step),
      [_join(*step) for step in zip(parts[0], parts[3])])


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


@pytest.mark.parametrize(('secs', 'cores', 'most', 'workers'), [
    (0.005, 64, 'auto', 0), (0.3, 64, 'auto', 1), (3.0, 64, 'auto', 8),
    (3.0, 8, 'auto', 3), (3.0, 2, 'auto', 0), (0.005, 64, 8, 0),
    (3.0, 2, 4, 4)])
def test_workers_repay_the_time_to_start_them(
    secs, cores, most, workers, monkeypatch):
  now = itertools.count(0, secs)
  monkeypatch.setattr(pipeline.time, 'perf_counter', lambda: next(now))
  config = _config()
  load = examples.LoadExample(data.open_dataset(config), config, train=False)
  assert pipeline.choose_workers(load, most=most, cores=cores) == workers


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


def test_evaluation_sees_every_example_once_in_order():
  config = _config()
  dataset = data.open_dataset(config)
  parts = [list(data.eval_batches(
      config, dataset, batch_size=16, shards=(i,), num_shards=2))
      for i in range(2)]
  whole = [_join(*step) for step in zip(*parts, strict=True)]
  assert len(whole) == 4
  found = _join(*whole)
  assert found['mask'].tolist() == [1] * 50 + [0] * 14
  for i in range(50):
    np.testing.assert_array_equal(
        found['image'][i], np.repeat(dataset[i]['image'], 3, -1))
    assert found['label'][i] == dataset[i]['label']
  assert not found['image'][50:].any() and not found['label'][50:].any()


def _listed(labels, num_classes):
  images = [np.full((8, 8, 1), i % 256, np.uint8) for i in range(len(labels))]
  return data.Dataset(
      name='listed', split='train', source=in_memory.Arrays(images, labels),
      num_classes=num_classes, multi_label=True)


@pytest.mark.parametrize(('labels', 'num_classes'), [
    ([tuple(range(i, 30_000, 4_000)) for i in range(256)], 30_000),
    ([(3, 1, 3, 1), ()], 5)])
def test_label_lists_are_padded_and_become_k_hot_on_the_device(
    labels, num_classes):
  dataset, config = _listed(labels, num_classes), _config(max_labels=8)
  (batch,) = data.eval_batches(config, dataset, batch_size=256)
  assert batch['label'].nbytes == 256 * 8 * 4
  dense = np.zeros((256, num_classes), np.float32)
  for i, classes in enumerate(labels):
    dense[i, list(classes)] = 1
  prepare = data.prepare(config, dataset)
  np.testing.assert_array_equal(
      prepare(batch, None, train=False)['label'], dense)


def test_k_hot_needs_no_communication():
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ('data',))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
  labels = jax.ShapeDtypeStruct((64, 32), jnp.int32, sharding=rows)
  compiled = jax.jit(functools.partial(
      on_device.k_hot, num_classes=30_000), out_shardings=rows,
  ).lower(labels).compile()
  for collective in ('all-gather', 'all-reduce', 'all-to-all', 'permute'):
    assert collective not in compiled.as_text()
  # The array [batch, labels, classes] is never materialised.
  assert compiled.memory_analysis().temp_size_in_bytes < 2**20


def test_a_cache_changes_no_batch_and_reads_each_example_once():
  settings = {'train_ops': OPS, 'split': 'train[:20]', 'num_threads': 1}
  config = _config(cache_mib=1, **settings)
  opened = data.open_dataset(config)
  source = in_memory.Recording(opened.source)
  batches = data.train_batches(
      config, dataclasses.replace(opened, source=source), seed=0, batch_size=16)
  np.testing.assert_equal(
      list(itertools.islice(batches, 6)), _take(6, _config(**settings)))
  batches.close()
  assert sorted(source.read) == list(range(20))


def test_the_cache_is_bounded():
  config = _config(source='shapes', cache_mib=2)
  opened = data.open_dataset(config)
  load = examples.LoadExample(opened, config, train=False)
  opened.cache.num_bytes = 2**21 - 500
  for index in range(4):
    load.image(index)
  assert list(opened.cache) == [0, 1]


def test_changed_data_sets_and_other_processes_have_an_empty_cache():
  opened = data.open_dataset(_config())
  opened.cache[0] = {'label': 'a'}
  assert not dataclasses.replace(opened, num_classes=5).cache
  assert not copy.copy(opened.cache)  # Like pickling.
