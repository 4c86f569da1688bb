"""Classes have the right shares of the draws."""

import itertools

import numpy as np
import pytest

from tests import in_memory
from vit_jax import data
from vit_jax.extras.mixture import class_sampler


def drawn(sampling, count, *, seed=7, start_step=0, batch_size=10, **where):
  """Returns the indices of the examples of `count` batches."""
  config = data.parse({'resolution': 2, 'train_ops': [], 'sampling': sampling})
  batches = data.train_batches(
      config, in_memory.RARE, seed=seed, batch_size=batch_size,
      start_step=start_step, **where)
  taken = [b['image'][:, 0, 0, 0] for b in itertools.islice(batches, count)]
  batches.close()
  return np.array(taken)


@pytest.mark.parametrize('sampling, shares', [
    ('balanced', [1 / 3, 1 / 3, 0, 1 / 3]),
    ('sqrt', np.sqrt([70, 25, 0, 5]) / np.sqrt([70, 25, 5]).sum())])
def test_classes_have_their_share_of_the_draws(sampling, shares):
  sampler = class_sampler.build(
      in_memory.RARE_LABELS, sampling=sampling, seed=7)
  found = np.array([sampler(draw, 0) for draw in range(10_000)])
  by_class = np.bincount(in_memory.RARE_LABELS[found], minlength=4) / len(found)
  np.testing.assert_allclose(by_class, shares, atol=0.02)
  # Within a class, examples are drawn equally often.
  times = np.bincount(found, minlength=100)
  for label in (0, 1, 3):
    mine = times[label == in_memory.RARE_LABELS]
    assert np.abs(mine - mine.mean()).max() < 5 * np.sqrt(mine.mean())


def test_batches_do_not_depend_on_start_and_shards():
  whole = drawn('balanced', 25)
  np.testing.assert_array_equal(
      drawn('balanced', 2, start_step=23), whole[23:])
  halves = [drawn('balanced', 25, shards=(i,), num_shards=2) for i in (0, 1)]
  np.testing.assert_array_equal(np.concatenate(halves, axis=1), whole)
  assert (drawn('balanced', 25, seed=8) != whole).any()


def test_the_order_of_natural_sampling_is_unchanged():
  assert drawn('natural', 1, batch_size=12)[0].tolist() == [
      28, 84, 89, 45, 64, 81, 17, 87, 10, 78, 36, 26]
