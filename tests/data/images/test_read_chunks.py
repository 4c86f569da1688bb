"""Threaded reading keeps the order and returns chosen exceptions."""

import itertools

import pytest

from vit_jax.data.images import decode


def _read(item):
  if item == 3:
    raise ValueError('three')
  return 10 * item


def test_chunks_keep_the_order_and_hold_the_expected_errors():
  chunks = list(decode.read_chunks(
      range(7), _read, size=3, errors=(ValueError,)))
  assert [len(chunk) for chunk in chunks] == [3, 3, 1]
  assert [(item, str(result)) for item, result in itertools.chain(*chunks)] == [
      (item, 'three' if item == 3 else str(10 * item)) for item in range(7)]
  with pytest.raises(ValueError, match='three'):
    list(decode.read_chunks(range(7), _read, size=3, errors=(OSError,)))
