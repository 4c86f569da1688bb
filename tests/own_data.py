"""Writes and opens a user's own dataset."""

import os

from vit_jax.data.sources import columns as columns_lib
from vit_jax.data.sources import open_source


def write(root, *names):
  """Writes files whose content is their name: opening decodes no image."""
  for name in names:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(os.fsencode(name))


def write_table(root, header, rows, *, name='labels.csv', images=True):
  """Writes a table, and its images, whose paths are the first cells."""
  rows = [row if isinstance(row, str) else ','.join(map(str, row))
          for row in rows]
  if images:
    write(root, *(row.split(',')[0] for row in rows))
  (root / name).parent.mkdir(parents=True, exist_ok=True)
  (root / name).write_text('\n'.join([header, *rows, '']))
  return root / name


def open_path(
    path, target='auto', *, labelled=True, group='', divided_groups='error',
    **table):
  """Opens files; images without labels are an error if they are `labelled`."""
  opened = open_source.open_path(str(path), columns_lib.LabelConfig(
      target, columns_lib.TableConfig(**table), group=group,
      divided_groups=divided_groups))
  if labelled and opened.no_labels:
    raise ValueError(opened.no_labels)
  return opened


def labels(opened):
  """Returns the label by key, over all splits."""
  return {source.key(i): source[i]['label'] for source in
          opened.splits.values() for i in range(len(source))}


def keys(opened):
  """Returns the sorted keys by split."""
  return {split: tuple(sorted(source.key(i) for i in range(len(source))))
          for split, source in opened.splits.items()}


def sizes(opened):
  return {split: len(source) for split, source in opened.splits.items()}
