"""Checksums of the arrays and JSON items of a checkpoint.

Orbax writes arrays without checksums, so a bit that flips on a disk would be
restored silently. Checksums are computed on the devices, before saving and
after restoring: sums of integers do not depend on the sharding.
"""

from collections.abc import Mapping
import hashlib
import json
from typing import Any
import zlib

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from vit_jax import tree
from vit_jax.exceptions import UserError


class ChangedError(UserError):
  """A checkpoint differs from what was saved."""


_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}


@jax.jit
def of_array(array: Array) -> UInt32[Array, '']:
  """Returns the sum of hashed 32-bit words, modulo 2**32.

  A word's hash (the finalizer of MurmurHash3) includes its position and is
  invertible, so any change of one word is detected, and other changes with a
  probability of 1 - 2**-32.
  """
  if array.dtype == jnp.bool_:
    array = array.astype(jnp.uint8)
  words = lax.bitcast_convert_type(
      array, _WORDS[array.dtype.itemsize]).astype(jnp.uint32)
  position, stride = jnp.zeros(words.shape, jnp.uint32), 1
  for axis in reversed(range(words.ndim)):
    position += lax.broadcasted_iota(jnp.uint32, words.shape, axis) * (
        stride % 2**32)
    stride *= words.shape[axis]
  mixed = words + position * jnp.uint32(0x9e3779b9)
  for shift, factor in ((16, 0x85ebca6b), (13, 0xc2b2ae35), (16, 1)):
    mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
  return jnp.sum(mixed, dtype=jnp.uint32)


def of_arrays(arrays: Any) -> dict[str, int]:
  """Returns the checksum of each array of a tree by its path name."""
  # One at a time: with 48 sums over devices in flight, JAX's CPU client hung.
  return {name: int(of_array(leaf))
          for name, leaf in tree.flatten(arrays).items()}


def of_json(data: Mapping[str, Any]) -> int:
  """Returns the CRC-32 of plain data, as JSON represents it."""
  plain = json.loads(json.dumps(data))  # Keys become strings before sorting.
  return zlib.crc32(json.dumps(plain, sort_keys=True).encode())


def identity(arrays: Any) -> str:
  """Returns a hash of the names, shapes and values of a tree of arrays."""
  shapes = {name: leaf.shape for name, leaf in tree.flatten(arrays).items()}
  text = json.dumps([shapes, of_arrays(arrays)], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_identity(arrays: Any, expected: str, *, path: Any) -> None:
  """Raises UserError unless `identity` of the arrays in a file matches."""
  found = identity(arrays)
  if found != expected:
    raise UserError(
        f'{path} holds other weights than when the run started: their hash is '
        f'{found}, but was {expected}. Use the former weights; names such as '
        "'photos' mean those of the installed version.")


def check(sums: Mapping[str, Any], restored: Mapping[str, Any]) -> None:
  """Raises `ChangedError` if the checksums of restored items differ.

  Args:
    sums: checksums by item, and by array if it is a tree of arrays.
    restored: trees of arrays and plain data by item.
  """
  for item, data in restored.items():
    if not isinstance(sums[item], dict):
      if sums[item] != of_json(data):
        raise ChangedError(f'the checksum of {item} differs')
    elif different := sorted(of_arrays(data).items() ^ sums[item].items()):
      raise ChangedError(
          f'the checksum of {item} differs for {different[0][0]}')
