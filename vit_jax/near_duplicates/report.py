"""Output of a search: keys to exclude, all pairs, and a page to review."""

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
_IMAGE_SIDE = 192  # Pixels, on the page.
_MAX_LABELS = 5


def write_keys(path: epath.Path, pairs: Sequence[blocks.Pair]) -> None:
  """Writes the keys to exclude, one per line, for `data.exclude`.

  Raises:
    ValueError: for a key that does not fit on a line.
  """
  keys = [pair.key for pair in pairs]
  for key in keys:
    if key != key.strip() or len(key.splitlines()) != 1:
      raise ValueError(
          f'The key {key!r} cannot be written to {path.name}: it begins or '
          'ends with a space, or has several lines. Rename the file.')
  path.write_text(''.join(f'{key}\n' for key in keys))


def write_pairs(path: epath.Path, pairs: Sequence[blocks.Pair]) -> None:
  """Writes all pairs as JSON lines."""
  path.write_text(''.join(
      json.dumps(dataclasses.asdict(pair)) + '\n' for pair in pairs))


def write_page(
    path: epath.Path, pairs: Sequence[blocks.Pair],
    source: selection_lib.Selection,
    against: Sequence[selection_lib.Selection], *, text: str, shown: int,
) -> None:
  """Writes a page of pairs side by side, the least similar first.

  Args:
    path: the .html file.
    pairs: all pairs.
    source: images on the left.
    against: images on the right.
    text: paragraph below the title.
    shown: number of pairs, sampled evenly by similarity.
  """
  ordered = sorted(pairs, key=lambda pair: pair.similarity)
  sample = [ordered[i] for i in np.unique(np.linspace(
      0, len(ordered) - 1, min(shown, len(ordered))).astype(int)).tolist()]
  tests = {selection.name: selection for selection in against}
  html_page.write(
      path, 'near_duplicates/page.html',
      title=f'Near-duplicates in {source.name}', text=text,
      shown=('all' if len(sample) == len(pairs)
             else f'{len(sample)} of {len(pairs):,}, evenly sampled'),
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
      'key': key, 'label': _label_text(example['label'], dataset.class_names),
      'url': html_page.thumbnail(
          decode.decode(example['image'], channels=3), side=_IMAGE_SIDE)}


def _label_text(label: Any, names: tuple[str, ...] | None) -> str:
  values = np.atleast_1d(np.asarray(label))[:_MAX_LABELS]
  if names is None or not np.issubdtype(values.dtype, np.integer):
    return ', '.join(map(str, values))
  return ', '.join(names[i] if 0 <= i < len(names) else str(i)
                   for i in values.tolist())
