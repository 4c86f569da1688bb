"""What a search leaves: keys to exclude, all pairs, and a page to look at."""

from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from etils import epath
import numpy as np

from vit_jax.analysis import html_page
from vit_jax.data.images import decode
from vit_jax.data.splits import selection as selection_lib
from vit_jax.near_duplicates import blocks

EXCLUDE, PAIRS, PAGE = 'exclude.txt', 'pairs.jsonl', 'pairs.html'
_PICTURE = 192  # The longest side on the page, in pixels.


def write_keys(path: epath.Path, pairs: Sequence[blocks.Pair]) -> None:
  """Writes the keys to leave out, a line each; `data.exclude` reads them.

  Raises:
    ValueError: for a key of several lines.
  """
  keys = [pair.key for pair in pairs]
  for key in keys:
    if key != key.strip() or len(key.splitlines()) != 1:
      raise ValueError(
          f'The example {key!r} cannot be named on a line of {path.name}: its '
          'name begins or ends with a space, or has several lines. Rename it.')
  path.write_text(''.join(f'{key}\n' for key in keys))


def write_pairs(path: epath.Path, pairs: Sequence[blocks.Pair]) -> None:
  """Writes a line of JSON for each pair."""
  path.write_text(''.join(
      json.dumps(dataclasses.asdict(pair)) + '\n' for pair in pairs))


def write_page(
    path: epath.Path, pairs: Sequence[blocks.Pair],
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], *, text: str, shown: int,
) -> None:
  """Writes a page of pairs side by side, those that are least alike first.

  Args:
    path: the .html file.
    pairs: all.
    source: of the left pictures.
    against: of the right ones.
    text: below the title.
    shown: how many: a sample, evenly from the least to the most alike.
  """
  ordered = sorted(pairs, key=lambda pair: pair.similarity)
  sample = [ordered[i] for i in np.unique(np.linspace(
      0, len(ordered) - 1, min(shown, len(ordered))).astype(int)).tolist()]
  tests = {selection.name: selection for selection in against}
  html_page.write(
      path, 'near_duplicates/page.html',
      title=f'Near-duplicates in {source.name}', text=text,
      shown=('all' if len(sample) == len(pairs)
             else f'{len(sample)} of {len(pairs):,}, evenly chosen'),
      pairs=[{
          'title': f'similarity {pair.similarity:.3f}, {pair.distance} of 64 '
                   'bits differ' + f', {pair.change}' * (
                       pair.change != 'whole'),
          'images': [
              _image(source, pair.index, pair.key),
              _image(tests[pair.against], pair.against_index,
                     pair.against_key)]} for pair in sample])


def _image(
    selection: selection_lib.Selection, index: int, key: str,
) -> dict[str, str]:
  dataset = selection.open()
  example = dataset[index]
  return {
      'key': key, 'label': _label(example['label'], dataset.class_names),
      'url': html_page.thumbnail(
          decode.decode(example['image'], channels=3), side=_PICTURE)}


def _label(label: Any, names: tuple[str, ...] | None) -> str:
  indices = np.atleast_1d(np.asarray(label))
  return ', '.join(
      names[int(i)] if names is not None and np.issubdtype(
          indices.dtype, np.integer) and 0 <= i < len(names) else str(i)
      for i in indices[:5])
