"""Output of a search: keys to exclude, all pairs, and a page to review."""

from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from etils import epath
import numpy as np

from vit_jax import atomic_files
from vit_jax.analysis import html_page
from vit_jax.curation import search
from vit_jax.curation import selection as selection_lib

EXCLUDE, PAIRS, PAGE = 'exclude.txt', 'pairs.jsonl', 'pairs.html'
_IMAGE_SIDE = 192  # Pixels, on the page.
_MAX_LABELS = 5


def write_pairs(folder: epath.Path, pairs: Sequence[search.Pair]) -> None:
  """Writes all pairs, and the keys for `data.exclude`, one per line.

  Raises:
    ValueError: for a key that does not fit on a line.
  """
  for pair in pairs:
    if '\n' in pair.key:
      raise ValueError(
          f'The key {pair.key!r} has several lines, but {EXCLUDE} has one key '
          'per line. Rename the file.')
  atomic_files.write_text(
      folder / EXCLUDE, ''.join(f'{pair.key}\n' for pair in pairs))
  atomic_files.write_text(folder / PAIRS, ''.join(
      json.dumps(dataclasses.asdict(pair)) + '\n' for pair in pairs))


def write_page(
    path: epath.Path, pairs: Sequence[search.Pair],
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], *, text: str, shown: int,
) -> None:
  """Writes a page of pairs side by side, the least similar first.

  At most `shown` pairs are sampled, evenly by similarity.
  """
  ordered = sorted(pairs, key=lambda pair: pair.similarity)
  sample = [ordered[i] for i in np.unique(np.linspace(
      0, len(ordered) - 1, min(shown, len(ordered))).astype(int)).tolist()]
  tests = {selection.name: selection for selection in against}
  html_page.write(
      path, 'curation/pairs.html',
      title=f'Near-duplicates in {source.name}', text=text,
      shown=f'{len(sample):,} of {len(pairs):,}, evenly sampled', pairs=[{
          'title': f'{pair.change}, similarity {pair.similarity:.3f}' + (
              '' if pair.distance is None
              else f', {pair.distance} of 64 bits differ'),
          'images': [
              _image(source, pair.index, pair.key),
              _image(tests[pair.against], pair.against_index,
                     pair.against_key)]} for pair in sample])


def _image(
    selection: selection_lib.Selection, index: int, key: str,
) -> dict[str, str]:
  dataset = selection.open()
  names = dataset.class_names
  values: list[Any] = np.atleast_1d(
      np.asarray(dataset.source.label(index))).tolist()[:_MAX_LABELS]
  known = range(len(names or ()))
  return {
      'key': key, 'label': ', '.join(
          names[v] if names and v in known else str(v) for v in values),
      'url': html_page.thumbnail(selection.image(index), side=_IMAGE_SIDE)}
