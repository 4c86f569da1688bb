r"""Searches a source for near-duplicates of test sets: here, or on Beam.

    test sets   blocks -> fingerprints \
                                        index (a side input)
    source      blocks -> fingerprints -> candidates -> compared -> pairs

The fingerprints of the test sets are small, 480 bytes per image, and every
worker receives all of them. The source is read once, in any order.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
from typing import Any

from etils import epath

from vit_jax.data import beam_runner
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import blocks
from vit_jax.near_duplicates import methods


def search(
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], method: methods.Method, *,
    folder: epath.Path, runner: str, flags: Sequence[str] = (),
) -> blocks.Matches:
  """Returns examples of the source that are near-duplicates of test images.
  `folder` is temporary; all Beam workers must have access.
  """
  tests = [block for selection in against for block in blocks.split(selection)]
  sources = blocks.split(source)
  if runner == beam_runner.LOCAL:
    parts = [blocks.fingerprint(block, method) for block in tests]
    index = blocks.build_index(parts, method)
    return merge([*map(_unreadable, parts), *(
        blocks.match(block, index, method) for block in sources)])
  beam = beam_runner.load()

  def build(pipeline: Any) -> None:
    parts = (
        pipeline
        | 'test images' >> beam.Create(tests)
        # Without a shuffle, one worker would process all of them.
        | 'spread test images' >> beam.Reshuffle()
        | 'fingerprint' >> beam.Map(blocks.fingerprint, method))
    index = (
        parts
        | 'all test images' >> beam.combiners.ToList()
        | 'index' >> beam.Map(blocks.build_index, method))
    matches = (
        pipeline
        | 'source' >> beam.Create(sources)
        | 'spread source' >> beam.Reshuffle()
        | 'match' >> beam.Map(
            blocks.match, beam.pvalue.AsSingleton(index), method))
    (((parts | 'unreadable' >> beam.Map(_unreadable)), matches)
     | beam.Flatten()
     | 'as JSON' >> beam.Map(_to_json)
     | 'write' >> beam.io.WriteToText(
         os.fspath(folder / 'found'), file_name_suffix='.jsonl'))

  try:
    beam_runner.run(build, runner=runner, flags=flags)
    return merge([
        _from_json(line) for path in folder.glob('found*.jsonl')
        for line in path.read_text().splitlines()])
  finally:
    if folder.exists():
      folder.rmtree()


def merge(parts: Sequence[blocks.Matches]) -> blocks.Matches:
  """Merges results in the order of the source; the first pair of two counts."""
  pairs: dict[int, blocks.Pair] = {}
  unreadable: dict[str, str] = {}
  for part in parts:
    unreadable |= part.unreadable
    for pair in part.pairs:
      pairs.setdefault(pair.index, pair)
  return blocks.Matches(
      tuple(pairs[index] for index in sorted(pairs)),
      sum(part.num_compared for part in parts),
      dict(sorted(unreadable.items())))


def _to_json(matches: blocks.Matches) -> str:
  return json.dumps(dataclasses.asdict(matches))


def _from_json(line: str) -> blocks.Matches:
  fields = json.loads(line)
  fields['pairs'] = tuple(blocks.Pair(**pair) for pair in fields['pairs'])
  return blocks.Matches(**fields)


def _unreadable(part: blocks.Fingerprints) -> blocks.Matches:
  return blocks.Matches((), 0, part.unreadable)
