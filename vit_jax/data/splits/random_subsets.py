"""Random subsets of a split: those examples whose keys have the lowest hashes.

Which ones are chosen depends on their keys alone: the same on every machine
and in every run, and 9 million are among 30 million, these among 90 million
(arXiv 2010.11929, figure 4). A subset takes one bit for each example of the
whole, 40 MB of 303 million, and ten times that while it is chosen.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
from typing import Any

from jaxtyping import Bool, Int, UInt8, UInt64
import numpy as np

from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings

_CHUNK = 2**20
_BLOCK = 512

# Hashes of a range of examples, made anew whenever they are needed.
_Chunk = Callable[[], UInt64[np.ndarray, 'examples']]


def hash_numbers(
    name: str, first: int, last: int,
) -> UInt64[np.ndarray, 'numbers']:
  """Returns 64 bits for each of the keys (name, first) to (name, last - 1).

  SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
  generators", OOPSLA 2014, figure 16) from a state that the name decides: a
  hash of a string each would take minutes for what this does in seconds. No
  two numbers of a name have the same.
  """
  z = np.arange(first, last, dtype=np.uint64)
  z *= np.uint64(0x9e3779b97f4a7c15)  # Modulo 2 ** 64, as all that follows.
  z += np.uint64(split_strings.stable_hash(name))
  for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
    z ^= z >> np.uint64(shift)
    z *= np.uint64(factor)
  z ^= z >> np.uint64(31)
  return z


@dataclasses.dataclass(frozen=True, eq=False)
class Marked:
  """The examples of a source that are marked, in the source's order.

  Attributes:
    source: all examples.
    bits: a bit each, as `np.packbits` has them.
    ends: marks up to the end of each block: where to look for one.
  """
  source: protocol.Source
  bits: UInt8[np.ndarray, 'bytes']
  ends: Int[np.ndarray, 'blocks']

  def __len__(self) -> int:
    return int(self.ends[-1])

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self.source[self._find(index)]

  def label(self, index: int) -> Any:
    return self.source.label(self._find(index))

  def key(self, index: int) -> str:
    return self.source.key(self._find(index))

  def _find(self, index: int) -> int:
    if not 0 <= index < len(self):
      raise IndexError(f'Example {index} of {len(self)}.')
    block = int(np.searchsorted(self.ends, index, side='right'))
    before = int(self.ends[block - 1]) if block else 0
    marks = np.unpackbits(
        self.bits[block * _BLOCK // 8:(block + 1) * _BLOCK // 8])
    return block * _BLOCK + int(np.flatnonzero(marks)[index - before])


def select_random(
    source: protocol.Source, count: int, *, name: str) -> protocol.Source:
  """Returns the `count` examples of the lowest hashes, in the source's order.

  Hashes the key of each example three times: 303 million of a numbered source
  took 10 s (measured, 2026-11-20, a core of an AMD EPYC); keys that are text
  are hashed once and held, a second and 8 MB for each million.

  Raises:
    ValueError: if there are fewer.
  """
  check_count(count, len(source), name=name)
  if count == len(source):
    return source
  chunks = _chunks(source)
  threshold, equal = _lowest(chunks, count)
  marks = np.zeros(len(source), bool)
  first = 0
  for chunk in chunks:
    hashes = chunk()
    chosen = hashes < threshold
    # One key may occur twice, in 'train+train': as many as are wanted.
    same = np.flatnonzero(hashes == threshold)[:equal]
    chosen[same] = True
    equal -= len(same)
    marks[first:first + len(chosen)] = chosen
    first += len(chosen)
  return mark(source, marks)


def mark(
    source: protocol.Source, marks: Bool[np.ndarray, 'examples']) -> Marked:
  """Returns the examples that are marked."""
  blocks = -(-len(marks) // _BLOCK)
  marks = np.pad(marks, (0, blocks * _BLOCK - len(marks)))
  ends = np.cumsum(np.count_nonzero(marks.reshape(blocks, _BLOCK), axis=1))
  return Marked(source, np.packbits(marks), ends)


def check_count(count: int, length: int, *, name: str) -> None:
  """Raises where a subset would be larger than the whole."""
  if count > length:
    raise ValueError(
        f'data.num_examples is {count:,}, but {name} has {length:,}.')


def _lowest(
    chunks: list[_Chunk], count: int) -> tuple[np.uint64, int]:
  """Returns the `count`-th lowest hash, and how many that equal it are in."""
  # The upper 16 bits of all say which they are of the one that is looked for;
  # of the few that share these, each is looked at.
  bits = np.uint64(48)
  histogram = np.zeros(2**16, np.int64)
  for chunk in chunks:
    histogram += np.bincount(
        (chunk() >> bits).astype(np.int64), minlength=2**16)
  ends = np.cumsum(histogram)
  upper = int(np.searchsorted(ends, count))
  rank = count - (int(ends[upper - 1]) if upper else 0)
  near = []
  for chunk in chunks:
    hashes = chunk()
    near.append(hashes[hashes >> bits == np.uint64(upper)])
  candidates = np.sort(np.concatenate(near))
  threshold = candidates[rank - 1]
  return threshold, rank - int(np.searchsorted(candidates, threshold))


def _chunks(source: protocol.Source) -> list[_Chunk]:
  """Returns what makes the hashes of a source, range by range."""
  if isinstance(source, Marked):
    # The hashes are those that the examples have among all.
    starts = np.cumsum(
        [0, *(stop - start for _, start, stop in _spans(source.source))])
    return [functools.partial(_marked, chunk, source.bits, int(start))
            for chunk, start in zip(_chunks(source.source), starts)]
  chunks: list[_Chunk] = []
  for part, start, stop in _spans(source):
    if isinstance(part, protocol.Numbered):
      name, offset = part.numbering
      chunks.append(functools.partial(
          hash_numbers, name, start + offset, stop + offset))
    else:
      made = np.fromiter(
          (split_strings.stable_hash(part.key(i)) for i in range(start, stop)),
          np.uint64, stop - start)
      chunks.append(functools.partial(_as_it_is, made))
  return chunks


def _spans(
    source: protocol.Source) -> Iterator[tuple[protocol.Source, int, int]]:
  """Yields ranges of the sources that a source is made of."""
  for part, first, last in split_strings.parts(source):
    for start in range(first, last, _CHUNK):
      yield part, start, min(start + _CHUNK, last)


def _marked(
    chunk: _Chunk, bits: UInt8[np.ndarray, 'bytes'], start: int,
) -> UInt64[np.ndarray, 'examples']:
  hashes = chunk()
  first = start // 8
  marks = np.unpackbits(bits[first:-(-(start + len(hashes)) // 8)])
  return hashes[marks[start - 8 * first:][:len(hashes)].astype(bool)]


def _as_it_is(
    hashes: UInt64[np.ndarray, 'examples'],
) -> UInt64[np.ndarray, 'examples']:
  return hashes
