"""Searches a source for near-duplicates of test sets, locally or on Beam.

    test sets   blocks -> views -> index (a side input)
    source      blocks -> compared with similar test images -> pairs

The index is small, 480 bytes per test image, and every worker receives all of
it. The source is read once, in any order. Workers receive plain records: blocks
of a few hundred examples, and the settings.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import os
from typing import NamedTuple

from etils import epath
from jaxtyping import UInt8, UInt64
import numpy as np

from vit_jax.data.images import decode
from vit_jax.exceptions import UserError
from vit_jax.extras.curation import beam_runner
from vit_jax.extras.curation import hash_index
from vit_jax.extras.curation import selection as selection_lib
from vit_jax.extras.curation import similarity

SIZE = 512  # Examples per block.
_MAX_CANDIDATES = 8  # Test images compared with each example.
# Selection of each test image, and its index there.
Places = Sequence[tuple[selection_lib.Selection, int]]


@dataclasses.dataclass(frozen=True)
class Settings(similarity.Thresholds):
  """Definition of near-duplicates.

  Attributes:
    crops: also search for crops of test images.
  """
  crops: bool = True

  @property
  def windows(self) -> tuple[similarity.Window, ...]:
    """Searched windows of a test image; the first is the whole image."""
    return similarity.crops() if self.crops else (similarity.WHOLE,)


@dataclasses.dataclass(frozen=True)
class Pair:
  """An example of the source, and the test image it is most similar to.

  Attributes:
    index, key: index and key of the example in the source.
    against: name of the test set.
    against_index, against_key: index and key of the image in the test set.
    similarity: correlation of the pixels.
    distance: number of differing bits, of 64.
    change: 'whole', 'crop', 'mirrored' or 'mirrored crop'.
  """
  index: int
  key: str
  against: str
  against_index: int
  against_key: str
  similarity: float
  distance: int
  change: str

  @property
  def description(self) -> str:
    """Short text for captions."""
    return (f'{self.change}, similarity {self.similarity:.3f}, '
            f'{self.distance} of 64 bits differ')


class Matches(NamedTuple):
  """Pairs, number of comparisons, and reasons by unreadable key."""
  pairs: Sequence[Pair]
  num_compared: int
  unreadable: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Block:
  """Examples `first` to `last - 1` of a selection."""
  selection: selection_lib.Selection
  first: int
  last: int


class Views(NamedTuple):
  """Hashes of the windows of the readable test images of a block.

  The windows of each image are followed by the mirrored windows.
  """
  places: Places
  bits: UInt64[np.ndarray, 'images views']
  unreadable: dict[str, str]


class TestImages(NamedTuple):
  """Searched views with the index of each, and where to find each image."""
  indices: list[tuple[list[int], hash_index.Index]]
  places: Places


def split(selection: selection_lib.Selection) -> list[Block]:
  """Returns the blocks of a selection."""
  total = len(selection.open())
  return [Block(selection, first, min(first + SIZE, total))
          for first in range(0, total, SIZE)]


def read_views(block: Block, settings: Settings) -> Views:
  """Returns the views of a block of test images."""
  images, unreadable = _read(block)
  return Views([(block.selection, index) for index in images],
               views(list(images.values()), settings), unreadable)


def views(
    thumbnails: Sequence[np.ndarray], settings: Settings,
) -> UInt64[np.ndarray, 'images views']:
  """Returns the hashes of windows and mirrored windows of test images."""
  if not thumbnails:
    return np.zeros((0, 2 * len(settings.windows)), np.uint64)
  images = np.stack(thumbnails)
  bits = similarity.fingerprints(images, settings.windows)
  flat = similarity.is_flat(images)[:, None]
  return np.concatenate(
      [bits, np.where(flat, bits, similarity.mirrored(bits))], axis=1)


def build_index(parts: Sequence[Views], settings: Settings) -> TestImages:
  """Returns the index of all test images, independent of the order of parts.

  Raises:
    UserError: if no test image could be read.
  """
  parts = sorted((part for part in parts if part.places),
                 key=lambda part: (part.places[0][0].name, part.places[0][1]))
  if not parts:
    raise UserError('No image of --against could be read.')
  bits = np.concatenate([part.bits for part in parts])
  # Apart, because the hash of a crop may be nearer than that of the whole
  # image, but its pixels less similar: crops must not displace copies.
  count = len(settings.windows)
  crops = [view for view in range(2 * count) if view % count]
  return TestImages(
      [(chosen, hash_index.Index(
          bits[:, chosen].ravel(), max_distance=settings.max_distance))
       for chosen in ([0, count], crops) if chosen],
      [place for part in parts for place in part.places])


def match(block: Block, tests: TestImages, settings: Settings) -> Matches:
  """Returns the near-duplicates of test images in a block of the source."""
  images, unreadable = _read(block)
  compared = list(compare(images, tests, settings, block.selection))
  best: dict[int, Pair] = {}
  for pair in sorted(compared, key=lambda pair: -pair.similarity):
    if pair.similarity >= settings.min_similarity:
      best.setdefault(pair.index, pair)
  return Matches(list(best.values()), len(compared), unreadable)


def compare(
    images: Mapping[int, np.ndarray], tests: TestImages, settings: Settings,
    source: selection_lib.Selection,
) -> Iterator[Pair]:
  """Compares thumbnails, by index, with the most similar test images."""
  if not images:
    return
  bits = similarity.fingerprints(np.stack(list(images.values())))[:, 0]
  indices, count = list(images), len(settings.windows)
  for chosen, of_views in tests.indices:
    matches = of_views.match(bits)
    compared = collections.defaultdict[int, set[int]](set)
    for row, entry, distance in zip(
        matches.query.tolist(), of_views.first[matches.entry].tolist(),
        matches.distance.tolist()):
      image, view = divmod(entry, len(chosen))
      # The nearest view of each of the nearest images.
      if image in compared[row] or len(compared[row]) == _MAX_CANDIDATES:
        continue
      compared[row].add(image)
      mirrored, window = divmod(chosen[view], count)
      index, (against, other) = indices[row], tests.places[image]
      yield Pair(
          index, source.open().source.key(index), against.name, other,
          against.open().source.key(other), similarity.correlation(
              similarity.view(images[index]),
              similarity.view(_thumbnail(against, other),
                              settings.windows[window],
                              mirrored=bool(mirrored))),
          distance, ' '.join(['mirrored'] * mirrored + ['crop'] * (window > 0))
          or 'whole')


@functools.lru_cache(maxsize=10_000)
def _thumbnail(
    selection: selection_lib.Selection, index: int,
) -> UInt8[np.ndarray, '64 64 3']:
  return similarity.thumbnail(selection.image(index))


def _read(block: Block) -> tuple[dict[int, np.ndarray], dict[str, str]]:
  """Returns thumbnails by index, and why other images are unreadable by key."""
  selection, source = block.selection, block.selection.open().source
  # A block is one chunk.
  (found, failed), = decode.read_chunks(
      range(block.first, block.last),
      lambda index: similarity.thumbnail(selection.image(index)), size=SIZE,
      errors=(OSError, ValueError))
  return dict(found), {f'{selection.name} {source.key(index)}': str(error)
                       for index, error in failed}


def search(
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], settings: Settings, *,
    folder: epath.Path, runner: str, flags: Sequence[str] = (),
) -> Matches:
  """Returns examples of the source that are near-duplicates of test images.

  `folder` is temporary; all Beam workers must have access.
  """
  tests = [block for selection in against for block in split(selection)]
  sources = split(source)
  if runner == beam_runner.LOCAL:
    parts = [read_views(block, settings) for block in tests]
    index = build_index(parts, settings)
    return merge([*map(_unreadable, parts), *(
        match(block, index, settings) for block in sources)])
  try:
    with beam_runner.run(runner=runner, flags=flags) as (beam, pipeline):
      parts = (
          pipeline
          | 'test images' >> beam.Create(tests)
          # Without a shuffle, one worker would process all of them.
          | 'spread test images' >> beam.Reshuffle()
          | 'views' >> beam.Map(read_views, settings))
      index = (
          parts
          | 'all test images' >> beam.combiners.ToList()
          | 'index' >> beam.Map(build_index, settings))
      matches = (
          pipeline
          | 'source' >> beam.Create(sources)
          | 'spread source' >> beam.Reshuffle()
          | 'match' >> beam.Map(
              match, beam.pvalue.AsSingleton(index), settings))
      (((parts | 'unreadable' >> beam.Map(_unreadable)), matches)
       | beam.Flatten()
       | 'as JSON' >> beam.Map(json.dumps, default=vars)
       | 'write' >> beam.io.WriteToText(
           os.fspath(folder / 'found'), file_name_suffix='.jsonl'))
    return merge([
        _from_json(line) for path in folder.iterdir()
        if path.suffix == '.jsonl' for line in path.read_text().splitlines()])
  finally:
    if folder.exists():
      folder.rmtree()


def merge(parts: Sequence[Matches]) -> Matches:
  """Merges the results of blocks, in source order."""
  return Matches(
      sorted((pair for part in parts for pair in part.pairs),
             key=lambda pair: pair.index),
      sum(part.num_compared for part in parts),
      dict(sorted(item for part in parts for item in part.unreadable.items())))


def _from_json(line: str) -> Matches:
  pairs, *others = json.loads(line)
  return Matches([Pair(**pair) for pair in pairs], *others)


def _unreadable(part: Views) -> Matches:
  return Matches([], 0, part.unreadable)
