"""Searches a source for near-duplicates of test sets, locally or on Beam.

    test sets   blocks -> views -> index (a side input)
    source      blocks -> compared with similar test images -> pairs

The index is small, 480 bytes per test image, and every worker receives all of
it. The source is read once, in any order. Workers receive plain records: blocks
of a few hundred examples, and a method.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
from typing import Any, NamedTuple

from etils import epath
import numpy as np

from vit_jax.curation import beam_runner
from vit_jax.curation import methods
from vit_jax.curation import selection as selection_lib
from vit_jax.data.images import decode

SIZE = 512  # Examples per block.


@dataclasses.dataclass(frozen=True)
class Pair:
  """An example of the source, and the test image it is most similar to.

  Attributes:
    index, key: index and key of the example in the source.
    against: name of the test set.
    against_index, against_key: index and key of the image in the test set.
    similarity: correlation of the pixels, or cosine of the features.
    distance: number of differing bits, of 64; None for features.
    change: 'whole', 'crop', 'mirrored' or 'mirrored crop'; for features
      'alike' or 'alike mirrored'.
  """
  index: int
  key: str
  against: str
  against_index: int
  against_key: str
  similarity: float
  distance: int | None
  change: str

  @property
  def description(self) -> str:
    """Short text for captions."""
    return f'{self.change}, similarity {self.similarity:.3f}' + (
        '' if self.distance is None
        else f', {self.distance} of 64 bits differ')


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
  """Bits or features of each view of the readable test images of a block."""
  places: methods.Places
  views: np.ndarray
  unreadable: dict[str, str]


class TestImages(NamedTuple):
  """The search index of all test images, and where to find each of them."""
  index: Any  # See `methods`.
  places: methods.Places


def split(selection: selection_lib.Selection) -> list[Block]:
  """Returns the blocks of a selection."""
  total = len(selection.open())
  return [Block(selection, first, min(first + SIZE, total))
          for first in range(0, total, SIZE)]


def read_views(block: Block, method: methods.Method) -> Views:
  """Returns the views of a block of test images."""
  images, unreadable = _read(block, method)
  return Views(
      [(block.selection, index) for index in images],
      method.views(list(images.values())) if images else np.zeros(0),
      unreadable)


def build_index(
    parts: Sequence[Views], method: methods.Method) -> TestImages:
  """Returns the index of all test images, independent of the order of parts.

  Raises:
    ValueError: if no test image could be read.
  """
  parts = sorted((part for part in parts if part.places),
                 key=lambda part: (part.places[0][0].name, part.places[0][1]))
  if not parts:
    raise ValueError('No image of --against could be read.')
  return TestImages(
      method.index(np.concatenate([part.views for part in parts])),
      [place for part in parts for place in part.places])


def match(block: Block, tests: TestImages, method: methods.Method) -> Matches:
  """Returns the near-duplicates of test images in a block of the source."""
  images, unreadable = _read(block, method)
  compared = list(method.search(
      list(images.values()), tests.index, tests.places)) if images else []
  best: dict[int, methods.Comparison] = {}
  for found in sorted(compared, key=lambda found: -found.similarity):
    if found.similarity >= method.min_similarity:
      best.setdefault(found.row, found)
  source, indices = block.selection.open().source, list(images)
  pairs = []
  for row, found in best.items():
    index, (selection, other) = indices[row], tests.places[found.image]
    pairs.append(Pair(
        index, source.key(index), selection.name, other,
        selection.open().source.key(other), found.similarity, found.distance,
        found.change))
  return Matches(pairs, len(compared), unreadable)


def _read(
    block: Block, method: methods.Method,
) -> tuple[dict[int, Any], dict[str, str]]:
  """Returns readable images by index, and reasons for the others by key."""
  selection, source = block.selection, block.selection.open().source
  # A block is one chunk.
  (found, failed), = decode.read_chunks(
      range(block.first, block.last),
      lambda index: method.read(selection.image(index)), size=SIZE,
      errors=(OSError, ValueError))
  return dict(found), {f'{selection.name} {source.key(index)}': str(error)
                       for index, error in failed}


def search(
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], method: methods.Method, *,
    folder: epath.Path, runner: str, flags: Sequence[str] = (),
) -> Matches:
  """Returns examples of the source that are near-duplicates of test images.

  `folder` is temporary; all Beam workers must have access.
  """
  tests = [block for selection in against for block in split(selection)]
  sources = split(source)
  if runner == beam_runner.LOCAL:
    parts = [read_views(block, method) for block in tests]
    index = build_index(parts, method)
    return merge([*map(_unreadable, parts), *(
        match(block, index, method) for block in sources)])
  try:
    with beam_runner.run(runner=runner, flags=flags) as (beam, pipeline):
      parts = (
          pipeline
          | 'test images' >> beam.Create(tests)
          # Without a shuffle, one worker would process all of them.
          | 'spread test images' >> beam.Reshuffle()
          | 'views' >> beam.Map(read_views, method))
      index = (
          parts
          | 'all test images' >> beam.combiners.ToList()
          | 'index' >> beam.Map(build_index, method))
      matches = (
          pipeline
          | 'source' >> beam.Create(sources)
          | 'spread source' >> beam.Reshuffle()
          | 'match' >> beam.Map(
              match, beam.pvalue.AsSingleton(index), method))
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
  """Merges results in source order; keeps the first pair of each example."""
  pairs: dict[int, Pair] = {}
  unreadable: dict[str, str] = {}
  for part in parts:
    unreadable |= part.unreadable
    for pair in part.pairs:
      pairs.setdefault(pair.index, pair)
  return Matches(
      [pairs[index] for index in sorted(pairs)],
      sum(part.num_compared for part in parts),
      dict(sorted(unreadable.items())))


def _from_json(line: str) -> Matches:
  pairs, *others = json.loads(line)
  return Matches([Pair(**pair) for pair in pairs], *others)


def _unreadable(part: Views) -> Matches:
  return Matches([], 0, part.unreadable)
