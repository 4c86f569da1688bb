"""Searches a source for near-duplicates of test sets: here, or on Beam.

    test sets   blocks -> fingerprints of all crops \\
                                                      one index (a side input)
    source      blocks -> fingerprints -> near ones -> compared -> pairs

Test sets are small beside what is pre-trained on: their fingerprints, 480 bytes
an image, are searched by every worker, and the source is read once, in any
order, with nothing of it sent around.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import json
import os
from typing import Any

from etils import epath

from vit_jax.data import beam_runner as beam_runner_lib
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import blocks


@dataclasses.dataclass(frozen=True)
class Result:
  """What was found, in the order of the source.

  Attributes:
    pairs: for each near-duplicate, the test image that it is most like.
    candidates: pairs whose pixels were compared.
    unreadable: why examples could not be read, by selection and key.
  """
  pairs: tuple[blocks.Pair, ...]
  candidates: int
  unreadable: dict[str, str]


def search(
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], method: blocks.Method, *,
    folder: epath.Path, runner: str, flags: Sequence[str] = (),
) -> Result:
  """Returns the examples of the source that test sets have, too.

  Args:
    source: what to train on.
    against: test sets.
    method: how near-duplicates are found.
    folder: where what workers find is written, and then removed; all of them
      must see it.
    runner: of Beam, or 'local'.
    flags: Beam's own.

  Raises:
    ImportError: if the runner needs Beam and it is not installed.
  """
  tests = [block for selection in against for block in blocks.split(selection)]
  sources = blocks.split(source)
  if runner == beam_runner_lib.LOCAL:
    lines = list(_search_here(sources, tests, method))
  else:
    lines = _search_on_beam(
        sources, tests, method, folder=folder, runner=runner, flags=flags)
  return _join(lines)


def _search_here(
    sources: Sequence[blocks.Block], tests: Sequence[blocks.Block],
    method: blocks.Method,
) -> Iterator[dict[str, Any]]:
  parts = [method.fingerprint(block, method.settings) for block in tests]
  for part in parts:
    yield _unreadable(part)
  index = method.gather(parts, method.settings)
  for block in sources:
    yield _found(block, index, method)


def _search_on_beam(
    sources: Sequence[blocks.Block], tests: Sequence[blocks.Block],
    method: blocks.Method, *, folder: epath.Path, runner: str,
    flags: Sequence[str],
) -> list[dict[str, Any]]:
  beam = beam_runner_lib.load()

  def build(pipeline: Any) -> None:
    parts = (
        pipeline
        | 'test images' >> beam.Create(list(tests))
        # Else one worker gets them all, with what follows.
        | 'spread test images' >> beam.Reshuffle()
        | 'fingerprint' >> beam.Map(method.fingerprint, method.settings))
    index = (
        parts
        | 'all test images' >> beam.combiners.ToList()
        | 'index' >> beam.Map(method.gather, method.settings))
    found = (
        pipeline
        | 'source' >> beam.Create(list(sources))
        | 'spread source' >> beam.Reshuffle()
        | 'match' >> beam.Map(
            _found, beam.pvalue.AsSingleton(index), method))
    (((parts | 'unreadable' >> beam.Map(_unreadable)), found)
     | beam.Flatten()
     | 'as JSON' >> beam.Map(json.dumps)
     | 'write' >> beam.io.WriteToText(
         os.fspath(folder / 'found'), file_name_suffix='.jsonl'))

  try:
    beam_runner_lib.run(build, runner=runner, flags=flags)
    return [json.loads(line) for path in folder.glob('found*.jsonl')
            for line in path.read_text().splitlines()]
  finally:
    if folder.exists():
      folder.rmtree()


def join(one: Result, other: Result) -> Result:
  """Returns what two methods found: of an example, what the first did."""
  pairs = {pair.index: pair for pair in (*other.pairs, *one.pairs)}
  return Result(
      tuple(pairs[index] for index in sorted(pairs)),
      one.candidates + other.candidates, one.unreadable | other.unreadable)


def _unreadable(part: Any) -> dict[str, Any]:
  return {'pairs': [], 'candidates': 0,
          'unreadable': {f'{part.block.selection.name} {key}': why
                         for key, why in part.unreadable.items()}}


def _found(
    block: blocks.Block, tests: Any, method: blocks.Method,
) -> dict[str, Any]:
  found = method.match(block, tests, method.settings)
  return {'pairs': [dataclasses.asdict(pair) for pair in found.pairs],
          'candidates': found.candidates,
          'unreadable': {f'{block.selection.name} {key}': why
                         for key, why in found.unreadable.items()}}


def _join(lines: Sequence[dict[str, Any]]) -> Result:
  pairs = [blocks.Pair(**pair) for pair in itertools.chain.from_iterable(
      line['pairs'] for line in lines)]
  unreadable: dict[str, str] = {}
  for line in lines:
    unreadable |= line['unreadable']
  return Result(
      tuple(sorted(pairs, key=lambda pair: pair.index)),
      sum(line['candidates'] for line in lines),
      dict(sorted(unreadable.items())))
