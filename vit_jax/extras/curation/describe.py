"""Describes a dataset that opens: splits, classes, sizes, some labels."""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from vit_jax import data
from vit_jax.data.sources import open_source
from vit_jax.data.sources import protocol
from vit_jax.data.splits import split_strings
from vit_jax.exceptions import UserError

_IMAGES = 100  # Decoded for their sizes.
_SHOWN = 3  # Examples of a split.

Table = tuple[str, list[str], list[list[Any]]]  # Title, columns, rows.


def describe(config: data.DataConfig) -> tuple[str, list[Table]]:
  """Returns how files are interpreted, and tables; reads all labels.

  Raises:
    UserError: if the data do not open, with flags that open them.
  """
  opened = open_source.open_splits(config)
  splits = {name: source for name, source in opened.splits.items()
            if len(source)}
  tables: list[Table] = [(
      'Splits', ['split', 'examples', 'used for'], [
          [name, len(source), 'training' if name == 'train' else
           'evaluation' if name == opened.eval_split else '']
          for name, source in splits.items()])]
  if not (opened.no_labels or opened.targets):
    tables.append(_count_classes(opened, splits))
  tables += [_measure(config, splits), (
      'Examples', ['split', 'example', 'label'], [
          [name, source.key(i), _text(opened, source.label(i))]
          for name, source in splits.items()
          for i in range(min(_SHOWN, len(source)))])]
  reason = opened.no_labels and f'no labels: {opened.no_labels}'
  return '\n'.join(filter(None, [opened.description, reason])), tables


def _count_classes(
    opened: protocol.DatasetSplits, splits: dict[str, protocol.Source],
) -> Table:
  """Returns the number of examples of each class in each split."""
  counts = {name: collections.Counter(
      int(label) for labels in split_strings.labels(source)
      for label in np.unique(labels)) for name, source in splits.items()}
  empty = [[text, *[0] * len(splits)] for text in opened.without_images]
  return (f'Classes: {opened.num_classes:,}', ['class', *splits], [
      [name, *(count[i] for count in counts.values())]
      for i, name in enumerate(opened.names_or_indices)] + empty)


def _measure(
    config: data.DataConfig, splits: dict[str, protocol.Source]) -> Table:
  """Returns sizes of a sample of the images."""
  sizes, unreadable = list[tuple[int, int]](), 0
  for image in _sample(splits):
    try:
      sizes.append(config.decode(image).size)
    except UserError:
      unreadable += 1
  title = f'Sizes of {len(sizes) + unreadable:,} images' + (
      f', of which {unreadable:,} cannot be read' if unreadable else '')
  return title, ['pixels', 'minimum', 'median', 'maximum'], [
      [side, *map(int, np.percentile(of, (0, 50, 100)))]
      for side, of in zip(('width', 'height'), zip(*sizes))]


def _sample(splits: dict[str, protocol.Source]) -> Iterator[Any]:
  """Yields images at equal distances."""
  every = split_strings.Subset(tuple(
      (source, range(len(source))) for source in splits.values()))
  for i in np.unique(np.linspace(0, len(every) - 1, _IMAGES, dtype=int)):
    yield every[int(i)]['image']


def _text(opened: protocol.DatasetSplits, label: Any) -> str:
  if opened.targets:
    return ', '.join(f'{value:g}' for value in np.atleast_1d(label))
  if opened.no_labels or np.any(np.asarray(label) < 0):
    return ''
  names = opened.names_or_indices
  return ', '.join(names[i] for i in np.atleast_1d(label))
