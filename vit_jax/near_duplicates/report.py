"""What a search leaves: keys to exclude, all pairs, and a page to look at."""

import base64
from collections.abc import Sequence
import dataclasses
import html
import io
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

_STYLE = """
.pairs { display: grid; gap: 1rem; padding: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); }
.pairs li { border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem; }
.both { display: grid; grid-template-columns: 1fr 1fr; gap: .5rem; }
.both img { width: 100%; aspect-ratio: 1; object-fit: contain; }
.small { image-rendering: pixelated; }
.both div, .quiet { font-size: .85rem; }
.both div { overflow-wrap: anywhere; }
.pairs strong { display: block; margin-bottom: .25rem; }
"""


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
  chosen = [ordered[int(i)] for i in np.unique(np.linspace(
      0, len(ordered) - 1, min(shown, len(ordered))).astype(int))]
  tests = {selection.name: selection for selection in against}
  items = [_item(pair, source, tests[pair.against]) for pair in chosen]
  number = ('all' if len(chosen) == len(pairs)
            else f'{len(chosen)} of {len(pairs):,}, evenly chosen')
  body = [f'<h2>Pairs: {number}; those least alike first</h2>',
          '<ul class="pairs">', *items, '</ul>'] if items else [
              '<p>No near-duplicate was found.</p>']
  path.write_text(html_page.document(
      title=f'Near-duplicates in {source.name}', text=text, body=body,
      style=_STYLE))


def _item(
    pair: blocks.Pair, source: selection_lib.Selection,
    test: selection_lib.Selection,
) -> str:
  title = (f'{pair.similarity:.3f} alike, {pair.distance} of 64 bits differ'
           + (f', {pair.change}' if pair.change != 'whole' else ''))
  return (
      f'<li><strong>{html.escape(title)}</strong><div class="both">'
      + _side(source, pair.index, pair.key)
      + _side(test, pair.against_index, pair.against_key) + '</div></li>')


def _side(
    selection: selection_lib.Selection, index: int, key: str) -> str:
  dataset = selection.open()
  example = dataset[index]
  image = decode.decode(example['image'], channels=3)
  small = max(image.size) < _PICTURE
  image.thumbnail((_PICTURE, _PICTURE))
  buffer = io.BytesIO()
  image.save(buffer, 'PNG' if small else 'JPEG')
  data = base64.b64encode(buffer.getvalue()).decode()
  kind = 'png' if small else 'jpeg'
  label = _label(example['label'], dataset.class_names)
  return (
      f'<div><img alt="{html.escape(key)}" class="{"small" * small}" '
      f'src="data:image/{kind};base64,{data}">{html.escape(key)}'
      f'<div class="quiet">{html.escape(label)}</div></div>')


def _label(label: Any, names: tuple[str, ...] | None) -> str:
  indices = np.atleast_1d(np.asarray(label))
  return ', '.join(
      names[int(i)] if names is not None and np.issubdtype(
          indices.dtype, np.integer) and 0 <= i < len(names) else str(i)
      for i in indices[:5])
