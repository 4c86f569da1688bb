"""Threaded reading keeps the order and returns chosen exceptions."""

import pytest

from vit_jax.data.images import threads


def _read(item):
  if item == 3:
    raise ValueError('three')
  return 10 * item


def test_chunks_keep_the_order_and_hold_errors():
  chunks = list(threads.read_chunks(
      range(7), _read, size=3, errors=(ValueError,)))
  assert [len(chunk) for chunk in chunks] == [3, 3, 1]
  results = [pair for chunk in chunks for pair in chunk]
  assert [item for item, _ in results] == list(range(7))
  assert str(results[3][1]) == 'three'
  assert [result for item, result in results if item != 3] == [
      0, 10, 20, 40, 50, 60]


def test_other_exceptions_are_raised():
  with pytest.raises(ValueError, match='three'):
    list(threads.read_chunks(range(7), _read, size=3, errors=(OSError,)))
