"""Class sampling has the right shares; examples_per_class is exact."""

import itertools
import re

import numpy as np
import pytest

from tests import in_memory
from vit_jax import data
from vit_jax.data import dataset as dataset_lib
from vit_jax.data.sources import builtin
from vit_jax.data.splits import class_sampling as class_sampling_lib

LABELS = np.array([0] * 70 + [1] * 25 + [3] * 5)  # No class 2.
IMAGES = np.broadcast_to(
    np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 2, 2, 3))
DATASET = dataset_lib.Dataset(
    name='rare', split='train', source=in_memory.Arrays(IMAGES, LABELS),
    num_classes=4)


def drawn(sampling, count, *, seed=7, start_step=0, batch_size=10, **where):
  """Returns the indices of the examples of `count` batches."""
  config = data.parse({'resolution': 2, 'train_ops': [], 'sampling': sampling})
  batches = data.train_batches(
      config, DATASET, seed=seed, batch_size=batch_size, start_step=start_step,
      **where)
  taken = [b['image'][:, 0, 0, 0] for b in itertools.islice(batches, count)]
  batches.close()
  return np.array(taken)


@pytest.mark.parametrize('sampling, shares', [
    ('balanced', [1 / 3, 1 / 3, 0, 1 / 3]),
    ('sqrt', np.sqrt([70, 25, 0, 5]) / np.sqrt([70, 25, 5]).sum())])
def test_classes_have_their_share_of_the_draws(sampling, shares):
  sampler = class_sampling_lib.build(LABELS, sampling=sampling, seed=7)
  found = np.array([sampler(draw, 0) for draw in range(10_000)])
  by_class = np.bincount(LABELS[found], minlength=4) / len(found)
  np.testing.assert_allclose(by_class, shares, atol=0.02)
  # Within a class, examples are drawn equally often.
  times = np.bincount(found, minlength=100)
  for label in (0, 1, 3):
    mine = times[label == LABELS]
    assert np.abs(mine - mine.mean()).max() < 5 * np.sqrt(mine.mean())


def test_batches_do_not_depend_on_start_and_shards():
  whole = drawn('balanced', 25)
  np.testing.assert_array_equal(
      drawn('balanced', 2, start_step=23), whole[23:])
  halves = [drawn('balanced', 25, shards=(i,), num_shards=2) for i in (0, 1)]
  np.testing.assert_array_equal(np.concatenate(halves, axis=1), whole)
  assert (drawn('balanced', 25, seed=8) != whole).any()


@pytest.mark.parametrize('labels, message', [
    ([[0], [1, 2]], 'data.sampling needs one class per image'),
    ([0, 4], 'Example 1 of it (image 1) has class 4, but there are 4')])
def test_invalid_labels_are_errors(labels, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    class_sampling_lib.class_labels(
        in_memory.Arrays(IMAGES, labels), num_classes=4, name='it',
        setting='data.sampling')


def test_the_order_of_natural_sampling_is_unchanged():
  assert drawn('natural', 1, batch_size=12)[0].tolist() == [
      28, 84, 89, 45, 64, 81, 17, 87, 10, 78, 36, 26]


def draw_per_class(source, count):
  return class_sampling_lib.draw_per_class(
      source, count, num_classes=10, name='digits')[0]


def test_examples_per_class_are_balanced_and_nested():
  train = builtin.open_digits().splits['train']
  few, more = draw_per_class(train, 10), draw_per_class(train, 20)
  indices = few.parts[0][1]
  labels = [few.label(i) for i in range(len(few))]
  assert np.bincount(labels).tolist() == [10] * 10
  assert set(indices) < set(more.parts[0][1])
  assert few[3]['label'] == few.label(3) == train.label(int(indices[3]))
  # Published results depend on these examples.
  assert indices[:8].tolist() == [22, 48, 69, 86, 93, 96, 102, 108]
  # Samples of several seeds are those of each.
  both, ranks = class_sampling_lib.draw_per_class(
      train, 10, num_classes=10, name='digits', seeds=(0, 1))
  for row in ranks:
    assert np.bincount(row[row >= 0]).tolist() == [10] * 10
  assert not np.array_equal(*ranks)
  np.testing.assert_array_equal(both.parts[0][1][ranks[0] >= 0], indices)
  with pytest.raises(
      class_sampling_lib.TooFewExamples, match='of 3 classes .*0: 142'):
    draw_per_class(train, 143)


def test_small_classes_may_be_kept_whole():
  train = builtin.open_digits().splits['train']
  labels = [train.label(i) for i in range(len(train))]
  drawn, (ranks,) = class_sampling_lib.draw_per_class(
      train, 143, num_classes=10, name='digits', allow_fewer=True)
  counts = np.minimum(np.bincount(labels), 143)
  assert np.bincount([drawn.label(i) for i in range(len(drawn))]
                     ).tolist() == counts.tolist()
  assert min(ranks) == 0 and max(ranks) == 142
